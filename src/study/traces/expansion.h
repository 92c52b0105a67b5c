#pragma once

// Turns the units of a trace, in their order, into tasks.

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "study/traces/matching.h"
#include "study/traces/order.h"
#include "study/traces/trace.h"

namespace tulle::traces {

// Returns the servers of a group as a collective sees them, which then has the ranks 0, 1, … If
// each server has as many of its ranks as the others, they are servers of so many GPUs, and of the
// adapters of these. Otherwise each rank is a server.
workload::Servers shape_of(std::span<const std::uint32_t> group, const workload::Servers& servers);

class Expansion {
 public:
  Expansion(const Trace& trace, const Matching& matching, const Order& order,
            const workload::Servers& servers);

  // The error names the node whose tasks are too many, or whose collective cannot be done.
  Result<workload::TaskGraph> expand();

 private:
  using Index = Trace::Index;
  using Task = workload::TaskGraph::Index;
  static constexpr Task none = std::numeric_limits<Task>::max();
  struct Cached {
    workload::Collective collective;
    std::uint64_t bytes;
    std::uint32_t group;
    auto operator<=>(const Cached&) const = default;
  };

  Result<void> add_unit(std::uint32_t unit);
  Result<void> add_collective(std::span<const Index> calls);
  Result<const workload::TaskGraph*> messages_of(std::span<const Index> calls);
  void add_messages(std::span<const Index> calls, const workload::TaskGraph& messages);
  void end_collective(std::span<const Index> calls, const workload::TaskGraph& messages,
                      Task first);
  std::vector<Task> waits_of(Index node) const;
  Task join(std::uint32_t rank, const std::vector<Task>& tasks);
  workload::Task task_of(const Node& node);
  std::uint32_t phase(std::size_t number, std::string_view name);
  Result<void> check_room(Index node, double more) const;

  const Trace& trace_;
  const Matching& matching_;
  const Order& order_;
  const workload::Servers& servers_;
  workload::TaskGraph graph_;
  std::vector<Task> starts_;  // by node: what its beginning waits for; none: nothing
  std::vector<Task> ends_;    // by node: the task with which it ends; none: with the beginning
  std::vector<bool> start_is_awaited_;  // by node
  // By computation, message, and the collectives: the phase; 0: there is none yet.
  std::array<std::uint32_t, 2 + workload::collective_names.size()> phases_{};
  // The last collective's messages, since a trace often repeats it.
  Cached cached_{};
  std::unique_ptr<workload::TaskGraph> cached_messages_;
};

}  // namespace tulle::traces
