#include "fabric/machines/placement.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/quoted.h"
#include "fabric/subnet.h"

namespace tulle::fabric {
namespace {

using Places = std::vector<std::optional<std::uint32_t>>;

Result<void> take_named(const Topology& topology, std::span<const Machine> machines,
                        Places& places) {
  std::map<std::string, std::uint32_t> by_name;
  for (std::uint32_t node = 0; node < topology.nodes(); ++node) {
    by_name[node_name(topology, node)] = node;
  }
  for (std::uint32_t number = 0; number < machines.size(); ++number) {
    for (const std::string& name : machines[number].nodes) {
      const auto found = by_name.find(name);
      if (found == by_name.end()) {
        return Error{"machine " + quoted(machines[number].name) +
                     ": the topology has no host or switch " + quoted(name)};
      }
      auto& place = places[found->second];
      if (place && *place != number) {
        return Error{"machine " + quoted(machines[number].name) + ": " + name +
                     " belongs to machine " + quoted(machines[*place].name) + " already"};
      }
      place = number;
    }
  }
  return {};
}

// Returns the place of most hosts at a switch's ports; without hosts, that of all switches at its
// ports that have one. Returns nothing if no node has one, or if the switches are not all at one.
std::optional<std::uint32_t> place_of_neighbours(const Topology& topology, const Wiring& wiring,
                                                 std::uint32_t node, const Places& places) {
  std::map<std::uint32_t, std::uint32_t> hosts, switches;
  for (std::uint16_t port = 0; port < topology.ports[node]; ++port) {
    const Wiring::Peer& peer = wiring.peer(node, port);
    if (peer.link == Wiring::no_link || !places[peer.node]) continue;
    ++(topology.is_host(peer.node) ? hosts : switches)[*places[peer.node]];
  }
  if (hosts.empty()) {
    return switches.size() == 1 ? std::optional(switches.begin()->first) : std::nullopt;
  }
  const auto fewer = [](const auto& a, const auto& b) { return a.second < b.second; };
  return std::ranges::max_element(hosts, fewer)->first;
}

// Gives a place to each node that has none.
std::vector<std::uint32_t> fill(const Topology& topology, std::uint32_t count, Places places) {
  std::vector<std::uint32_t> unplaced;
  for (std::uint32_t host = 0; host < topology.hosts; ++host) {
    if (!places[host]) unplaced.push_back(host);
  }
  for (std::size_t i = 0; i < unplaced.size(); ++i) {
    places[unplaced[i]] = static_cast<std::uint32_t>(i * count / unplaced.size());
  }
  const Wiring wiring(topology);
  std::uint32_t turn = 0;
  for (std::uint32_t node = topology.hosts; node < topology.nodes(); ++node) {
    if (!places[node]) places[node] = place_of_neighbours(topology, wiring, node, places);
    if (!places[node]) places[node] = turn++ % count;
  }
  std::vector<std::uint32_t> out;
  out.reserve(places.size());
  for (const auto& each : places) out.push_back(*each);
  return out;
}

}  // namespace

Result<std::vector<std::uint32_t>> place(const Topology& topology,
                                         std::span<const Machine> machines) {
  Places places(topology.nodes());
  if (auto taken = take_named(topology, machines, places); !taken) return taken.error();
  return fill(topology, static_cast<std::uint32_t>(machines.size()), std::move(places));
}

std::vector<std::uint32_t> divide(const Topology& topology, std::uint32_t parts) {
  return fill(topology, parts, Places(topology.nodes()));
}

}  // namespace tulle::fabric
