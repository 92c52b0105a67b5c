#pragma once

// A plan is what a group of ranks does: a graph of tasks, where its bytes are stored, and how often
// it is done.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "study/workload/collectives.h"
#include "study/workload/pieces.h"
#include "study/workload/task_graph.h"

namespace tulle::ranks {

inline constexpr std::uint32_t ranks_max = 64;

struct Plan {
  workload::TaskGraph graph{1};  // of messages alone
  workload::Pieces pieces;
  std::uint64_t buffer_bytes = 0;  // of each rank; a multiple of 4
  bool has_second_buffer = false;  // in which messages arrive
  // The collective whose results are checked; nothing if the bytes have no meaning.
  std::optional<workload::Collective> collective;
  std::uint32_t iterations = 1;
  std::uint32_t warm_up = 0;  // further iterations that come first and are not measured
  // A message goes in chunks of this size, a multiple of 4.
  std::uint32_t chunk_bytes = 512u << 10;
  // Chunks that a rank may send to another by one channel before it is told that they were taken.
  std::uint32_t slots = 8;

  std::uint64_t memory_bytes() const { return buffer_bytes * (has_second_buffer ? 2 : 1); }
};

struct Group {
  std::string library;  // the path of libibverbs
  // A rank that says nothing for this long ends the run.
  std::chrono::milliseconds timeout{10'000};
};

struct Times {
  std::vector<double> seconds;            // by measured iteration: the longest of any rank
  std::vector<double> processor_seconds;  // by measured iteration: of all ranks together
  std::uint64_t wrong = 0;  // values of all ranks and iterations that are not as they should be
};

}  // namespace tulle::ranks
