#include "study/workload/ring.h"

#include <utility>

#include "study/workload/part.h"

namespace tulle::workload {

void add_pieces(Pieces& pieces, const TaskGraph& graph, Piece piece) {
  while (pieces.of.size() < graph.size()) {
    const std::uint64_t bytes = graph[static_cast<TaskGraph::Index>(pieces.of.size())].bytes;
    pieces.of.push_back(piece);
    piece.source += bytes;
    piece.target += bytes;
  }
}

Waits add_ring(TaskGraph& graph, const Ring& ring, std::span<const Waits> ready) {
  const auto count = static_cast<std::uint32_t>(ring.ranks.size());
  Waits received(count), now(count), waits;
  Task task;
  task.channel = ring.channel;
  task.phase = ring.phase;
  for (std::uint32_t step = ring.first_step; step < ring.first_step + ring.steps; ++step) {
    task.reduces = step < ring.reducing_steps;
    for (std::uint32_t place = 0; place < count; ++place) {
      const std::uint32_t next = (place + 1) % count;
      const std::uint32_t segment = (place + 2 * count - step) % count;
      task.rank = ring.ranks[place];
      task.peer = ring.ranks[next];
      task.bytes = part_of(ring.bytes, segment, count);
      waits.clear();
      if (step > ring.first_step) waits.push_back(received[place]);
      const bool has_own = step <= ring.reducing_steps;  // the sum of its segment at last
      if ((has_own || ring.waits_always) && !ready.empty()) {
        waits.insert(waits.end(), ready[place].begin(), ready[place].end());
      }
      now[next] = graph.add_message(task, waits);
      if (ring.pieces != nullptr) {
        add_pieces(*ring.pieces, graph, {ring.places[segment], ring.places[segment]});
      }
    }
    std::swap(received, now);
  }
  return received;
}

}  // namespace tulle::workload
