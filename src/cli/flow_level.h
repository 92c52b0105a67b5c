#pragma once

// What was measured of the flow level beside packets, by `./dev bench levels`, and what people are
// told of it.

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "experiment/flow_level.h"
#include "report/outcome.h"

namespace tulle::cli {

// Reads flow-level.json, which comes with the scenarios. The error is one line.
Result<std::vector<experiment::ValidatedRange>> validated_ranges();
// Does the same with a text. `file` is its name in errors.
Result<std::vector<experiment::ValidatedRange>> parse_ranges(const std::string& text,
                                                             const std::string& file);

// Returns a line that says how far the outcomes may be off, or that nobody knows.
std::string flow_level_note(std::span<const report::Outcome> outcomes);

}  // namespace tulle::cli
