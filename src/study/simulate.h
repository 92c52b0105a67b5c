#pragma once

// Simulates variants of a scenario, and writes their results.

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "sim/processes.h"
#include "study/level.h"
#include "study/monitor.h"
#include "study/report/outcome.h"
#include "study/scenario/scenario.h"

namespace tulle::study {

// All times are in seconds.
struct Timings {
  double setup_s = 0;
  double run_s = 0;
  double run_cpu_s = 0;  // processor time of this process meanwhile
};

// Writes them to a file as JSON, with the memory and the processor time of this process so far.
Result<void> write_timings(const std::string& path, const Timings& timings);

struct SimulateOptions {
  std::string capture;                  // a file for the frames of one variant; empty: none
  std::vector<std::string> capture_at;  // nodes, such as "host 0"
  bool timeline = false;                // gather what a page shows
  unsigned jobs = 1;  // variants that run at the same time, each in its own memory; at least 1
  // Threads that move the network of each variant, in each process; at least 1. One does where
  // frames are captured.
  unsigned threads = 1;
  sim::Processes* ranks = nullptr;  // who simulates each variant together; null: this process alone
  // With ranks, rank 0 calls it with the results so far after each variant that is not the last:
  // they are lost otherwise if another process dies.
  std::function<Result<void>(const report::Results&)> keep = {};
  std::string kept_in = {};  // where it keeps them, for people
  Level level = Level::packet;
  // At flow level: what is beyond the ranges in which it was measured is simulated, too.
  bool is_unvalidated = false;
};

// Runs these variants, until one cannot be run or the monitor ends it. The results do not depend on
// the number of jobs. Errors in a later variant are reported before the first one runs, which can
// take hours. The timings are the sums of the variants'. All ranks call this and simulate each
// variant together, or process 0 does alone, and says why. Process 0 has the results, and the
// others have none.
Result<report::Results> simulate(const SimulateOptions& options, const scenario::Scenario& scenario,
                                 std::span<const std::size_t> variants, Monitor& monitor,
                                 Timings& timings);

// What accompanies results in a folder.
struct ResultsText {
  std::string what;          // what the variants are: "variant", "fabric"
  std::string again;         // the command that makes them
  bool are_several = false;  // each variant has its own folder
};

// Writes, in place of those of an earlier run, the files of study/report/results.h, report.html and
// a trace for Perfetto of each variant, VARIANT.pftrace, to the folder. The results are those of
// these variants of the scenario. If the first variants alone have results, the others are left
// out.
Result<void> write_results(const std::string& folder, const scenario::Scenario& scenario,
                           std::span<const std::size_t> variants, const report::Results& results,
                           const ResultsText& beside);

}  // namespace tulle::study
