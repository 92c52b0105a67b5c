#pragma once

// Pieces say where the bytes of a collective's messages are. A graph of tasks says who sends how
// much to whom and when, which is all that a simulation needs. Processes that move real bytes need
// this too.

#include <cstdint>
#include <vector>

namespace tulle::workload {

// The bytes of one message. Their number is the task's, and the task says whether the receiver adds
// or stores them (Task::reduces).
struct Piece {
  std::uint64_t source = 0;  // offset in the sender's buffer
  std::uint64_t target = 0;  // offset in the receiver's buffer
};

// Each rank has one buffer of the collective's bytes, which holds its input and in the end its
// result. An all-to-all sends from that buffer, and receives into a second one of the same size.
struct Pieces {
  std::vector<Piece> of;  // by task
  // By rank: which of the equal parts of the buffer is its own, one for each rank. It is what the
  // rank gives to an all-gather, and what it has of the sum after a reduce-scatter.
  std::vector<std::uint32_t> part;
};

}  // namespace tulle::workload
