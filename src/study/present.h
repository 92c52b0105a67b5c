#pragma once

// Simulates variants of a scenario, and shows and writes what came of them.

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "study/monitor.h"
#include "study/report/outcome.h"
#include "study/scenario/scenario.h"
#include "study/simulate.h"

namespace tulle::study {

struct PresentOptions {
  SimulateOptions simulating;  // `timeline`, `keep` and `kept_in` are set from `folder`
  std::string folder;          // of the results; empty: none is written
  std::string what;            // what the variants are: "variant", "fabric"
  std::string again;           // the command that has the same results, for people
  std::string timings;         // a file for the times; empty: none
  // Returns the results for the caller's user, of the first process.
  std::function<std::string(const report::Results&)> text;
  bool has_note = true;  // at flow level, the text is followed by how far it may be off
};

// Prints a text, and fails if that cannot be done.
using Print = std::function<Result<void>(const std::string& text)>;

// All ranks call this. Returns the results in the first process, and nothing in the others.
Result<std::optional<report::Results>> present(PresentOptions options,
                                               const scenario::Scenario& scenario,
                                               std::span<const std::size_t> variants,
                                               Monitor& monitor, const Print& print);

}  // namespace tulle::study
