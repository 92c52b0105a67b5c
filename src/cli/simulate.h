#pragma once

// What the commands that simulate have in common: where scenarios are, a line of progress, Ctrl-C.

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "scenario/run.h"
#include "scenario/scenario.h"

namespace tulle::cli {

// Of each scenario that comes along, in the order of their names.
std::vector<std::string> shipped_scenarios();
// A path, or the name of a scenario that comes along.
std::string find_scenario(const std::string& name);

// From now on Ctrl-C ends the run that goes on, and no more begin; and whether it was pressed.
void catch_interrupts();
bool is_interrupted();

// Large pages for all memory, where the system has them: a cluster's state is touched all over, and
// a look-up of its page would cost more than the memory itself. The C library reads this when a
// program starts, so this one starts again. To be called before anything is done.
void take_large_pages();

struct Timings {
  double setup_s = 0;
  double run_s = 0;
};

struct SimulateOptions {
  std::string capture;  // a file; empty: none
  std::vector<std::string> capture_at;
  std::string progress;  // before the variant's name in the line of progress
};

// Runs one variant, with a line of progress where standard error is a terminal.
Result<scenario::Outcome> simulate(const SimulateOptions& options,
                                   const scenario::Scenario& scenario, std::size_t variant,
                                   Timings& timings);
// Runs these one after the other, until one cannot be run or Ctrl-C is pressed. What is wrong with
// a later variant is said before the first one runs, which can take hours.
Result<std::vector<scenario::Outcome>> simulate(const SimulateOptions& options,
                                                const scenario::Scenario& scenario,
                                                std::span<const std::size_t> variants,
                                                Timings& timings);

// Makes the folder, unless it is there, and sees whether files can be made in it.
Result<void> prepare_folder(const std::string& folder);
// Prints it, and notices a full disk.
Result<void> print(const std::string& text);

}  // namespace tulle::cli
