#pragma once

// Test support: scenarios with [[jobs]], and the figures of each job.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "study/experiment/alone.h"
#include "study/experiment/outcome_test.h"

namespace tulle::experiment {

// Two jobs that share the network of eight hosts.
inline constexpr char two_jobs[] = R"(
[topology]
kind = "leaf-spine"
leaves = 2
spines = 1
hosts_per_leaf = 4
link_rate = "400Gbps"
[[jobs]]
name = "a"
workload = "allreduce:1MiB"
servers = "0, 1, 4, 5"
[[jobs]]
name = "b"
workload = "alltoall:1MiB"
servers = "2, 3, 6, 7"
)";

inline std::string job(const std::string& name, const std::string& workload,
                       const std::string& more) {
  return fmt::format("[[jobs]]\nname = \"{}\"\nworkload = \"{}\"\n{}\n", name, workload, more);
}

// Returns the outcome of a run with jobs, each of which was also played alone.
inline report::Outcome compared(const std::string& text, const std::string& folder = "") {
  auto setup = setup_of(text, folder, {"report.alone = true"});
  if (!setup) return {};
  EXPECT_TRUE(setup->wants_alone);
  const auto goes_on = [](const Progress&) { return true; };
  EXPECT_TRUE(play_alone(*setup, 1, nullptr, goes_on));
  auto run = Run::prepare(std::move(*setup));
  (*run)->run(goes_on);
  return (*run)->outcome();
}

inline double of_job(const report::Outcome& outcome, const std::string& name,
                     const std::string& key) {
  return number(outcome, "traffic." + name + "." + key);
}

}  // namespace tulle::experiment
