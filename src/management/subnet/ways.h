#pragma once

// The ways of datagrams that go by directed routes (IBTA 14.2.2), as a manager sees them.

#include <cstdint>

#include "management/packet.h"
#include "management/subnet/graph.h"

namespace tulle::management::subnet {

bool goes_by_directed_route(const Packet& packet);

// Returns the route to the sender of a datagram that came by a directed route: its way back, which
// each node has written down.
Route way_back(const Packet& packet);

// Returns the node where a route from the manager's node ends, or no_node.
std::uint32_t end_of(const Graph& graph, const Route& route);

}  // namespace tulle::management::subnet
