#pragma once

// A subnet as its manager has found it: the nodes, their ports and the links between these.

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/ids.h"
#include "rdma/wire/smp.h"

namespace tulle::management::subnet {

// A directed route from the manager's node: the output port of each hop.
struct Route {
  std::uint8_t hops = 0;
  std::array<std::uint8_t, wire::hops_max + 1> ports{};  // from entry 1 on

  bool can_go_on() const { return hops < wire::hops_max; }
  Route by(std::uint8_t port) const {
    Route longer = *this;
    longer.ports[++longer.hops] = port;
    return longer;
  }
};

inline constexpr std::uint32_t no_node = std::numeric_limits<std::uint32_t>::max();

struct GraphPort {
  wire::PortInfo info;
  bool is_known = false;         // its PortInfo has come
  std::uint32_t peer = no_node;  // the node at the other end of the link
  std::uint8_t peer_port = 0;

  bool has_peer() const { return peer != no_node; }
  wire::PortState state() const {
    return static_cast<wire::PortState>(wire::lower_half(info.speed_supported_and_state));
  }
};

// A switch, or one port of an adapter: an adapter with several ports is a node for each of them,
// since each has its own LIDs and routes.
struct GraphNode {
  wire::NodeInfo info;
  wire::SwitchInfo switch_info;
  bool has_switch_info = false;
  std::string description;
  Route route;
  // A switch has its ports by number. An adapter has one entry. Entry 0 has the node's LIDs.
  std::vector<GraphPort> ports;
  // The LIDs that the manager gives to the node; 0: none. A port's PortInfo has those it has now.
  std::uint16_t lid = 0;
  std::uint8_t lmc = 0;
  // A switch's table of output ports by LID.
  std::vector<std::uint8_t> linear;

  bool is_switch() const { return info.node_type == wire::NodeInfo::switch_node; }
  // Returns the place of a port in `ports`.
  std::size_t place(std::uint8_t port) const { return is_switch() ? port : 0; }
  // Returns the number of the port at a place.
  std::uint8_t number(std::size_t place) const {
    return is_switch() ? static_cast<std::uint8_t>(place) : info.local_port;
  }
  GraphPort& end_port() { return ports[0]; }
  const GraphPort& end_port() const { return ports[0]; }
  bool has_lid(Lid wanted) const { return lid != 0 && base_of(wanted, lmc).value == lid; }
  std::uint64_t port_guid() const { return info.port_guid; }
  // Returns the place of the first port that may have a link.
  std::size_t first_link() const { return is_switch() ? 1 : 0; }
};

struct Graph {
  std::vector<GraphNode> nodes;  // the manager's own node comes first

  // Returns the port at the other end of a link, which must have one.
  const GraphPort& peer_of(const GraphPort& port) const {
    const GraphNode& node = nodes[port.peer];
    return node.ports[node.place(port.peer_port)];
  }
};

}  // namespace tulle::management::subnet
