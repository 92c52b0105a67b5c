// Faults of the nodes of a part (planned in network_faults.cc).
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
#include "sim/part.h"

namespace tulle::sim {

using port::FlowControl;
using port::Frame;
using port::FrameRef;
using port::no_frame;

void Part::handle_fault(std::uint32_t node, std::uint16_t port, const FaultAction& action) {
  switch (action.kind) {
    case FaultAction::Kind::go_down:
      return go_down(node, port);
    case FaultAction::Kind::come_up:
      return come_up(node, port);
    case FaultAction::Kind::bit_errors:
      faults_of(end_of(node, port)).bit_error_rate = action.bit_error_rate;
      return;
    case FaultAction::Kind::slow_down:
      hosts_[node].intake->slow_down(action.bits_per_second);
      return update_asking(node);
    case FaultAction::Kind::recover:
      hosts_[node].intake->recover();
      update_asking(node);
      return begin_taking_in(node);
    case FaultAction::Kind::reroute:
      return switches_[node - hosts()].reroute(*action.routes);
    case FaultAction::Kind::avoid:
      return switches_[node - hosts()].avoid(port, true);
    case FaultAction::Kind::stop_avoiding:
      return switches_[node - hosts()].avoid(port, false);
  }
}

// --- links ---

void Part::go_down(std::uint32_t node, std::uint16_t number) {
  LinkEnd& end = end_of(node, number);
  end.waits_for |= LinkEnd::its_link;
  faults_of(end).downs.pop_back();
  if (is_host(node)) {
    end.port->take_down(now_);
  } else {
    for (FrameRef ref = switches_[node - hosts()].take_down(now_, number); ref != no_frame;) {
      const FrameRef next = frames_[ref].next;
      let_go(node, ref);
      ref = next;
    }
    kick_talkers(switches_[node - hosts()], node);
  }
  if (observers_.on_link_change) observers_.on_link_change({now_, node, number, false});
}

void Part::come_up(std::uint32_t node, std::uint16_t number) {
  LinkEnd& end = end_of(node, number);
  end.waits_for = static_cast<std::uint8_t>(end.waits_for & ~LinkEnd::its_link);
  end.port->bring_up();
  if (observers_.on_link_change) observers_.on_link_change({now_, node, number, true});
  kick(end);
}

// Applies bit errors and the failure of the link to a frame. Returns true if it never arrives.
bool Part::disturb(const LinkEnd& end, Frame& frame, std::int64_t arrives) {
  const bool has_faults = !nodes_.port_faults.empty();
  const double rate = has_faults ? faults_of(end).bit_error_rate : settings_.bit_error_rate;
  const bool is_lost = settings_.lose_every > 0 && is_to_lose(end.node, frame);
  if (is_lost || (rate > 0 && is_damaged(end.node, frame.buffer_bytes, rate))) {
    frame.damaged = 1;
    ++end.port->counters().damaged;
  }
  if (!has_faults || !goes_down_by(end, arrives)) return false;
  lose_on_link(end, frame);
  return true;
}

bool Part::goes_down_by(const LinkEnd& end, std::int64_t arrives) const {
  const PortFaults& faults = nodes_.port_faults[index_of(end)];
  return !faults.downs.empty() && faults.downs.back() <= arrives;
}

// True if a frame has a wrong bit at the other end. The probability is 1 - (1 - p)^bits.
bool Part::is_damaged(std::uint32_t node, std::uint32_t bytes, double bit_error_rate) {
  const double whole = power(1 - bit_error_rate, std::int64_t{bytes} * 8);
  return !nodes_.noise[node].chance(whole);
}

bool Part::is_to_lose(std::uint32_t node, const Frame& frame) {
  if (!is_host(node) || frame.payload_bytes == 0) return false;
  if (++hosts_[node].since_lost < settings_.lose_every) return false;
  hosts_[node].since_lost = 0;
  return true;
}

void Part::lose_on_link(const LinkEnd& end, const Frame& frame) {
  port::Counters& counters = end.port->counters();
  ++counters.lost;
  counters.lost_bytes += frame.buffer_bytes;
  last_loss_ = std::max(last_loss_, Time{faults_of(end).downs.back()});
}

// Gives up a frame that a switch has dropped.
void Part::let_go(std::uint32_t node, FrameRef ref) {
  if (observers_.on_loss) [[unlikely]]
    observers_.on_loss({now_, node, &frames_[ref]});
  frames_.give(ref);
}

// --- slow hosts ---

void Part::arrive_at_slow_host(std::uint32_t number, FrameRef ref) {
  Host& host = hosts_[number];
  const Frame& frame = frames_[ref];
  if (frame.damaged != 0) return discard(end_of(number, 0), ref);
  const FlowControl flow_control = settings_.switches.flow_control;
  if (flow_control == FlowControl::credits) {
    host.adapter.port().take_room(frame.service_class, frame.buffer_bytes);
  } else {
    const bool may_lose = flow_control == FlowControl::none || host.intake->has_given_up();
    if (may_lose && !host.intake->has_room(frame.buffer_bytes)) {
      ++host.adapter.port().counters().lost;
      host.adapter.port().counters().lost_bytes += frame.buffer_bytes;
      last_loss_ = std::max(last_loss_, now_);
      return frames_.give(ref);
    }
  }
  host.intake->push(frames_, ref);
  update_asking(number);
  begin_taking_in(number);
}

void Part::begin_taking_in(std::uint32_t number) {
  Intake& intake = *hosts_[number].intake;
  if (intake.is_taking || intake.is_stuck() || intake.empty()) return;
  intake.is_taking = true;
  plan((now_ + intake.time_of_first(frames_)).ps, end_of(number, 0), taken_in, 0);
}

void Part::end_taking_in(std::uint32_t number) {
  Intake& intake = *hosts_[number].intake;
  intake.is_taking = false;
  if (!intake.is_stuck() && !intake.empty()) take_in_next(number);
  update_asking(number);
  begin_taking_in(number);
  attend(number);
}

void Part::take_in_next(std::uint32_t number) {
  Host& host = hosts_[number];
  const FrameRef ref = host.intake->pop(frames_);
  const Frame& frame = frames_[ref];
  hand_over(number, ref);
  port::Port& port = host.adapter.port();
  if (port.has_credits()) {
    static_cast<void>(port.free_room(frame.service_class, frame.buffer_bytes));
  }
  frames_.give(ref);
}

// Stops or resumes the neighbour as the intake asks.
void Part::update_asking(std::uint32_t number) {
  if (settings_.switches.flow_control != FlowControl::pfc) return;
  Host& host = hosts_[number];
  if (!host.intake->update(now_)) return;
  const std::uint8_t classes = settings_.switches.lossless_classes;
  port::Port& port = host.adapter.port();
  static_cast<void>(host.intake->is_asking() ? port.stop(classes) : port.resume(classes));
  if (host.intake->is_asking() && settings_.host.watchdog > Time::zero()) {
    LinkEnd& end = end_of(number, 0);
    plan_once(end.watchdog_planned, now_ + settings_.host.watchdog, end, watchdog);
  }
  kick(end_of(number, 0));
}

// Runs the adapter's watchdog. Once it trips, the adapter's pauses run out (Guo et al., SIGCOMM
// 2016, section 4.3).
void Part::watch_host(std::uint32_t number) {
  Host& host = hosts_[number];
  if (!host.intake->is_asking()) return;
  const Time due = host.intake->asking_since() + settings_.host.watchdog;
  if (due <= now_) {
    host.intake->give_up();
    host.adapter.port().fall_silent();
    ++host.adapter.port().counters().watchdog_trips;
  } else {
    LinkEnd& end = end_of(number, 0);
    plan_once(end.watchdog_planned, due, end, watchdog);
  }
}

// --- frames that stay at the head of a queue too long ---

// Plans a check of the heads of a port's queues, because a frame waits there.
void Part::plan_head_watch(LinkEnd& end) {
  const Time lifetime = switches_[end.node - hosts()].head_lifetime(end.number);
  if (lifetime == Time::zero()) return;
  plan_once(end.watchdog_planned, now_ + lifetime, end, watchdog);
}

// Discards frames that have been at the head of a queue too long, and plans the next check for the
// earliest time at which another may have.
void Part::watch_heads(LinkEnd& end) {
  fabric::Switch& at = switches_[end.node - hosts()];
  const Time next = at.discard_heads(now_, end.number);
  if (!next.is_never()) plan_once(end.watchdog_planned, next, end, watchdog);
  kick(end);
  kick_talkers(at, end.node);
}

}  // namespace tulle::sim
