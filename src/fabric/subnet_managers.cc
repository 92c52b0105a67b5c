#include "fabric/subnet_managers.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "fabric/manager_routes.h"

namespace tulle::fabric {

std::vector<std::uint32_t> parts_of(const Topology& topology) {
  std::vector<std::uint32_t> part(topology.nodes());
  std::iota(part.begin(), part.end(), 0);
  const auto root = [&](std::uint32_t node) {
    while (part[node] != node) node = part[node] = part[part[node]];
    return node;
  };
  for (const Link& link : topology.links) part[root(link.a)] = root(link.b);
  for (std::uint32_t node = 0; node < part.size(); ++node) part[node] = root(node);
  return part;
}

std::vector<std::uint32_t> places_of_managers(const Topology& topology) {
  const std::vector<std::uint32_t> part = parts_of(topology);
  std::vector<std::uint32_t> places;
  std::vector<bool> has_manager(topology.nodes());
  const auto put = [&](std::uint32_t node) {
    if (has_manager[part[node]]) return;
    has_manager[part[node]] = true;
    places.push_back(node);
  };
  for (std::uint32_t node = topology.hosts; node < topology.nodes(); ++node) put(node);
  for (std::uint32_t host = topology.hosts; host > 0; --host) put(host - 1);
  return places;
}

SubnetManagers::SubnetManagers(Time now, Subnet& subnet,
                               management::subnet::ManagerSettings settings)
    : subnet_(subnet) {
  for (const std::uint32_t node : places_of_managers(subnet.topology())) {
    if (subnet.is_elsewhere(node)) continue;
    place(now, node, settings);
    ++settings.seed;
    // Each network has its own key, unless others know it.
    const bool has_own_key = settings.ports.key != 0 && !settings.shares_keys && settings.draw;
    if (has_own_key) settings.ports.key = management::subnet::drawn_key(settings.draw);
  }
}

void SubnetManagers::place(Time now, std::uint32_t node,
                           management::subnet::ManagerSettings settings) {
  const bool is_host = subnet_.topology().is_host(node);
  const std::uint8_t port = is_host ? 1 : 0;
  settings.port_guid = subnet_.node(node).port_guid(port);
  if (!is_host) subnet_.open_switch(node);
  subnet_.set_manager(now, node, port, true);
  managers_.push_back(
      std::make_unique<Placed>(Placed{node,
                                      port,
                                      subnet_.node(node).state(port),
                                      management::subnet::Manager(now, settings, route_subnet),
                                      {}}));
}

void SubnetManagers::set_program(Time now, std::uint32_t host, bool is_manager) {
  for (const auto& each : managers_) {
    if (each->node != host) continue;
    each->manager.set_allowed(now, !is_manager);
    subnet_.set_manager(now, host, each->port, true);
  }
}

bool SubnetManagers::is_at(std::uint32_t host) const {
  return std::ranges::any_of(managers_, [host](const auto& each) {
    return each->node == host && each->manager.is_allowed();
  });
}

bool SubnetManagers::progress(Time now) {
  bool has_sent = false;
  for (const auto& each : managers_) {
    const wire::PortState state = subnet_.node(each->node).state(each->port);
    // No trap tells of the link of the manager's own adapter.
    if (state != std::exchange(each->state, state)) each->manager.want_sweep(now);
    expire_manager(now, *each);
    each->administration.follow(each->manager);
    expire_manager(now, *each);
    if (each->administration.next_timeout() <= now) each->administration.expire(now);
    has_sent = take_packets(now, *each, subnet_) || has_sent;
  }
  return has_sent;
}

void SubnetManagers::expire_manager(Time now, Placed& placed) {
  if (placed.manager.next_timeout() > now) return;
  placed.manager.expire(now, [&placed] { return placed.administration.groups().members(); });
}

bool SubnetManagers::take_packets(Time now, Placed& placed, Subnet& subnet) {
  bool has_sent = false;
  const auto send_all = [&](auto& from) {
    while (const auto packet = from.take_packet(now)) {
      subnet.send(now, placed.node, placed.port, *packet);
      has_sent = true;
    }
  };
  send_all(placed.manager);
  send_all(placed.administration);
  return has_sent;
}

void SubnetManagers::receive(Time now, const Subnet::Arrival& arrival) {
  for (const auto& each : managers_) {
    if (each->node != arrival.host || each->port != arrival.port) continue;
    if (arrival.packet.is_subnet_management()) {
      each->manager.receive(now, arrival.packet);
    } else {
      each->administration.follow(each->manager);
      each->administration.receive(now, arrival.packet);
    }
  }
}

Time SubnetManagers::next_timeout() const {
  Time next = Time::never();
  for (const auto& each : managers_) {
    next = std::min({next, each->manager.next_timeout(), each->administration.next_timeout()});
  }
  return next;
}

void SubnetManagers::rebase(Time by) {
  for (const auto& placed : managers_) {
    placed->manager.rebase(by);
    placed->administration.rebase(by);
  }
}

}  // namespace tulle::fabric
