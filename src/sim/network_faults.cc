// The plans of a network's faults. All are made before the first event. A change of a link is an
// event at each end, and a change of routes is an event at each switch, so that nodes that take
// turns never see the changes of another node too early.

#include <algorithm>
#include <vector>

#include "sim/network.h"

namespace tulle::sim {

void Network::plan_faults(const fabric::Topology& topology) {
  nodes_.port_faults.resize(nodes_.ends.size());
  for (PortFaults& faults : nodes_.port_faults)
    faults.bit_error_rate = nodes_.settings.bit_error_rate;
  plan_outages(topology);
  plan_bit_errors(topology);
  plan_slow_hosts();
}

void Network::plan_outages(const fabric::Topology& topology) {
  std::vector<fabric::Outage> outages = fabric::merged(nodes_.settings.faults.outages);
  std::ranges::reverse(outages);
  for (const fabric::Outage& outage : outages) {
    const fabric::Link& link = topology.links[outage.link];
    for (const auto& [node, port] : {std::pair{link.a, link.a_port}, {link.b, link.b_port}}) {
      nodes_.port_faults[nodes_.end_index(node, port)].downs.push_back(outage.from.ps);
      plan_action(outage.from, node, port, {.kind = FaultAction::Kind::go_down});
      plan_action(outage.until, node, port, {.kind = FaultAction::Kind::come_up});
    }
  }
}

void Network::plan_bit_errors(const fabric::Topology& topology) {
  using enum FaultAction::Kind;
  for (const BitErrors& errors : nodes_.settings.faults.bit_errors) {
    const fabric::Link& link = topology.links[errors.link];
    for (const auto& [node, port] : {std::pair{link.a, link.a_port}, {link.b, link.b_port}}) {
      plan_action(errors.from, node, port, {.kind = bit_errors, .bit_error_rate = errors.rate});
      plan_action(errors.until, node, port,
                  {.kind = bit_errors, .bit_error_rate = nodes_.settings.bit_error_rate});
    }
  }
}

void Network::plan_slow_hosts() {
  using enum FaultAction::Kind;
  std::vector<bool> is_slow(nodes_.places.size());
  for (const SlowHost& slow : nodes_.settings.faults.slow_hosts) is_slow[slow.host] = true;
  nodes_.ends.for_each([&](LinkEnd& end) {
    if (is_slow[end.peer]) end.arrives_as = EventKind::slow_arrival;
  });
  for (const SlowHost& slow : nodes_.settings.faults.slow_hosts) {
    if (owns(slow.host)) {
      nodes_.hosts[slow.host].intake = std::make_unique<Intake>(slow.buffer_bytes);
    }
    plan_action(slow.from, slow.host, 0,
                {.kind = slow_down, .bits_per_second = slow.bits_per_second});
    plan_action(slow.until, slow.host, 0, {.kind = recover});
  }
}

void Network::follow(const fabric::Recovery& recovery) {
  using enum FaultAction::Kind;
  TULLE_CHECK(!has_begun());
  if (recovery.route_changes.empty() && recovery.avoidances.empty()) return;
  nodes_.switches.for_each([](fabric::Switch& at) { at.expect_recovery(); });
  for (const fabric::PortAvoidance& change : recovery.avoidances) {
    plan_action(change.at, change.node, change.port,
                {.kind = change.is_avoided ? avoid : stop_avoiding});
  }
  for (const fabric::RouteChange& change : recovery.route_changes) {
    plan_action(change.at, change.node, 0,
                {.kind = reroute, .routes = &recovery.versions[change.version]});
  }
}

// Plans an action. Actions of one time and port happen in the order in which they are planned.
void Network::plan_action(Time at, std::uint32_t node, std::uint16_t port,
                          const FaultAction& action) {
  if (at.is_never() || !owns(node)) return;
  part_of(node).plan(at.ps, nodes_.end(node, port), EventKind::fault,
                     static_cast<std::uint32_t>(nodes_.fault_actions.size()));
  nodes_.fault_actions.push_back(action);
}

FaultTotals Network::fault_totals() const {
  FaultTotals totals;
  for (const auto& part : parts_) totals.last_loss = std::max(totals.last_loss, part->last_loss());
  nodes_.ends.for_each([&](const LinkEnd& end) {
    totals.frames += end.port->counters().lost;
    totals.bytes += end.port->counters().lost_bytes;
    totals.unrouted += end.port->counters().unrouted;
  });
  nodes_.switches.for_each([&](const fabric::Switch& at) {
    totals.last_loss = std::max(totals.last_loss, at.last_loss());
  });
  return totals;
}

}  // namespace tulle::sim
