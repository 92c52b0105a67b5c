#pragma once

// Messages between servers that keep to their rails. The GPU that sends hands a message to the GPU
// of its own server that has the peer's number, by the scale-up network, and this one sends it by
// its adapter, which is on the peer's rail. NCCL calls it PXN ("PCI x NVLink").

#include <vector>

#include "base/result.h"
#include "workload/servers.h"
#include "workload/task_graph.h"

namespace tulle::workload {

// A graph with relays, and where each task of the graph before is in it: computations, and
// messages that needed no relay. The place of a message with a relay is that of its arrival.
struct RelayedGraph {
  TaskGraph graph;
  std::vector<TaskGraph::Index> place;  // by task of the graph before
};

// Returns true if a message crosses from one rail to another between two servers.
bool crosses_rails(const Task& task, const Servers& servers);

// Adds the relays to a graph that was checked. A relayed message goes in pieces of relay_bytes, so
// that its second way begins before the first one is over. Fails with one line if there would be
// too many tasks.
Result<RelayedGraph> with_relays(const TaskGraph& graph, const Servers& servers);

}  // namespace tulle::workload
