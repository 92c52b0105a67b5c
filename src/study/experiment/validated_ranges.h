#pragma once

// The ranges in which the flow level has been measured against the packet level.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "study/fluid/play.h"

namespace tulle::experiment {

// A range of runs: those of one kind of backlog, whose flows begin over time, or all at once.
struct ValidatedRange {
  fluid::Backlog backlog = fluid::Backlog::window;
  bool at_once = false;
  bool of_jobs = false;  // at_once and load_max mean nothing then
  std::uint32_t hosts_min = 0;
  double flow_bytes_min = 0;  // the mean of all flows
  double load_max = 0;        // of flows that begin over time: FlowLevel::offered_load()
  std::uint64_t bottleneck_flows_max = 0;
  // The greatest error of the mean slowdown, or of a job's time, as a share of it.
  double error_max = 0;
  std::uint64_t runs = 0;
};

// Reads what `./dev bench levels` has written (scenarios/flow-level.json). `file` is its name in
// errors, which are one line.
Result<std::vector<ValidatedRange>> parse_ranges(std::string_view text, const std::string& file);

}  // namespace tulle::experiment
