#include "workload/ring.h"

#include <utility>

#include "workload/part.h"

namespace tulle::workload {

Waits add_ring(TaskGraph& graph, const Ring& ring, std::span<const Waits> ready) {
  const auto count = static_cast<std::uint32_t>(ring.ranks.size());
  Waits received(count), now(count);
  Task task;
  task.channel = ring.channel;
  task.phase = ring.phase;
  for (std::uint32_t step = 0; step < ring.steps; ++step) {
    for (std::uint32_t place = 0; place < count; ++place) {
      const std::uint32_t next = (place + 1) % count;
      const std::uint32_t segment = (place + 2 * count - step) % count;
      task.rank = ring.ranks[place];
      task.peer = ring.ranks[next];
      task.bytes = part_of(ring.bytes, segment, count);
      std::span<const TaskGraph::Index> waits;
      if (step > 0) {
        waits = {&received[place], 1};
      } else if (!ready.empty()) {
        waits = ready[place];
      }
      now[next] = graph.add_message(task, waits);
    }
    std::swap(received, now);
  }
  return received;
}

}  // namespace tulle::workload
