#pragma once

// Code that the simulating commands share: where scenarios are, a line of progress, Ctrl-C.

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "report/outcome.h"
#include "scenario/scenario.h"

namespace tulle::cli {

// Returns the names of the scenarios that come with Tulle, in alphabetical order.
std::vector<std::string> shipped_scenarios();
// Returns an error message for the case that there are none.
std::string scenarios_missing();
// Returns the file of a scenario, given as a path or as the name of one that comes with Tulle. The
// error suggests similar names.
Result<std::string> find_scenario(const std::string& name);
// Finds and reads a scenario. All errors are of what was asked for.
Result<scenario::Scenario> read_scenario(const std::string& name,
                                         const std::vector<std::string>& set);

// Returns the indices of the variants that have a name; of all, if it is empty.
std::vector<std::size_t> wanted_variants(const scenario::Scenario& scenario,
                                         const std::string& variant);
// Returns an error message for the case that there is none.
std::string no_such_variant(const scenario::Scenario& scenario, const std::string& variant);

// Fails if some rank has read something else of the scenario (cli/ranks.h). All ranks call this.
Result<void> check_alike(const scenario::Scenario& scenario, std::span<const std::size_t> variants);

// After catch_interrupts(), Ctrl-C ends the run that is under way, and no more begin.
// is_interrupted() returns true once Ctrl-C was pressed.
void catch_interrupts();
bool is_interrupted();
inline constexpr char interrupted_results[] =
    "interrupted: the results cover only what was simulated by then";

// Puts all memory in large pages, where the system has them: a cluster's state is touched all over,
// and looking up a page would cost more than the memory access itself. The C library reads this
// setting when a program starts, so this program starts again. Call this function before anything
// else is done.
void take_large_pages();

struct Timings {
  double setup_s = 0;
  double run_s = 0;
  double run_cpu_s = 0;  // processor time of this process meanwhile
};

struct SimulateOptions {
  std::string capture;  // a file; empty: none
  std::vector<std::string> capture_at;
  std::string progress;   // stands before the variant's name in the line of progress
  bool timeline = false;  // gather what a page shows
  // Printed on standard output once the first variant can run.
  std::string heading;
  unsigned jobs = 1;  // variants that run at the same time, each in its own memory
  // Threads that move the network of each variant, in each rank. One does where frames are
  // captured.
  unsigned threads = 1;
  // With ranks, rank 0 calls it with the results so far after each variant that is not the last:
  // they are lost otherwise if another rank dies.
  std::function<Result<void>(const report::Results&)> keep = {};
  std::string kept_in = {};    // where it keeps them, for people
  bool at_flow_level = false;  // flows are fluids, and there are no packets to capture
  // At flow level: what lies beyond the ranges in which it was measured is simulated, too.
  bool is_unvalidated = false;
};

// Returns the number of processors that this process may use.
unsigned jobs_by_default();
inline constexpr unsigned jobs_max = 1'024;

// Runs these variants, until one cannot be run or Ctrl-C is pressed, with a line of progress if
// standard error is a terminal. The results do not depend on the number of jobs. Errors in a later
// variant are reported before the first one runs, which can take hours. The timings are the sums of
// the variants'. With ranks (cli/ranks.h), all of them call this and simulate each variant
// together, or rank 0 does alone, and says why. Rank 0 has the results, and the others have none.
Result<report::Results> simulate(const SimulateOptions& options, const scenario::Scenario& scenario,
                                 std::span<const std::size_t> variants, Timings& timings);

// Writes, in place of those of an earlier run, the files of report/results.h, report.html and a
// trace for Perfetto of each variant, VARIANT.pftrace, to the folder. The results are those of
// these variants of the scenario. `what` is what the variants are, and `again` the command that
// makes them. If the first variants alone have results, the others are left out. Each variant has a
// folder of its own if they are several.
Result<void> write_results(const std::string& folder, const scenario::Scenario& scenario,
                           std::span<const std::size_t> variants, const report::Results& results,
                           const std::string& what, const std::string& again, bool are_several);
// Prints the text, and fails if the disk is full.
Result<void> print(const std::string& text);

}  // namespace tulle::cli
