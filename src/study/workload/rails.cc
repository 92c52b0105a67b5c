#include "study/workload/rails.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "study/workload/part.h"

namespace tulle::workload {
namespace {

using Index = TaskGraph::Index;

std::uint64_t pieces_of(const Task& task, const Servers& servers) {
  return (task.bytes + servers.relay_bytes - 1) / servers.relay_bytes;
}

class Relays {
 public:
  Relays(const TaskGraph& graph, const Servers& servers)
      : before_(graph), servers_(servers), graph_(graph.ranks()) {
    for (std::size_t i = 1; i < graph.phases().size(); ++i) graph_.add_phase(graph.phases()[i]);
  }

  RelayedGraph build() {
    std::vector<Index> waits;
    for (Index i = 0; i < before_.size(); ++i) {
      const Task& task = before_[i];
      waits.clear();
      for (const Index awaited : before_.waits_for(i)) {
        // The one who sent it waits for its leaving, and the one who received it for its arrival.
        const bool has_sent = before_[awaited].rank == task.rank;
        waits.push_back(has_sent ? left_[awaited] : arrived_[awaited]);
      }
      if (crosses_rails(task, servers_)) {
        relay(task, waits);
      } else {
        left_.push_back(graph_.add(task, waits));
        arrived_.push_back(left_.back());
      }
    }
    return {std::move(graph_), std::move(arrived_)};
  }

 private:
  void relay(const Task& task, const std::vector<Index>& waits) {
    const std::uint32_t relay =
        servers_.rank(servers_.server_of(task.rank), servers_.gpu_of(task.peer));
    const std::uint64_t count = pieces_of(task, servers_);
    std::vector<Index> leave, arrive;
    for (std::uint64_t piece = 0; piece < count; ++piece) {
      Task first = task;
      first.peer = relay;
      first.bytes = part_of(task.bytes, piece, count);
      first.reduces = false;
      leave.push_back(graph_.add(first, waits));
      Task second = task;
      second.rank = relay;
      second.bytes = first.bytes;
      arrive.push_back(graph_.add(second, {leave.back()}));
    }
    left_.push_back(join(task.rank, task.phase, leave));
    arrived_.push_back(join(task.peer, task.phase, arrive));
  }

  // Returns a task that is over when all of these are.
  Index join(std::uint32_t rank, std::uint32_t phase, const std::vector<Index>& tasks) {
    if (tasks.size() == 1) return tasks.front();
    Task task;
    task.kind = Task::Kind::computation;
    task.rank = rank;
    task.phase = phase;
    return graph_.add(task, tasks);
  }

  const TaskGraph& before_;
  const Servers& servers_;
  TaskGraph graph_;
  std::vector<Index> left_, arrived_;  // by task before
};

}  // namespace

bool crosses_rails(const Task& task, const Servers& servers) {
  return task.is_message() && servers.is_gpu(task.rank) && servers.is_gpu(task.peer) &&
         !servers.is_scale_up(task.rank, task.peer) &&
         servers.adapter_of(task.rank) != servers.adapter_of(task.peer);
}

Result<RelayedGraph> with_relays(const TaskGraph& graph, const Servers& servers) {
  std::uint64_t tasks = graph.size();
  for (Index i = 0; i < graph.size(); ++i) {
    if (crosses_rails(graph[i], servers)) tasks += 2 * pieces_of(graph[i], servers) + 1;
  }
  if (tasks > TaskGraph::tasks_max) {
    return Error{
        fmt::format("with relays these are more than {} tasks; take fewer GPUs, shorter messages, "
                    "or a larger relay_chunk",
                    TaskGraph::tasks_max)};
  }
  return Relays(graph, servers).build();
}

}  // namespace tulle::workload
