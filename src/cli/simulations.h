#pragma once

// The commands of the simulator, one a file. Each returns the exit status, and prints one line if
// something went wrong. cli/commands.h has the live ones.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/fail.h"
#include "study/level.h"
#include "study/scenario/workloads.h"

namespace tulle::cli {

// Fails if a command cannot simulate at that level. The error is one line.
Result<void> check_level(const std::string& level, bool is_unvalidated);
// Returns the number of processors that this process may use.
unsigned jobs_by_default();
inline constexpr unsigned jobs_max = 1'024;
// Returns the option that sets a member of scenario::WorkloadOptions or TableOptions.
std::string as_option(std::string_view member);
// Returns an error message for the case that no scenario came with this program.
std::string scenarios_missing();

struct SimOptions {
  // Files, or names from --list: one, or none if the scenario comes from the tables. A gallery
  // takes any number.
  std::vector<std::string> scenarios;
  std::string topology;
  std::string flows;
  std::string fabric = "roce";
  std::string congestion_control = "none";
  std::vector<std::string> set;
  scenario::Overrides overrides;
  std::string variant;  // empty: all
  std::string output;   // a folder; empty: none
  std::string again;    // the command that has the same results, for people
  std::string timings;
  std::string capture;                               // a file; empty: none
  std::vector<std::string> capture_at = {"host 0"};  // nodes
  unsigned jobs = 1;                                 // variants that run at the same time
  unsigned threads = 1;                              // of each variant
  std::string level = study::packet_level;
  bool unvalidated = false;
  bool list = false;
  bool json = false;
  bool gallery = false;
};
int sim(const SimOptions& options);
int gallery(const SimOptions& options);

struct SweepOptions {
  std::string scenario;            // a file, or a name from --list
  std::vector<std::string> knobs;  // "KEY=VALUE,VALUE"
  std::string points;              // a file with a list of points; empty: there are knobs
  std::vector<std::string> set;
  std::string variant;  // empty: all
  std::string output;   // a folder
  std::string again;    // the command that has the same results, for people
  std::string level = study::packet_level;
  unsigned jobs = 1;  // points that are simulated at the same time
  bool json = false;
};
// Returns 1 also if a point has no results.
int sweep(const SweepOptions& options);

struct TuneOptions {
  std::string scenario;                 // a file, or a name from --list
  std::vector<std::string> knobs;       // "KEY=LEAST..MOST" or "KEY=VALUE,VALUE"
  std::vector<std::string> knob_files;  // or names of those that come with Tulle
  std::string minimize, maximize;       // the objective, a figure; one of them is empty
  std::vector<std::string> limits;      // "FIGURE<=NUMBER"
  std::vector<std::string> set;
  std::string variant;  // empty: the only one
  std::string seeds = "1..2", validation_seeds = "101..105";
  std::size_t budget = 100;  // settings to try
  std::string output;        // a folder
  std::string again;         // the command that has the same results, for people
  std::string level = study::packet_level;
  unsigned jobs = 1;  // simulations at the same time
  bool json = false;
};
// Returns 1 also if the best setting is no better than the scenario as it is.
int tune(const TuneOptions& options);

struct CompareOptions {
  scenario::WorkloadOptions workload;
  std::string fabrics;                 // "a,b", "all"; empty: the default
  std::string output;                  // a folder; empty: none
  std::string again;                   // the command that has the same results, for people
  std::vector<std::string> workloads;  // several share one network
  std::vector<std::uint32_t> gpus;     // by workload
  unsigned jobs = 1;                   // fabrics that are simulated at the same time
  unsigned threads = 1;                // of each fabric
  std::string level = study::packet_level;
  bool unvalidated = false;
  bool list = false;
  bool json = false;
};
// Returns 1 also if a fabric did not finish its flows.
int compare(const CompareOptions& options);

struct BenchOptions {
  std::string collective;  // "allreduce:64MiB"
  std::uint32_t ranks = 4;
  std::uint32_t per_server = 0;  // ranks that count as one server; 0: all
  std::string algorithm;         // empty: the usual one
  std::uint32_t channels = 1;
  std::string chunk = "512KiB";
  std::uint32_t iterations = 20;
  std::uint32_t warm_up = 5;
  double timeout_seconds = 10;
  // Empty: all ranks are processes of this host. Otherwise this process is one rank.
  std::string meet;
  std::optional<std::uint32_t> rank;
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
