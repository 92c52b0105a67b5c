#pragma once

// Times a collective among live ranks: its plan by a few choices, and its results in the columns of
// nccl-tests.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "ranks/plan.h"
#include "study/workload/collectives.h"

namespace tulle::ranks {

struct BenchOptions {
  std::string collective;  // "allreduce:64MiB"
  std::uint32_t ranks = 4;
  std::uint32_t per_server = 0;           // ranks that count as one server; 0: all
  std::string algorithm;                  // empty: the usual one
  std::optional<std::uint32_t> channels;  // 1
  std::string chunk;                      // empty: "512KiB"
  std::uint32_t iterations = 20;
  std::uint32_t warm_up = 5;
  // Empty: all ranks are processes of this host. Otherwise this process is one rank.
  std::string meet;
  std::optional<std::uint32_t> rank;
};

// Returns how the users of a caller write a member of the options, in errors.
using Spelling = std::function<std::string(std::string_view member)>;

struct Bench {
  Plan plan;
  workload::CollectiveSettings settings;  // the bytes are rounded up, so that all parts are equal
  std::uint32_t ranks = 0;
  std::uint64_t number = 0;  // differs where the options mean different runs
};

// The error is of what was asked for, in one line.
Result<Bench> make_bench(const BenchOptions& options, const Spelling& spell);

// Return the times of a bench, of at least one iteration: medians, with rates in GB/s.
std::string bench_text(const Bench& bench, const Times& times);
std::string bench_json(const Bench& bench, const Times& times);

}  // namespace tulle::ranks
