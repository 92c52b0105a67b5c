#include "study/experiment/validated_ranges.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/json_text.h"

namespace tulle::experiment {
namespace {

using json_t = nlohmann::json;

double share_of(const json_t& json, const char* key) {
  const auto share = json.at(key).get<double>();
  if (!(share >= 0 && share <= 1)) throw std::runtime_error(fmt::format("{} is no share", key));
  return share;
}

std::uint32_t count_of(const json_t& json, const char* key) {
  const json_t& count = json.at(key);
  constexpr std::uint32_t most = std::numeric_limits<std::uint32_t>::max();
  if (!count.is_number_unsigned() || count.get<std::uint64_t>() > most) {
    throw std::runtime_error(fmt::format("{} is no count", key));
  }
  return count.get<std::uint32_t>();
}

fluid::Backlog backlog_of(const json_t& json) {
  const auto& name = json.at("backlog").get_ref<const std::string&>();
  if (name == "window") return fluid::Backlog::window;
  if (name == "credits") return fluid::Backlog::credits;
  throw std::runtime_error("backlog is neither window nor credits");
}

ValidatedRange range_of(const json_t& json) {
  return {backlog_of(json),
          json.at("at_once").get<bool>(),
          json.value("of_jobs", false),
          count_of(json, "hosts_min"),
          static_cast<double>(count_of(json, "flow_bytes_min")),
          share_of(json, "load_max"),
          count_of(json, "bottleneck_flows_max"),
          share_of(json, "error_max"),
          count_of(json, "runs")};
}

}  // namespace

Result<std::vector<ValidatedRange>> parse_ranges(std::string_view text, const std::string& file) {
  std::vector<ValidatedRange> ranges;
  try {
    if (json_depth(text) > json_depth_max)
      throw std::runtime_error("its values are nested too deep");
    const json_t json = json_t::parse(text);
    for (const json_t& each : json.at("ranges")) ranges.push_back(range_of(each));
  } catch (const std::exception& error) {
    return Error{
        fmt::format("{}: is not what `./dev bench levels` writes: {}", file, error.what())};
  }
  return ranges;
}

}  // namespace tulle::experiment
