#pragma once

// The aggregation nodes of a network's switches as endpoints of a job: fabric/aggregation.h plans
// them, and says what they represent.

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "base/time.h"

namespace tulle::workload {

// A node reduces what its children send, passes the sum on to its parent, and shares the result
// out again.
struct AggregationNode {
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
  // An adapter, and the node's port for it.
  struct Member {
    std::uint32_t host = 0;
    std::uint32_t port = 0;
  };
  std::uint32_t parent = none;       // a node that comes before this one; none: this is the root
  std::uint32_t up_port = none;      // own port for the parent
  std::uint32_t parent_port = none;  // the parent's port for this node
  std::vector<Member> members;
};

// The nodes of all trees. Nodes are counted through.
struct Aggregation {
  std::vector<AggregationNode> node;
  // Each tree has an entry, its first node, which is the root; at the end is the number of all
  // nodes. There is a tree for each adapter of a server, or none.
  std::vector<std::uint32_t> first_node;
  // The time from the last byte of what a node waits for until it is asked to send on, besides that
  // of the network: at least twice the time in which events at one host reach another.
  Time latency;
  // The rate at which a node adds what has come, all children together; 0: as fast as it comes.
  std::int64_t bits_per_second = 0;

  std::uint32_t nodes() const { return static_cast<std::uint32_t>(node.size()); }
  std::uint32_t trees() const {
    return first_node.empty() ? 0 : static_cast<std::uint32_t>(first_node.size() - 1);
  }
  // Returns the port at which a node's events happen.
  std::uint32_t home_of(std::uint32_t at) const {
    const AggregationNode& found = node[at];
    return found.parent != AggregationNode::none ? found.up_port : first_port_of_root(at);
  }
  // The two must be linked on a tree.
  std::uint32_t port_to_node(std::uint32_t at, std::uint32_t peer) const {
    return node[at].parent == peer ? node[at].up_port : node[peer].parent_port;
  }
  std::uint32_t port_to_host(std::uint32_t at, std::uint32_t host) const {
    for (const AggregationNode::Member& member : node[at].members) {
      if (member.host == host) return member.port;
    }
    return AggregationNode::none;
  }

 private:
  // A root has a member, or the node behind it as a child.
  std::uint32_t first_port_of_root(std::uint32_t root) const {
    return node[root].members.empty() ? node[root + 1].parent_port : node[root].members[0].port;
  }
};

}  // namespace tulle::workload
