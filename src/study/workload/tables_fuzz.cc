// Reads any text as the tables of this room. A table of flows is refused in one line that begins
// with the file's name, or holds flows between hosts that exist, each after an earlier one, and
// reads again as it is written. A distribution of sizes is refused likewise, or draws sizes between
// its first and last point. The first byte chooses the table.

#include <algorithm>
#include <string_view>

#include "base/check.h"
#include "base/script_fuzz.h"
#include "study/workload/distribution.h"
#include "study/workload/flow_file.h"

namespace tulle::workload {
namespace {

constexpr std::uint32_t hosts = 8;

void check_error(const Error& error) {
  TULLE_CHECK(error.message.starts_with("fuzz.csv:"));
  for (const char c : error.message) TULLE_CHECK(c < 0 || c >= ' ');
}

void check_flows(std::string_view text) {
  auto flows = parse_flows(text, "fuzz.csv", hosts);
  if (!flows) return check_error(flows.error());
  std::size_t number = 0;
  for (const auto& flow : *flows) {
    TULLE_CHECK(flow.source < hosts && flow.destination < hosts);
    TULLE_CHECK(flow.source != flow.destination && flow.bytes >= 1);
    ++number;
  }
  auto again = parse_flows(format_flows(*flows), "fuzz.csv", hosts);
  TULLE_CHECK(again && again->size() == flows->size());
  TULLE_CHECK(format_flows(*again) == format_flows(*flows));
}

void check_distribution(std::string_view text) {
  auto sizes = SizeDistribution::from_csv(text, "fuzz.csv");
  if (!sizes) return check_error(sizes.error());
  const auto& points = sizes->points();
  TULLE_CHECK(!points.empty() && points.back().cumulative_percent == 100);
  constexpr double rounding = 1e-9;  // relative
  TULLE_CHECK(sizes->mean_bytes() >= 0 &&
              sizes->mean_bytes() <= points.back().bytes * (1 + rounding));
  Random random(text.size());
  for (int i = 0; i < 32; ++i) {
    const auto bytes = static_cast<double>(sizes->sample(random));
    TULLE_CHECK(bytes >= 1 && bytes >= points.front().bytes - 1);
    TULLE_CHECK(bytes <= std::max(1.0, points.back().bytes + 1));
  }
}

}  // namespace
}  // namespace tulle::workload

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) {
    tulle::workload::check_flows(text);
  } else {
    tulle::workload::check_distribution(text);
  }
  return 0;
}
