// Reads any text as a knob of the command line. A knob that is accepted has values at each place,
// and they are values of TOML.

#include <array>
#include <string_view>

#include "base/check.h"
#include "study/scenario/grid.h"
#include "study/tuning/knob.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tulle;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  auto knob = tuning::parse_range(text);
  if (!knob) {
    TULLE_CHECK(!knob.error().message.empty());
    TULLE_CHECK(knob.error().message.find('\n') == std::string::npos);
    return 0;
  }
  for (const double place : {-1.0, 0.0, 0.3, 1.0, 2.0}) {
    const auto values = tuning::values_at(std::span(&*knob, 1), std::span(&place, 1));
    TULLE_CHECK(values.size() == 1 && !values.front().empty());
    if (knob->kind == tuning::Knob::Kind::choice) continue;
    TULLE_CHECK(scenario::parse_knob("key=[" + values.front() + "]").operator bool());
  }
  return 0;
}
