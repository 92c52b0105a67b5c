// Faults of a network. All are planned before the first event. A change of a link is an event at
// each end, and a change of routes is an event at each switch, so that nodes that take turns never
// see the changes of another node too early.
//
// The sender knows when its link will go down, and so whether a frame arrives in time. A frame on
// which the receiver has not acted by then is lost. An Ethernet frame that was cut off has a wrong
// check sequence (IEEE 802.3 clause 4.2.4.1.2), and InfiniBand drops what a port holds when it
// leaves the active state (IBTA 7.2). Frames that wait for a port are lost with its link, as
// Ethernet switches flush the queue of a port without a link, and InfiniBand switches drop the
// packets that they cannot send (IBTA 18.2.5.4). Packets in an adapter belong to the transport and
// keep waiting.

#include <algorithm>

#include "base/power.h"
#include "sim/network.h"

namespace tulle::sim {

using fabric::Control;
using fabric::FlowControl;
using fabric::Frame;
using fabric::FrameRef;
using fabric::no_frame;

// --- plans ---

Time Faults::first() const {
  Time first = Time::never();
  for (const fabric::Outage& outage : outages) first = std::min(first, outage.from);
  for (const BitErrors& errors : bit_errors) first = std::min(first, errors.from);
  for (const SlowHost& slow : slow_hosts) first = std::min(first, slow.from);
  return first;
}

void Network::plan_faults(const fabric::Topology& topology) {
  port_faults_.resize(ports_.size());
  for (PortFaults& faults : port_faults_) faults.bit_error_rate = settings_.bit_error_rate;
  plan_outages(topology);
  plan_bit_errors(topology);
  plan_slow_hosts();
}

void Network::plan_outages(const fabric::Topology& topology) {
  std::vector<fabric::Outage> outages = fabric::merged(settings_.faults.outages);
  disturbed_ = disturbed_ || !outages.empty();
  std::ranges::reverse(outages);
  for (const fabric::Outage& outage : outages) {
    const fabric::Link& link = topology.links[outage.link];
    for (const auto& [node, port] : {std::pair{link.a, link.a_port}, {link.b, link.b_port}}) {
      port_faults_[port_index(node, port)].downs.push_back(outage.from.ps);
      plan_action(outage.from, node, port, {.kind = FaultAction::Kind::go_down});
      plan_action(outage.until, node, port, {.kind = FaultAction::Kind::come_up});
    }
  }
}

void Network::plan_bit_errors(const fabric::Topology& topology) {
  using enum FaultAction::Kind;
  for (const BitErrors& errors : settings_.faults.bit_errors) {
    disturbed_ = true;
    const fabric::Link& link = topology.links[errors.link];
    for (const auto& [node, port] : {std::pair{link.a, link.a_port}, {link.b, link.b_port}}) {
      plan_action(errors.from, node, port, {.kind = bit_errors, .bit_error_rate = errors.rate});
      plan_action(errors.until, node, port,
                  {.kind = bit_errors, .bit_error_rate = settings_.bit_error_rate});
    }
  }
}

void Network::plan_slow_hosts() {
  using enum FaultAction::Kind;
  for (const SlowHost& slow : settings_.faults.slow_hosts) {
    hosts_[slow.host].intake = std::make_unique<Intake>(slow.buffer_bytes);
    const Port& port = ports_[port_index(slow.host, 0)];
    ports_[port_index(port.peer, port.peer_port)].arrives_as = slow_arrival;
    plan_action(slow.from, slow.host, 0,
                {.kind = slow_down, .bits_per_second = slow.bits_per_second});
    plan_action(slow.until, slow.host, 0, {.kind = recover});
  }
}

void Network::follow(const fabric::Recovery& recovery) {
  using enum FaultAction::Kind;
  TULLE_CHECK(turn_ == Rounds::no_node && events_ == 0);
  if (recovery.route_changes.empty() && recovery.avoidances.empty()) return;
  detours_.resize(switches_.size());
  for (Detour& detour : detours_) detour.routes = &routes_;
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
  if (at.is_never()) return;
  plan(at.ps, node, port, fault, static_cast<std::uint32_t>(fault_actions_.size()));
  fault_actions_.push_back(action);
}

void Network::handle_fault(std::uint32_t node, std::uint16_t port, const FaultAction& action) {
  switch (action.kind) {
    case FaultAction::Kind::go_down:
      return go_down(node, port);
    case FaultAction::Kind::come_up:
      return come_up(node, port);
    case FaultAction::Kind::bit_errors:
      port_faults_[port_index(node, port)].bit_error_rate = action.bit_error_rate;
      return;
    case FaultAction::Kind::slow_down:
      hosts_[node].intake->slow_down(action.bits_per_second);
      return update_asking(node);
    case FaultAction::Kind::recover:
      hosts_[node].intake->recover();
      update_asking(node);
      return begin_taking_in(node);
    case FaultAction::Kind::reroute:
      detours_[node - hosts()].routes = action.routes;
      return;
    case FaultAction::Kind::avoid:
      detours_[node - hosts()].avoided.push_back(port);
      return;
    case FaultAction::Kind::stop_avoiding:
      std::erase(detours_[node - hosts()].avoided, port);
      return;
  }
}

// --- links ---

void Network::go_down(std::uint32_t node, std::uint16_t number) {
  const std::size_t index = port_index(node, number);
  ports_[index].waits_for |= its_link;
  port_faults_[index].downs.pop_back();
  if (is_host(node)) {
    Host& host = hosts_[node];
    host.pause.reset(now_);
    host.counters.paused_ps = host.pause.paused(now_).ps;
    host.untold = 0;
  } else {
    for (FrameRef ref = switches_[node - hosts()].take_down(now_, number); ref != no_frame;) {
      const FrameRef next = frames_[ref].next;
      let_go(node, ref);
      ref = next;
    }
    kick_talkers(node);
  }
  if (on_link_change_) on_link_change_({now_, node, number, false});
}

void Network::come_up(std::uint32_t node, std::uint16_t number) {
  Port& port = ports_[port_index(node, number)];
  port.waits_for = static_cast<std::uint8_t>(port.waits_for & ~its_link);
  if (!is_host(node)) {
    switches_[node - hosts()].bring_up(number);
  } else if (settings_.switches.flow_control == FlowControl::credits) {
    restart_credits(hosts_[node]);
  } else if (hosts_[node].intake != nullptr && hosts_[node].intake->is_asking()) {
    hosts_[node].untold = settings_.switches.lossless_classes;
  }
  if (on_link_change_) on_link_change_({now_, node, number, true});
  kick(node, number);
}

void Network::restart_credits(Host& host) {
  host.senders.fill({});
  for (fabric::CreditReceiver& receiver : host.receivers) receiver.restart();
  host.untold = 0xFF;
}

// Applies bit errors and the failure of the link to a frame. Returns true if it never arrives.
bool Network::disturb(std::uint32_t node, std::uint16_t port, Frame& frame, std::int64_t arrives) {
  const bool has_faults = !port_faults_.empty();
  const double rate =
      has_faults ? port_faults_[port_index(node, port)].bit_error_rate : settings_.bit_error_rate;
  const bool is_lost = settings_.lose_every > 0 && is_to_lose(node, frame);
  if (is_lost || (rate > 0 && is_damaged(node, frame.buffer_bytes, rate))) {
    frame.damaged = 1;
    ++sending_counters(node, port).damaged;
  }
  if (!has_faults || !goes_down_by(node, port, arrives)) return false;
  lose_on_link(node, port, frame);
  return true;
}

bool Network::goes_down_by(std::uint32_t node, std::uint16_t port, std::int64_t arrives) const {
  const PortFaults& faults = port_faults_[port_index(node, port)];
  return !faults.downs.empty() && faults.downs.back() <= arrives;
}

// True if a frame has a wrong bit at the other end. The probability is 1 - (1 - p)^bits.
bool Network::is_damaged(std::uint32_t node, std::uint32_t bytes, double bit_error_rate) {
  const double whole = power(1 - bit_error_rate, std::int64_t{bytes} * 8);
  return !noise_[node].chance(whole);
}

bool Network::is_to_lose(std::uint32_t node, const Frame& frame) {
  if (!is_host(node) || frame.payload_bytes == 0) return false;
  if (++hosts_[node].since_lost < settings_.lose_every) return false;
  hosts_[node].since_lost = 0;
  return true;
}

void Network::lose_on_link(std::uint32_t node, std::uint16_t port, const Frame& frame) {
  fabric::PortCounters& counters = sending_counters(node, port);
  ++counters.lost;
  counters.lost_bytes += frame.buffer_bytes;
  last_loss_ = std::max(last_loss_, Time{port_faults_[port_index(node, port)].downs.back()});
}

// --- switches ---

// Does the work of arrive_at_switch() where each switch has separate routes and knows of dead
// ports.
void Network::arrive_by_detour(std::uint32_t node, std::uint16_t in_port, FrameRef ref) {
  fabric::Switch& at = switches_[node - hosts()];
  const Detour& detour = detours_[node - hosts()];
  Frame& frame = frames_[ref];
  ways_.clear();
  const auto offer = [&](std::uint16_t port) {
    if (port == fabric::Routes::no_port || std::ranges::count(detour.avoided, port) > 0) return;
    ways_.push_back(port);
  };
  const bool by_table = settings_.link_layer == LinkLayer::infiniband &&
                        settings_.switches.path_choice == fabric::PathChoice::flow;
  if (by_table) {
    offer(detour.routes->port(node, frame.destination, frame.path));
  } else {
    std::ranges::for_each(detour.routes->candidates(node, frame.destination), offer);
  }
  std::uint16_t out_port = fabric::Switch::no_port;
  if (ways_.empty()) {
    at.drop_unrouted(now_, in_port, frame);
  } else {
    out_port = at.receive(now_, in_port, ref, ways_);
  }
  end_arrival(node, ref, out_port);
}

// Gives up a frame that a switch has dropped.
void Network::let_go(std::uint32_t node, FrameRef ref) {
  if (on_loss_) [[unlikely]]
    on_loss_({now_, node, &frames_[ref]});
  frames_.give(ref);
}

FaultTotals Network::fault_totals() const {
  FaultTotals totals;
  totals.last_loss = last_loss_;
  for (const Port& port : ports_) {
    totals.frames += counters(port.node, port.number).lost;
    totals.bytes += counters(port.node, port.number).lost_bytes;
    totals.unrouted += counters(port.node, port.number).unrouted;
  }
  for (const fabric::Switch& at : switches_) {
    totals.last_loss = std::max(totals.last_loss, at.last_loss());
  }
  return totals;
}

// --- slow hosts ---

void Network::arrive_at_slow_host(std::uint32_t number, FrameRef ref) {
  Host& host = hosts_[number];
  const Frame& frame = frames_[ref];
  if (frame.damaged != 0) return discard(number, 0, ref);
  const FlowControl flow_control = settings_.switches.flow_control;
  if (flow_control == FlowControl::credits) {
    host.receivers[frame.service_class].received(frame.buffer_bytes);
  } else {
    const bool may_lose = flow_control == FlowControl::none || host.intake->has_given_up();
    if (may_lose && !host.intake->has_room(frame.buffer_bytes)) {
      ++host.counters.lost;
      host.counters.lost_bytes += frame.buffer_bytes;
      last_loss_ = std::max(last_loss_, now_);
      return frames_.give(ref);
    }
  }
  host.intake->push(frames_, ref);
  update_asking(number);
  begin_taking_in(number);
}

void Network::begin_taking_in(std::uint32_t number) {
  Intake& intake = *hosts_[number].intake;
  if (intake.is_taking || intake.is_stuck() || intake.empty()) return;
  intake.is_taking = true;
  plan((now_ + intake.time_of_first(frames_)).ps, number, 0, taken_in, 0);
}

void Network::end_taking_in(std::uint32_t number) {
  Intake& intake = *hosts_[number].intake;
  intake.is_taking = false;
  if (!intake.is_stuck() && !intake.empty()) take_in_next(number);
  update_asking(number);
  begin_taking_in(number);
  attend(number);
}

void Network::take_in_next(std::uint32_t number) {
  Host& host = hosts_[number];
  const FrameRef ref = host.intake->pop(frames_);
  const Frame& frame = frames_[ref];
  hand_over(number, ref);
  if (settings_.switches.flow_control == FlowControl::credits) free_memory(host, frame);
  frames_.give(ref);
}

// Stops or resumes the neighbour as the intake asks.
void Network::update_asking(std::uint32_t number) {
  if (settings_.switches.flow_control != FlowControl::pfc) return;
  Host& host = hosts_[number];
  if (!host.intake->update(now_)) return;
  host.untold = settings_.switches.lossless_classes;
  if (host.intake->is_asking() && settings_.host.watchdog > Time::zero()) {
    Port& port = ports_[port_index(number, 0)];
    plan_once(port.watchdog_planned, now_ + settings_.host.watchdog, number, 0, watchdog);
  }
  kick(number, 0);
}

Control Network::pull_host_control(Host& host) const {
  Control control;
  control.kind = Control::Kind::pause;
  (host.intake->is_asking() ? control.pause.stop : control.pause.go) = host.untold;
  host.untold = 0;
  return control;
}

// Runs the adapter's watchdog. Once it trips, the adapter's pauses run out (Guo et al., SIGCOMM
// 2016, section 4.3).
void Network::watch_host(std::uint32_t number) {
  Host& host = hosts_[number];
  if (!host.intake->is_asking()) return;
  const Time due = host.intake->asking_since() + settings_.host.watchdog;
  if (due <= now_) {
    host.intake->give_up();
    host.untold = 0;
    ++host.counters.watchdog_trips;
  } else {
    plan_once(ports_[port_index(number, 0)].watchdog_planned, due, number, 0, watchdog);
  }
}

// --- frames that stand at the head of a queue too long ---

Time Network::head_lifetime(const Port& port) const {
  const fabric::SwitchSettings& switches = settings_.switches;
  return is_host(port.peer) ? switches.leaf_head_lifetime : switches.head_lifetime;
}

// Plans a check of the heads of a port's queues, because a frame waits there.
void Network::plan_head_watch(std::uint32_t node, std::uint16_t number) {
  Port& port = ports_[port_index(node, number)];
  const Time lifetime = head_lifetime(port);
  if (lifetime == Time::zero()) return;
  plan_once(port.watchdog_planned, now_ + lifetime, node, number, watchdog);
}

// Discards frames that have stood at the head of a queue too long, and plans the next check for the
// earliest time at which another may have.
void Network::watch_heads(std::uint32_t node, std::uint16_t number) {
  Port& port = ports_[port_index(node, number)];
  const Time next = switches_[node - hosts()].discard_heads(now_, number, head_lifetime(port));
  if (!next.is_never()) plan_once(port.watchdog_planned, next, node, number, watchdog);
  kick(node, number);
  kick_talkers(node);
}

}  // namespace tulle::sim
