#pragma once

// Processes that simulate together (sim/processes.h) go through the same calls, and agree on what
// comes next. Null means one process alone.

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "sim/processes.h"
#include "study/scenario/scenario.h"

namespace tulle::study {

// Returns true in the process that has the results, and speaks for all.
inline bool is_first(const sim::Processes* ranks) {
  return ranks == nullptr || ranks->number() == 0;
}

// Fails if one of them has failed, with the error of the first one that has. All call this as often
// as each other; one process alone gets back what it gives.
Result<void> agree(sim::Processes* ranks, const Result<void>& own);

// Returns the first process that says something else than process 0.
std::optional<std::size_t> other_than_first(const std::vector<std::string>& said);

// Fails if this text, such as what a scenario says, is another one in some process: a host may have
// another copy of a file. `what` names it for people. All call this as often as each other.
Result<void> check_alike(sim::Processes* ranks, const std::string& what, const std::string& text);

// Fails if some process has read something else of the scenario. All call this.
Result<void> check_alike(sim::Processes* ranks, const scenario::Scenario& scenario,
                         std::span<const std::size_t> variants);

}  // namespace tulle::study
