#pragma once

// Aggregation trees: switches that reduce what their hosts send, after NVIDIA's SHARP (Graham et
// al., "Scalable Hierarchical Aggregation Protocol (SHArP)", COM-HPC 2016, and "SHARP
// Streaming-Aggregation Hardware Design and Evaluation", ISC 2020).
//
// A switch on a tree has an aggregation node. The node is an endpoint like an adapter: it ends the
// reliable connections of its children and of its parent. For each of them it has a port inside of
// the switch, with the rate of the link by which they come, so that it takes data as fast as all
// its children can send. A port is a host of the topology, behind the adapters.

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/result.h"
#include "fabric/topology.h"

namespace tulle::fabric {

struct AggregationTree {
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
  // A host that sends to a node, and the node's port for it.
  struct Member {
    std::uint32_t host = 0;
    std::uint32_t port = 0;
  };
  struct Node {
    std::uint32_t switch_node = 0;
    std::uint32_t parent = none;       // index of a node; none: this is the root
    std::uint32_t up_port = none;      // own port for the parent
    std::uint32_t parent_port = none;  // the parent's port for this node
    std::vector<Member> members;
  };
  std::vector<Node> nodes;  // children come behind their parents
};

// Plans a tree for each group of hosts, and adds its ports to the topology. `delay` is that of the
// links inside of the switches. A tree's root is a switch with the least hops to the farthest leaf;
// the trees take such switches round robin. A tree has one node at most in each switch, and its
// edges are links.
// Returns an error if a group's hosts have no switch in common.
Result<std::vector<AggregationTree>> add_aggregation_trees(
    Topology& topology, std::span<const std::vector<std::uint32_t>> groups, Time delay);

}  // namespace tulle::fabric
