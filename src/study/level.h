#pragma once

// The levels of a simulation: packets, or flows that share links as fluids do.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "study/experiment/validated_ranges.h"
#include "study/report/outcome.h"

namespace tulle::study {

enum class Level : std::uint8_t { packet, flow };
inline constexpr char packet_level[] = "packet";
inline constexpr char flow_level[] = "flow";
constexpr const char* name_of(Level level) {
  return level == Level::flow ? flow_level : packet_level;
}
constexpr Level level_of(std::string_view name) {
  return name == flow_level ? Level::flow : Level::packet;
}

// Reads flow-level.json, which comes with the scenarios: how far the flow level has been
// compared with packets. The error is one line.
Result<std::vector<experiment::ValidatedRange>> validated_ranges();

// Returns a line that says how far the outcomes of the flow level may be off, or that nobody knows.
std::string flow_level_note(std::span<const report::Outcome> outcomes);

}  // namespace tulle::study
