#pragma once

// The ring algorithm as tasks.

#include <cstdint>
#include <span>
#include <vector>

#include "study/workload/pieces.h"
#include "study/workload/task_graph.h"

namespace tulle::workload {

using Waits = std::vector<TaskGraph::Index>;

struct Ring {
  std::vector<std::uint32_t> ranks;  // in the order of the ring, at least 2
  std::uint64_t bytes = 0;           // cut into as many segments as ranks
  std::uint32_t steps = 0;           // at least 1; once round the ring are ranks - 1
  std::uint32_t channel = 0;
  std::uint32_t phase = 0;
  std::uint32_t reducing_steps = 0;  // in the first so many, what comes is added
  // If there are pieces, segment i has `bytes` over the ranks, from places[i] of each buffer on.
  std::vector<std::uint64_t> places{};
  Pieces* pieces = nullptr;
  std::uint32_t first_step = 0;  // the steps before it were done already, by other rings
  // True: what a rank waits for before its own data counts for all that it sends. Otherwise what it
  // passes on may overtake them.
  bool waits_always = false;
};

// Adds the pieces of the tasks that have none yet, which together are one message.
void add_pieces(Pieces& pieces, const TaskGraph& graph, Piece piece);

// In step 0 a rank sends its own segment, and in each later one what it received in the step
// before. `ready` has by place what a rank waits for before it sends anything from its own segment,
// which it does in each reducing step and in the one behind them; empty means nothing.
// Returns by place the message that the rank received last.
Waits add_ring(TaskGraph& graph, const Ring& ring, std::span<const Waits> ready = {});

}  // namespace tulle::workload
