#pragma once

// A fabric that is spread over machines: each machine's process has some of the nodes.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "fabric/topology.h"

namespace tulle::fabric {

struct Machine {
  std::string name;
  std::string address;  // of its process: an IP address, with or without a UDP port
  // The names of nodes, such as "h3" and "leaf1" (node_name). Nodes that no machine names are
  // divided among all machines.
  std::vector<std::string> nodes;
};

// A machine's number takes 8 bits of the numbers of multicast packets
// (fabric/subnet_traffic.h).
inline constexpr std::size_t machines_max = 256;

// Returns the machine of each node, or an error for a person if a machine names a node that is not
// there, or that another one has.
//
// The hosts that no machine names are divided in their order, so that each machine has about the
// same number. A switch is where most of the hosts at its ports are. A switch without hosts, such
// as a pod's, joins its neighbours' machine if all neighbours placed so far, in the order of nodes,
// have the same one; otherwise it goes to the next machine, round robin.
Result<std::vector<std::uint32_t>> place(const Topology& topology,
                                         std::span<const Machine> machines);

// Divides all nodes by the same rules into so many parts, at least 1. Returns the part of each.
std::vector<std::uint32_t> divide(const Topology& topology, std::uint32_t parts);

}  // namespace tulle::fabric
