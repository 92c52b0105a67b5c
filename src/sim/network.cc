#include "sim/network.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/prefetch.h"
#include "fabric/lids.h"
#include "sim/network_stack.h"

namespace tulle::sim {

using fabric::Control;
using fabric::FlowControl;
using fabric::Frame;
using fabric::FrameRef;
using fabric::no_frame;

namespace {

// The low bits of an event's place are its kind, and the others are the port's index.
constexpr unsigned kind_bits = 4;
constexpr std::uint32_t kind_mask = (1u << kind_bits) - 1;
// Distances, in events ahead of the present one, at which frames are fetched, and the data for
// which they are meant.
constexpr std::size_t fetch_distance = 12;
constexpr std::size_t look_distance = 4;

}  // namespace

// --- the application's side ---

void Network::attend(std::uint32_t host) {
  if (has_kernels_) [[unlikely]]
    return attend_kernel(host);
  kick(host, 0);
  plan_deadline(host);
}

void Network::alarm(Time at, std::uint32_t host, std::uint32_t token) {
  TULLE_CHECK(at >= now_);
  plan(at.ps, host, 0, application, token);
}

NetworkEvent Network::run(Time until) {
  for (;;) {
    if (events_of_turn_.empty()) {
      if (begin_turn(until)) continue;
      now_ = latest_;
      return {};
    }
    const Event event = events_of_turn_.pop();
    now_ = Time{event.at};
    ++events_;
    look_ahead();
    const Port& port = ports_[event.place >> kind_bits];
    const auto kind = static_cast<Kind>(event.place & kind_mask);
    if (kind == application) return {NetworkEvent::Kind::alarm, port.node, event.datum};
    if (handle(kind, port.node, port.number, event.datum)) {
      return {NetworkEvent::Kind::host, port.node, 0};
    }
  }
}

// Begins the turn of the next node that has something to do. Returns false if there is none until
// then.
bool Network::begin_turn(Time until) {
  latest_ = std::max(latest_, now_);
  turn_ = rounds_->next_node();
  while (turn_ == Rounds::no_node) {
    if (!rounds_->begin(until)) return false;
    turn_ = rounds_->next_node();
  }
  turn_end_ = rounds_->end();
  const std::uint32_t next = rounds_->peek_node();
  next_block_ = Rounds::none;
  if (next != Rounds::no_node) prepare_turn(next);
  events_of_turn_.begin(rounds_->start(), rounds_->end());
  rounds_->take(turn_, [this](const Event& event) { events_of_turn_.give(event); });
  events_of_turn_.sort();
  for (std::size_t ahead = 0; ahead < fetch_distance; ++ahead) fetch_frame(ahead);
  return true;
}

// Prefetches the data that the next node's turn will touch. A cluster does not fit in a cache, and
// this happens during the present turn, so that little time is spent waiting for memory.
void Network::prepare_turn(std::uint32_t node) {
  next_block_ = rounds_->first_block(node);
  if (is_host(node)) return hosts_[node].adapter.prefetch();
  const fabric::Switch& at = switches_[node - hosts()];
  at.prefetch();
  for (std::uint16_t port = 0; port < at.ports(); ++port) {
    tulle::prefetch(&ports_[port_index(node, port)]);
  }
}

void Network::look_ahead() {
  if (next_block_ != Rounds::none) {
    next_block_ = rounds_->look(next_block_, [this](const Event& event) {
      if (static_cast<Kind>(event.place & kind_mask) == arrival) frames_.prefetch(event.datum);
    });
  }
  fetch_frame(fetch_distance);
  const Event* later = events_of_turn_.peek_known(look_distance);
  if (later == nullptr || static_cast<Kind>(later->place & kind_mask) != arrival) return;
  const Frame& frame = frames_[later->datum];
  const Port& port = ports_[later->place >> kind_bits];
  if (is_host(port.node)) {
    hosts_[port.node].adapter.prefetch(wire::peek_destination_qp(frame.header));
  }
}

void Network::fetch_frame(std::size_t ahead) {
  const Event* event = events_of_turn_.peek_known(ahead);
  if (event == nullptr || static_cast<Kind>(event->place & kind_mask) != arrival) return;
  frames_.prefetch(event->datum);
}

Time Network::next_event() {
  return events_of_turn_.empty() ? rounds_->next()
                                 : std::min(Time{events_of_turn_.next().at}, rounds_->next());
}

// --- events ---

// Handles an event. Returns true if a host has new completions.
bool Network::handle(Kind kind, std::uint32_t node, std::uint16_t port, std::uint32_t datum) {
  switch (kind) {
    case control:
      handle_control(node, port, Control::unpacked(datum));
      break;
    case arrival:
      if (frames_[datum].damaged != 0) [[unlikely]] {
        discard(node, port, datum);
        return false;
      }
      if (!is_host(node)) {
        arrive_at_switch(node, port, datum);
        return false;
      }
      arrive_at_host(node, datum);
      break;
    case port_free:
      ports_[port_index(node, port)].waits_for &= its_link;
      kick(node, port);
      break;
    case pause_end:
      end_pauses(node, port);
      break;
    case pause_renewal:
      renew_pause(node, port);
      break;
    case watchdog:
      watch(node, port);
      break;
    case fault:
      handle_fault(node, port, fault_actions_[datum]);
      break;
    case slow_arrival:
      arrive_at_slow_host(node, datum);
      break;
    case taken_in:
      end_taking_in(node);
      break;
    case notice:
      handle_notice(node, datum);
      break;
    case stack_work:
      run_kernel(node);
      break;
    case deadline: {
      Host& host = hosts_[node];
      // An earlier deadline may have been planned since.
      if (host.deadline_planned == now_) host.deadline_planned = Time::never();
      host.adapter.handle_deadline(now_);
      attend(node);
      break;
    }
    default:
      break;
  }
  if (!is_host(node)) return false;
  Host& host = hosts_[node];
  if (host.adapter.completions() == host.completions) return false;
  host.completions = host.adapter.completions();
  return true;
}

void Network::arrive_at_switch(std::uint32_t node, std::uint16_t in_port, FrameRef ref) {
  if (!detours_.empty()) [[unlikely]]
    return arrive_by_detour(node, in_port, ref);
  fabric::Switch& at = switches_[node - hosts()];
  Frame& frame = frames_[ref];
  std::uint16_t out_port = fabric::Switch::no_port;
  if (settings_.switches.path_choice == fabric::PathChoice::flow) {
    out_port = at.receive(now_, in_port, ref, forward(at, node, frame));
  } else if (non_minimal_ == nullptr) {
    out_port = at.receive(now_, in_port, ref, routes_.candidates(node, frame.destination));
  } else {
    const bool from_host = is_host(ports_[port_index(node, in_port)].peer);
    out_port = at.receive(now_, in_port, ref, non_minimal_->ways(at, node, from_host, frame));
  }
  end_arrival(node, ref, out_port);
}

// Completes a frame's arrival at a switch. The frame now waits for `out_port`, or was dropped
// (no_port).
void Network::end_arrival(std::uint32_t node, FrameRef ref, std::uint16_t out_port) {
  if (out_port == fabric::Switch::no_port) {
    let_go(node, ref);
  } else {
    if (notices_ != nullptr) [[unlikely]]
      watch_endpoint(node, out_port, frames_[ref]);
    kick(node, out_port);
    if (has_head_lifetimes_) [[unlikely]]
      plan_head_watch(node, out_port);
  }
  kick_talkers(node);
}

// Returns the output port of a frame whose path depends only on its flow.
std::uint16_t Network::forward(const fabric::Switch& at, std::uint32_t node,
                               const Frame& frame) const {
  if (settings_.link_layer == LinkLayer::infiniband) {
    return routes_.port(node, frame.destination, frame.path);
  }
  return at.choose_by_flow(frame, routes_.candidates(node, frame.destination));
}

void Network::arrive_at_host(std::uint32_t number, FrameRef ref) {
  Host& host = hosts_[number];
  if (has_kernels_) [[unlikely]]
    return arrive_at_kernel(number, ref);
  hand_over(number, ref);
  if (settings_.switches.flow_control == FlowControl::credits) take_in(host, frames_[ref]);
  frames_.give(ref);
  attend(number);
}

void Network::handle_control(std::uint32_t node, std::uint16_t port, Control control) {
  if (control.kind == Control::Kind::pause) {
    handle_pause(node, port, control);
  } else if (is_host(node)) {
    hosts_[node].senders[control.credit.lane].update(control.credit.limit);
  } else {
    switches_[node - hosts()].handle_control(now_, port, control);
  }
  kick(node, port);
}

void Network::handle_pause(std::uint32_t node, std::uint16_t number, Control control) {
  Port& port = ports_[port_index(node, number)];
  const Time duration = fabric::pause_time(settings_.switches.pause_quanta, port.bits_per_second);
  if (is_host(node)) {
    Host& host = hosts_[node];
    static_cast<void>(host.pause.handle(now_, control.pause, duration));
    host.counters.pauses = host.pause.pauses();
    host.counters.paused_ps = host.pause.paused(now_).ps;
  } else {
    const bool fresh = switches_[node - hosts()].handle_control(now_, number, control, duration);
    if (fresh && settings_.switches.watchdog > Time::zero()) {
      plan_once(port.watchdog_planned, now_ + settings_.switches.watchdog, node, number, watchdog);
    }
  }
  if (control.pause.stop != 0) {
    plan_once(port.pause_end_planned, now_ + duration, node, number, pause_end);
  }
}

// Ends the pauses that the neighbour has not renewed.
void Network::end_pauses(std::uint32_t node, std::uint16_t number) {
  Port& port = ports_[port_index(node, number)];
  port.pause_end_planned = false;
  Time next;
  if (is_host(node)) {
    Host& host = hosts_[node];
    host.pause.expire(now_);
    host.counters.paused_ps = host.pause.paused(now_).ps;
    next = host.pause.next_end();
  } else {
    next = switches_[node - hosts()].expire_pauses(now_, number);
  }
  if (!next.is_never()) plan_once(port.pause_end_planned, next, node, number, pause_end);
  kick(node, number);
}

void Network::renew_pause(std::uint32_t node, std::uint16_t number) {
  ports_[port_index(node, number)].renewal_planned = false;
  if (is_host(node)) {
    Host& host = hosts_[node];
    if (host.intake->is_asking()) host.untold = settings_.switches.lossless_classes;
    return kick(node, number);
  }
  if (switches_[node - hosts()].renew_stops(number)) kick_talkers(node);
}

void Network::watch(std::uint32_t node, std::uint16_t number) {
  Port& port = ports_[port_index(node, number)];
  port.watchdog_planned = false;
  if (is_host(node)) return watch_host(node);
  if (has_head_lifetimes_) return watch_heads(node, number);
  if (switches_[node - hosts()].watch(now_, number)) {
    plan_once(port.watchdog_planned, now_ + settings_.switches.watchdog, node, number, watchdog);
  }
  kick_talkers(node);
}

void Network::plan_once(bool& planned, Time at, std::uint32_t node, std::uint16_t port, Kind kind) {
  if (planned) return;
  planned = true;
  plan(at.ps, node, port, kind, 0);
}

void Network::plan_deadline(std::uint32_t number) {
  Host& host = hosts_[number];
  const Time deadline = std::max(host.adapter.next_deadline(), now_);
  if (deadline >= host.deadline_planned) return;
  host.deadline_planned = deadline;
  plan(deadline.ps, number, 0, Kind::deadline, 0);
}

void Network::plan(std::int64_t at, std::uint32_t node, std::uint16_t port, Kind kind,
                   std::uint32_t datum) {
  const auto index = static_cast<std::uint32_t>(port_index(node, port));
  const Event event{at, index << kind_bits | kind, datum};
  const std::uint32_t turn = turn_of(node);
  if (turn == turn_ && at < turn_end_.ps) {
    events_of_turn_.insert(event);
  } else {
    TULLE_CHECK(turn_ == Rounds::no_node || turn == turn_ || at >= turn_end_.ps);
    rounds_->add(turn, event);
  }
}

// --- sending ---

// Lets a port send if it has something to send. If the port is busy, it sends when it becomes free.
void Network::kick(std::uint32_t node, std::uint16_t port_number) {
  Port& port = ports_[port_index(node, port_number)];
  if (port.waits_for != 0) return;
  if (port.busy_until <= now_.ps) {
    const Control control = pull_control(node, port_number);
    if (control.kind != Control::Kind::none) {
      send_control(node, port_number, control);
    } else if (notices_ == nullptr || !send_notice(node, port_number)) {
      const FrameRef ref =
          is_host(node) ? pull_from_host(node) : switches_[node - hosts()].pull(now_, port_number);
      if (ref == no_frame) return;
      send(node, port_number, ref);
    }
  }
  const bool tells = notices_ != nullptr && notices_->waits(port_index(node, port_number));
  if (!tells && !has_more(node, port_number)) return;
  port.waits_for |= its_becoming_free;
  plan(port.busy_until, node, port_number, port_free, 0);
}

void Network::kick_talkers(std::uint32_t node) {
  fabric::Switch& at = switches_[node - hosts()];
  for (std::uint16_t port; (port = at.take_talker()) != fabric::Switch::no_port;) kick(node, port);
}

bool Network::has_more(std::uint32_t node, std::uint16_t port) const {
  if (is_host(node)) {
    const Host& host = hosts_[node];
    if (has_kernels_) [[unlikely]]
      return host.untold != 0 || kernel_has_frame(host);
    return host.untold != 0 || host.adapter.has_ready(host.pause.stopped());
  }
  const fabric::Switch& at = switches_[node - hosts()];
  return at.has_control(port) || at.has_frame(port);
}

Control Network::pull_control(std::uint32_t node, std::uint16_t port) {
  if (!is_host(node)) return switches_[node - hosts()].pull_control(port);
  Host& host = hosts_[node];
  Control control;
  if (host.untold == 0) return control;
  if (settings_.switches.flow_control != FlowControl::credits) [[unlikely]]
    return pull_host_control(host);
  const auto lane = static_cast<std::uint8_t>(std::countr_zero(host.untold));
  host.untold = static_cast<std::uint8_t>(host.untold & (host.untold - 1));
  control.kind = Control::Kind::credit;
  control.credit = {lane, host.receivers[lane].tell()};
  return control;
}

FrameRef Network::pull_from_host(std::uint32_t number) {
  Host& host = hosts_[number];
  if (has_kernels_) [[unlikely]]
    return pull_from_kernel(number);
  if (!host.adapter.has_ready()) return no_frame;
  const bool pulled = settings_.switches.flow_control == FlowControl::credits
                          ? pull_by_lane(host)
                          : host.adapter.pull_datagram(now_, outgoing_, host.pause.stopped());
  plan_deadline(number);  // for the answer to this packet, or for the time when one may be sent
  if (!pulled) return no_frame;
  const FrameRef ref = frame_of(number, outgoing_);
  const Frame& frame = frames_[ref];
  if (frame.service_class == fabric::vl15) [[unlikely]] {
    ++host.counters.unmapped;
    return ref;
  }
  if (settings_.switches.flow_control == FlowControl::credits) {
    host.senders[frame.service_class].sent(frame.buffer_bytes);
    host.arbiter.sent(frame.buffer_bytes);
  }
  ++host.counters.frames;
  host.counters.bytes += frame.link_bytes();
  return ref;
}

// Pulls a datagram from the level that the port's arbiter chooses among the lanes with something to
// send. Levels without a lane do not wait.
bool Network::pull_by_lane(Host& host) {
  const fabric::VlArbitration& arbitration = settings_.switches.arbitration;
  constexpr std::uint32_t all = (1u << device::Adapter::levels) - 1;
  const std::uint32_t held_back = levels_held_back(host);
  if (!host.adapter.has_ready(held_back)) ++host.counters.credit_stalls;
  for (;;) {
    const std::uint32_t ready = host.adapter.ready_levels() & ~held_back;
    if (ready == 0) return false;
    std::uint32_t levels = ready & levels_without_lane_;
    if (levels == 0) levels = levels_of_lane_[host.arbiter.choose(arbitration, lanes_of(ready))];
    if (host.adapter.pull_datagram(now_, outgoing_, all & ~levels)) return true;
  }
}

// Returns the levels whose lane is in no table, or lacks credits for the longest frame.
std::uint32_t Network::levels_held_back(const Host& host) const {
  const std::uint32_t longest = longest_frame_bytes(settings_);
  const std::uint32_t lanes = settings_.switches.arbitration.lanes();
  std::uint32_t held_back = 0;
  for (std::uint32_t lane = 0; lane < fabric::classes; ++lane) {
    const bool may_send = (lanes >> lane & 1) != 0 && host.senders[lane].may_send(longest);
    if (!may_send) held_back |= levels_of_lane_[lane];
  }
  return held_back;
}

std::uint32_t Network::lanes_of(std::uint32_t levels) const {
  std::uint32_t lanes = 0;
  for (; levels != 0; levels &= levels - 1) {
    lanes |= 1u << settings_.lanes.hosts[static_cast<std::size_t>(std::countr_zero(levels))];
  }
  return lanes;
}

void Network::tell_sending(Time arrives, std::uint32_t node, std::uint16_t port, FrameRef ref,
                           bool lost) {
  const transport::Payload payload = segment_of(ref);
  on_send_({now_, arrives, node, port, &frames_[ref], {}, payload.data, payload.ghost_bytes, lost});
}

// Takes in a frame at a host. Its memory is free again at once, and the other end is told from time
// to time.
void Network::take_in(Host& host, const Frame& frame) {
  host.receivers[frame.service_class].received(frame.buffer_bytes);
  free_memory(host, frame);
}

void Network::free_memory(Host& host, const Frame& frame) const {
  fabric::CreditReceiver& receiver = host.receivers[frame.service_class];
  receiver.released(frame.buffer_bytes);
  if (receiver.is_worth_telling(settings_.switches.lane_buffer_bytes /
                                fabric::credit_block_bytes)) {
    host.untold = static_cast<std::uint8_t>(host.untold | 1u << frame.service_class);
  }
}

// Discards a frame that fails the link layer's check (FCS, VCRC). The frame has taken room in the
// receiver all the same.
void Network::discard(std::uint32_t node, std::uint16_t port, FrameRef ref) {
  const Frame& frame = frames_[ref];
  if (settings_.switches.flow_control == FlowControl::credits) {
    if (is_host(node)) {
      take_in(hosts_[node], frame);
    } else {
      switches_[node - hosts()].take_in_lost(port, frame);
      kick_talkers(node);
    }
    kick(node, port);
  }
  frames_.give(ref);
}

std::int64_t Network::time_on_link(const Port& port, std::uint32_t bytes) const {
  if (port.picoseconds_per_byte != 0) return port.picoseconds_per_byte * bytes;
  return std::int64_t{bytes} * 8'000'000'000'000 / port.bits_per_second;
}

void Network::send(std::uint32_t node, std::uint16_t port_number, FrameRef ref) {
  Port& port = ports_[port_index(node, port_number)];
  Frame& frame = frames_[ref];
  frame.next = no_frame;
  const std::int64_t time = time_on_link(port, frame.link_bytes());
  port.busy_until = now_.ps + time;
  // A frame without a lane takes its time on the link, but is dropped (IBTA 7.6.6).
  if (frame.service_class == fabric::vl15) [[unlikely]]
    return frames_.give(ref);
  // A switch with cut-through acts on the first bit, every other receiver on the last.
  const std::int64_t arrives = (port.peer_cuts_through ? now_.ps : port.busy_until) + port.delay;
  const bool lost = disturbed_ && disturb(node, port_number, frame, arrives);
  if (on_send_) [[unlikely]]
    tell_sending(Time{arrives}, node, port_number, ref, lost);
  ++all_hops_;
  if (frame.payload_bytes > 0) ++data_hops_;
  if (lost) [[unlikely]] {
    frames_.give(ref);
  } else {
    plan(arrives, port.peer, port.peer_port, port.arrives_as, ref);
  }
  if (!is_host(node)) kick_talkers(node);
}

void Network::send_control(std::uint32_t node, std::uint16_t port_number, Control control) {
  Port& port = ports_[port_index(node, port_number)];
  const std::uint32_t bytes = control.kind == Control::Kind::pause
                                  ? fabric::pause_link_bytes
                                  : fabric::credit_update_link_bytes;
  port.busy_until = now_.ps + time_on_link(port, bytes);
  // The pause is renewed after half of its time.
  if (control.kind == Control::Kind::pause && control.pause.stop != 0) {
    const Time duration = fabric::pause_time(settings_.switches.pause_quanta, port.bits_per_second);
    plan_once(port.renewal_planned, now_ + Time{duration.ps / 2}, node, port_number, pause_renewal);
  }
  const std::int64_t arrives = port.busy_until + port.delay;
  const bool lost = !port_faults_.empty() && goes_down_by(node, port_number, arrives);
  if (!lost) plan(arrives, port.peer, port.peer_port, Kind::control, control.packed());
  if (on_send_) [[unlikely]]
    on_send_({now_, Time{arrives}, node, port_number, nullptr, control, nullptr, 0, lost});
}

}  // namespace tulle::sim
