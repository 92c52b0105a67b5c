#pragma once

// The commands of the simulator, one a file. Each returns the exit status, and prints one line if
// something went wrong. cli/commands.h has the live ones.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/fail.h"
#include "ranks/bench.h"
#include "study/choice.h"
#include "study/compare.h"
#include "study/level.h"
#include "study/simulate.h"
#include "study/tune_request.h"

namespace tulle::cli {

// Returns the option that sets a member of scenario::WorkloadOptions or TableOptions.
std::string as_option(std::string_view member);

// What the commands that simulate have in common.
struct Work {
  std::string output;    // a folder; empty: none
  std::string again;     // the command that has the same results, for people
  unsigned jobs = 1;     // variants, fabrics or points that are simulated at the same time
  unsigned threads = 1;  // of each variant or fabric
  bool json = false;
};
// Returns the options of a simulation by these choices, for the ranks of this process.
study::SimulateOptions simulating(const Work& work, const std::string& level, bool unvalidated);

struct SimOptions : Work {
  study::Choice choice;  // a gallery takes any number of scenarios
  std::string timings;
  std::vector<std::string> capture_at = {"host 0"};  // nodes
  bool list = false;
  bool gallery = false;
};
int sim(const SimOptions& options);

struct SweepOptions : Work {
  std::string scenario;            // a file, or a name from --list
  std::vector<std::string> knobs;  // "KEY=VALUE,VALUE"
  std::string points;              // a file with a list of points; empty: there are knobs
  std::vector<std::string> set;
  std::string variant;  // empty: all
  std::string level = study::packet_level;
};
// Returns 1 also if a point has no results.
int sweep(const SweepOptions& options);

struct TuneOptions : study::TuneRequest, Work {
  std::string scenario;  // a file, or a name from --list
  std::vector<std::string> set;
  std::string variant;  // empty: the only one
  std::string level = study::packet_level;
};
// Returns 1 also if the best setting is no better than the scenario as it is.
int tune(const TuneOptions& options);

struct CompareOptions : Work {
  study::CompareChoice choice;
  std::string level = study::packet_level;
  bool unvalidated = false;
  bool list = false;
};
// Returns 1 also if a fabric did not finish its flows.
int compare(const CompareOptions& options);

struct BenchOptions : ranks::BenchOptions {
  double timeout_seconds = 10;
  bool json = false;
};
// Returns 1 also if a value was wrong.
int bench(const BenchOptions& options);

struct CalibrateOptions {
  std::string output;  // a file; empty: standard output
  std::uint32_t ranks = 4;
  double timeout_seconds = 10;
};
int calibrate(const CalibrateOptions& options);

}  // namespace tulle::cli
