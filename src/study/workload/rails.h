#pragma once

// Messages between servers that keep to their rails. The GPU that sends hands a message to the GPU
// of the same server that has the peer's number, by the scale-up network, and this one sends it by
// its adapter, which is on the peer's rail. NCCL calls it PXN ("PCI x NVLink").

#include <vector>

#include "base/result.h"
#include "study/workload/servers.h"
#include "study/workload/task_graph.h"

namespace tulle::workload {

// A graph with relays, and where each task of the graph before is in it: computations, and
// messages that needed no relay. The place of a message with a relay is that of its arrival.
struct RelayedGraph {
  TaskGraph graph;
  std::vector<TaskGraph::Index> place;  // by task of the graph before
};

// Looks up where tasks of a graph are once it has relays. Without relays they are where they were.
struct TaskPlaces {
  std::vector<TaskGraph::Index> place;  // RelayedGraph::place; empty: there are no relays

  TaskGraph::Index of(TaskGraph::Index task) const { return place.empty() ? task : place[task]; }
  // Returns the tasks of a range, with their relays. Relays precede the place of their task.
  TaskRange of(const TaskRange& range) const { return {end_of(range.first), end_of(range.end)}; }

 private:
  TaskGraph::Index end_of(TaskGraph::Index tasks) const {
    return tasks == 0 ? 0 : of(tasks - 1) + 1;
  }
};

// Returns true if a message crosses from one rail to another between two servers.
bool crosses_rails(const Task& task, const Servers& servers);

// Adds the relays to a graph that was checked. A relayed message goes in pieces of relay_bytes, so
// that its second way begins before the first one is over. Fails with one line if there would be
// too many tasks.
Result<RelayedGraph> with_relays(const TaskGraph& graph, const Servers& servers);

}  // namespace tulle::workload
