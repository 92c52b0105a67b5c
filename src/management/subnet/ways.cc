#include "management/subnet/ways.h"

#include <algorithm>
#include <cstddef>

#include "management/subnet/header.h"

namespace tulle::management::subnet {

bool goes_by_directed_route(const Packet& packet) {
  return header_of(packet.mad).management_class == wire::subnet_directed_class;
}

Route way_back(const Packet& packet) {
  const unsigned hops =
      std::min<unsigned>(wire::hop_count_of(header_of(packet.mad).class_specific), wire::hops_max);
  Route route;
  route.hops = static_cast<std::uint8_t>(hops);
  for (unsigned hop = 1; hop <= hops; ++hop) {
    route.ports[hop] =
        std::to_integer<std::uint8_t>(packet.mad[wire::return_path_offset + hops + 1 - hop]);
  }
  return route;
}

std::uint32_t end_of(const Graph& graph, const Route& route) {
  if (graph.nodes.empty()) return no_node;
  std::uint32_t at = 0;
  for (unsigned hop = 1; hop <= route.hops; ++hop) {
    const GraphNode& node = graph.nodes[at];
    const std::size_t place = node.place(route.ports[hop]);
    const bool is_there = place < node.ports.size() && place >= node.first_link();
    if (!is_there || !node.ports[place].has_peer()) return no_node;
    at = node.ports[place].peer;
  }
  return at;
}

}  // namespace tulle::management::subnet
