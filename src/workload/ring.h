#pragma once

// The ring algorithm as tasks.

#include <cstdint>
#include <span>
#include <vector>

#include "workload/task_graph.h"

namespace tulle::workload {

using Waits = std::vector<TaskGraph::Index>;

struct Ring {
  std::vector<std::uint32_t> ranks;  // in the order of the ring, at least 2
  std::uint64_t bytes = 0;           // cut into as many segments as ranks
  std::uint32_t steps = 0;           // at least 1; once round the ring are ranks - 1
  std::uint32_t channel = 0;
  std::uint32_t phase = 0;
};

// In step 0 a rank sends its own segment, and in each later one what it received in the step
// before. `ready` has by place what a rank waits for before its first step; empty means nothing.
// Returns by place the message that the rank received last.
Waits add_ring(TaskGraph& graph, const Ring& ring, std::span<const Waits> ready = {});

}  // namespace tulle::workload
