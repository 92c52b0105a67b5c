#pragma once

// The same traffic on several fabrics: what a person may choose, the scenario of a choice, and the
// tables of its results.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "study/report/outcome.h"
#include "study/scenario/fabrics.h"
#include "study/scenario/workloads.h"

namespace tulle::study {

struct CompareChoice {
  scenario::WorkloadOptions workload;  // without names and GPUs, which are below
  std::string fabrics;                 // "a,b", "all"; empty: the default
  std::vector<std::string> workloads;  // at least one; several share one network
  std::vector<std::uint32_t> gpus;     // by workload

  std::uint32_t planes() const { return workload.planes.value_or(1); }
};

// Reads the fabrics that come with Tulle.
Result<std::vector<scenario::Fabric>> shipped_fabrics();

// Returns lists of these fabrics and of all workloads, models and servers, for people.
std::string choices_text(const std::vector<scenario::Fabric>& fabrics);

// Returns the scenario of a choice, with a variant for each fabric. The error is one line, which
// spells members as the caller's users know them.
Result<scenario::Scenario> comparison(const CompareChoice& choice,
                                      const std::vector<scenario::Fabric>& fabrics,
                                      const scenario::Spelling& spell);

// Returns the names of the usual fabrics that cannot have the planes of a choice.
std::vector<std::string> left_out(const CompareChoice& choice,
                                  const std::vector<scenario::Fabric>& fabrics);

// Returns the table of the fabrics' figures, and that of the links that held frames up for longest.
// `marks_best` shows the best value of each column in bold, for a terminal.
std::string comparison_text(const report::Results& results, bool marks_best);

// Returns a line that says which outcomes have flows that did not finish, and why; empty: none.
std::string unfinished_text(std::span<const report::Outcome> outcomes);

}  // namespace tulle::study
