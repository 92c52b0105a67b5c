#pragma once

// Outcomes are stored as JSON that is read again. It has their figures, exactly, and how many flows
// there were. The flows themselves, links, samples and timelines are left out.

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "base/result.h"
#include "study/report/outcome.h"

namespace tulle::report {

nlohmann::ordered_json stored_json(const Outcome& outcome);

// Returns the figure of a key, or null. The room that measures has them.
using FigureOf = std::function<const Figure*(std::string_view key)>;
// Returns an error if the JSON is none that stored_json() of this version made.
Result<Outcome> stored_outcome(const nlohmann::ordered_json& json, const FigureOf& figure_of);

}  // namespace tulle::report
