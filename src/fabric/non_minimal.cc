#include "fabric/non_minimal.h"

#include <algorithm>
#include <variant>

#include "base/check.h"
#include "fabric/switch.h"
#include "rdma/port/frame.h"

namespace tulle::fabric {

GroupRoutes::GroupRoutes(const Topology& topology, const Routes& routes)
    : routes_(&routes), hosts_(topology.hosts), leaves_(routes.leaves()) {
  const auto* shape = std::get_if<DragonflyShape>(&topology.shape);
  TULLE_CHECK(shape != nullptr && shape->groups <= groups_max);
  TULLE_CHECK(routes.kind() == RoutingKind::dragonfly_minimal);
  groups_ = shape->groups;
  routers_per_group_ = shape->routers_per_group;
  const Wiring wiring(topology);
  find_ways(wiring, topology);
  count_hops(wiring);
}

void GroupRoutes::find_ways(const Wiring& wiring, const Topology& topology) {
  // The destinations of each switch's global links.
  struct Global {
    std::uint16_t port = 0;
    std::uint32_t to = 0;
  };
  std::vector<std::vector<Global>> globals(topology.switches);
  const auto visit_links = [&](std::uint32_t node, auto visit) {
    for (std::uint32_t port = 0; port < topology.ports[node]; ++port) {
      const auto number = static_cast<std::uint16_t>(port);
      const Wiring::Peer& peer = wiring.peer(node, number);
      if (peer.link == Wiring::no_link || topology.is_host(peer.node)) continue;
      visit(number, peer.node, group_of(peer.node) != group_of(node));
    }
  };
  for (std::uint32_t node = hosts_; node < topology.nodes(); ++node) {
    visit_links(node, [&](std::uint16_t port, std::uint32_t to, bool is_global) {
      if (is_global) globals[node - hosts_].push_back({port, to});
    });
  }
  for (std::uint32_t node = hosts_; node < topology.nodes(); ++node) {
    for (std::uint32_t group = 0; group < groups_; ++group) {
      first_.push_back(static_cast<std::uint32_t>(ports_.size()));
      if (group == group_of(node)) continue;
      for (const Global& link : globals[node - hosts_]) {
        if (group_of(link.to) != group) continue;
        ports_.push_back(link.port);
        entries_.push_back({link.to, 1});
      }
      if (ports_.size() > first_.back()) continue;
      visit_links(node, [&](std::uint16_t port, std::uint32_t to, bool is_global) {
        if (is_global) return;
        const auto found = std::ranges::find_if(
            globals[to - hosts_], [&](const Global& link) { return group_of(link.to) == group; });
        if (found == globals[to - hosts_].end()) return;
        ports_.push_back(port);
        entries_.push_back({found->to, 2});
      });
    }
  }
  first_.push_back(static_cast<std::uint32_t>(ports_.size()));
}

void GroupRoutes::count_hops(const Wiring& wiring) {
  const std::size_t switches = first_.size() / groups_;
  hops_.resize(switches * leaves_);
  for (std::uint32_t number = 0; number < switches; ++number) {
    for (std::uint32_t leaf = 0; leaf < leaves_; ++leaf) {
      std::uint32_t node = hosts_ + number;
      std::uint8_t hops = 0;
      while (node != routes_->leaf_node(leaf)) {
        const auto ports = routes_->towards(node, leaf);
        if (ports.empty()) break;  // at a switch that no packet passes
        node = wiring.peer(node, ports.front()).node;
        ++hops;
      }
      hops_[number * std::size_t{leaves_} + leaf] = hops;
    }
  }
}

std::size_t GroupRoutes::bytes() const {
  const auto of = [](const auto& vector) { return vector.capacity() * sizeof(vector[0]); };
  return of(first_) + of(ports_) + of(entries_) + of(hops_);
}

std::span<const std::uint16_t> NonMinimalRouting::ways(Switch& at, std::uint32_t switch_node,
                                                       bool from_host, port::Frame& frame,
                                                       std::uint16_t& chosen_port) const {
  const std::uint32_t group = groups_.group_of(switch_node);
  const Routes& routes = groups_.routes();
  if (frame.via == group + 1) frame.via = 0;
  if (!from_host) {
    if (frame.via != 0) return groups_.towards(switch_node, frame.via - 1);
    return routes.candidates(switch_node, frame.destination);
  }
  const std::uint32_t destination_group =
      groups_.group_of(routes.leaf_node(routes.leaf_of(frame.destination)));
  if (!may_detour(group, destination_group)) {
    return routes.candidates(switch_node, frame.destination);
  }
  const Way minimal = best_minimal(at, switch_node, frame);
  const Way detour = best_detour(at, switch_node, frame, destination_group);
  const bool is_forced = settings_.choice == NonMinimalSettings::Choice::valiant;
  const Way& chosen = is_forced || detour.cost < minimal.cost ? detour : minimal;
  frame.via = chosen.via;
  chosen_port = chosen.port;
  return {&chosen_port, 1};
}

bool NonMinimalRouting::may_detour(std::uint32_t group, std::uint32_t destination_group) const {
  return group != destination_group && groups_.groups() > 2;
}

NonMinimalRouting::Way NonMinimalRouting::best_minimal(Switch& at, std::uint32_t switch_node,
                                                       const port::Frame& frame) const {
  const auto ports = groups_.routes().candidates(switch_node, frame.destination);
  const std::uint64_t hops = groups_.hops(switch_node, frame.destination);
  const std::size_t first = ports.size() == 1 ? 0 : at.draw(ports.size());
  const std::size_t count = std::min<std::size_t>(settings_.minimal_candidates, ports.size());
  Way best;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint16_t port = ports[(first + i) % ports.size()];
    const std::uint64_t cost = at.port(port).queue_bytes() * hops;
    if (cost < best.cost) best = {port, 0, cost};
  }
  return best;
}

// Each candidate is a group drawn at random and one of the ways to it.
NonMinimalRouting::Way NonMinimalRouting::best_detour(Switch& at, std::uint32_t switch_node,
                                                      const port::Frame& frame,
                                                      std::uint32_t destination_group) const {
  const std::uint32_t group = groups_.group_of(switch_node);
  Way best;
  for (std::uint32_t i = 0; i < settings_.candidates; ++i) {
    auto via = static_cast<std::uint32_t>(at.draw(groups_.groups() - 2));
    if (via >= std::min(group, destination_group)) ++via;
    if (via >= std::max(group, destination_group)) ++via;
    const auto ports = groups_.towards(switch_node, via);
    if (ports.empty()) continue;
    const std::size_t n = ports.size() == 1 ? 0 : at.draw(ports.size());
    const std::uint64_t hops = groups_.hops(switch_node, via, n, frame.destination);
    const std::uint64_t cost = at.port(ports[n]).queue_bytes() * hops + settings_.bias_bytes;
    if (cost < best.cost) best = {ports[n], static_cast<std::uint8_t>(via + 1), cost};
  }
  return best;
}

}  // namespace tulle::fabric
