#pragma once

// Tells people how far the flow level has been measured beside packets.

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "experiment/validated_ranges.h"
#include "report/outcome.h"

namespace tulle::cli {

// Reads flow-level.json, which comes with the scenarios. The error is one line.
Result<std::vector<experiment::ValidatedRange>> validated_ranges();

// Fails if the command cannot simulate at that level. The error is one line.
Result<void> check_level(const std::string& level, bool is_unvalidated);

// Returns a line that says how far the outcomes may be off, or that nobody knows.
std::string flow_level_note(std::span<const report::Outcome> outcomes);

}  // namespace tulle::cli
