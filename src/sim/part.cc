#include "sim/part.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/prefetch.h"
#include "sim/kernel_driver.h"

namespace tulle::sim {

using port::Control;
using port::FlowControl;
using port::Frame;
using port::FrameRef;
using port::no_frame;

namespace {

// Distances, in events ahead of the present one, at which frames are fetched, and the data for
// which they are meant.
constexpr std::size_t fetch_distance = 12;
constexpr std::size_t look_distance = 4;

}  // namespace

// --- set-up ---

Part::Part(Nodes& nodes, const Observers& observers, std::uint32_t number)
    : nodes_(nodes), observers_(observers), settings_(nodes.settings), number_(number) {}
Part::~Part() = default;

void Part::own(std::vector<std::uint32_t> nodes) {
  own_ = std::move(nodes);
  for (std::uint32_t turn = 0; turn < own_.size(); ++turn) {
    Place& place = nodes_.places[own_[turn]];
    place.turn = turn & 0xFF'FFFF;
    place.part = number_ & 0xFF;
  }
}

void Part::begin(std::uint32_t parts) {
  hosts_ = nodes_.hosts.places();
  switches_ = nodes_.switches.places();
  places_ = nodes_.places;
  ends_ = nodes_.ends.places();
  disturbed_ = nodes_.disturbed;
  has_kernels_ = nodes_.has_kernels;
  has_head_lifetimes_ = nodes_.has_head_lifetimes;
  if (nodes_.payload_bytes > 0) payloads_ = std::make_unique<port::Payloads>(nodes_.payload_bytes);
  for (auto& boxes : outboxes_) boxes.resize(parts);
}

void Part::take_turns(Time round) {
  // Keeps as many rounds as a packet is ever away, if they take no more than some megabytes.
  constexpr std::uint64_t entries_max = 1 << 22, rounds_max = 1 << 18;
  const std::uint64_t turns = own_.size();
  const std::uint64_t most = std::min(std::bit_floor(entries_max / turns | 1), rounds_max);
  const auto wanted = std::bit_ceil(static_cast<std::uint64_t>(nodes_.delay_max.ps / round.ps) + 4);
  const std::uint64_t kept = std::max<std::uint64_t>(16, std::min(wanted, most));
  rounds_ = std::make_unique<Rounds>(round, static_cast<std::uint32_t>(turns), kept);
}

void Part::share_turn(Time turn) {
  TULLE_CHECK(!has_begun());
  for (Place& place : places_) place.turn = 0;
  constexpr std::size_t kept = 1 << 14;
  const auto before = std::exchange(rounds_, std::make_unique<Rounds>(turn, 1, kept));
  if (before == nullptr) return;
  while (before->begin(Time::never())) {
    for (std::uint32_t each; (each = before->next_node()) != Rounds::no_node;) {
      before->take(each, [this](const Event& event) { rounds_->add(0, event); });
    }
  }
}

// --- the application's side ---

void Part::attend(std::uint32_t host) {
  if (has_kernels_) [[unlikely]]
    return attend_kernel(host);
  kick(host, 0);
  plan_deadline(host);
}

void Part::alarm(Time at, std::uint32_t host, std::uint32_t token) {
  TULLE_CHECK(at >= now_);
  plan(at.ps, host, 0, application, token);
}

NetworkEvent Part::run(Time until) {
  for (;;) {
    if (events_of_turn_.empty()) {
      if (begin_turn(until)) continue;
      now_ = latest_;
      return {};
    }
    if (const NetworkEvent event = step(); event.kind != NetworkEvent::Kind::nothing) return event;
  }
}

// Lets the next event of the turn happen.
inline NetworkEvent Part::step() {
  const Event event = events_of_turn_.pop();
  now_ = Time{event.at};
  ++events_;
  look_ahead();
  const LinkEnd& end = ends_[event.place >> kind_bits];
  const auto kind = static_cast<Kind>(event.place & kind_mask);
  if (kind == application) return {NetworkEvent::Kind::alarm, end.node, event.datum};
  if (handle(kind, end.node, end.number, event.datum)) {
    return {NetworkEvent::Kind::host, end.node, 0};
  }
  return {};
}

// Begins the turn of the next node that has something to do. Returns false if there is none until
// then.
bool Part::begin_turn(Time until) {
  while (!begin_turn()) {
    if (!rounds_->begin(until)) return false;
  }
  return true;
}

// Does so in the present round. Returns false if all nodes have had their turns.
bool Part::begin_turn() {
  latest_ = std::max(latest_, now_);
  turn_ = rounds_->next_node();
  if (turn_ == Rounds::no_node) return false;
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

// --- rounds ---

void Part::play_turns(Application& application) {
  while (begin_turn()) {
    while (!events_of_turn_.empty()) {
      const NetworkEvent event = step();
      if (event.kind == NetworkEvent::Kind::alarm) {
        application.handle_alarm(now_, event.host, event.token);
      } else if (event.kind == NetworkEvent::Kind::host) {
        application.handle_completions(now_, event.host);
      }
    }
  }
}

bool Part::play_alone(Time until, Application& application) {
  std::uint64_t looked = events_;
  while (rounds_->begin(until)) {
    play_turns(application);
    if (events_ - looked < events_between_looks) continue;
    looked = events_;
    now_ = latest_;
    if (!application.goes_on()) return false;
  }
  now_ = latest_;
  return true;
}

void Part::play(Time start, Time end, unsigned parity, Application& application) {
  parity_ = parity;
  rounds_->begin_at(start, end);
  play_turns(application);
}

Time Part::earliest_sent() const {
  std::int64_t earliest = Time::never().ps;
  for (const Crossing& box : outboxes_[parity_]) earliest = std::min(earliest, box.earliest);
  return Time{earliest};
}

Time Part::earliest_event() const {
  const Time planned = std::min(rounds_->next(), earliest_sent());
  return events_of_turn_.empty() ? planned : std::min(Time{events_of_turn_.next().at}, planned);
}

Time Part::earliest_round() const {
  const Time sent = earliest_sent();
  const Time planned = rounds_->next_round();
  return sent.is_never() ? planned : std::min(planned, rounds_->round_of(sent));
}

// Prefetches the data that the next node's turn will touch. A cluster does not fit in a cache, and
// this happens during the present turn, so that little time is spent waiting for memory.
void Part::prepare_turn(std::uint32_t turn) {
  next_block_ = rounds_->first_block(turn);
  const std::uint32_t node = own_[turn];
  if (is_host(node)) {
    if (has_kernels_) hosts_[node].kernel->stack.prefetch();
    return hosts_[node].adapter.prefetch();
  }
  const fabric::Switch& at = switches_[node - hosts()];
  at.prefetch();
  for (std::uint16_t port = 0; port < at.ports(); ++port) {
    at.port(port).prefetch();
    tulle::prefetch(&ends_[end_index(node, port)]);
  }
}

void Part::look_ahead() {
  if (next_block_ != Rounds::none) {
    next_block_ = rounds_->look(next_block_, [this](const Event& event) {
      if (static_cast<Kind>(event.place & kind_mask) == arrival) frames_.prefetch(event.datum);
    });
  }
  fetch_frame(fetch_distance);
  const Event* later = events_of_turn_.peek_known(look_distance);
  if (later == nullptr || static_cast<Kind>(later->place & kind_mask) != arrival) return;
  const Frame& frame = frames_[later->datum];
  const LinkEnd& end = ends_[later->place >> kind_bits];
  // A kernel's cores take a frame in, and touch its connection later.
  if (is_host(end.node) && !has_kernels_) {
    hosts_[end.node].adapter.prefetch(wire::peek_destination_qp(frame.header));
  }
}

void Part::fetch_frame(std::size_t ahead) {
  const Event* event = events_of_turn_.peek_known(ahead);
  if (event == nullptr || static_cast<Kind>(event->place & kind_mask) != arrival) return;
  frames_.prefetch(event->datum);
}

// --- events ---

// Handles an event. Returns true if a host has new completions.
bool Part::handle(Kind kind, std::uint32_t node, std::uint16_t port, std::uint32_t datum) {
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
      ends_[end_index(node, port)].waits_for &= LinkEnd::its_link;
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
      handle_fault(node, port, nodes_.fault_actions[datum]);
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

void Part::arrive_at_switch(std::uint32_t node, std::uint16_t in_port, FrameRef ref) {
  const std::uint16_t out_port = switches_[node - hosts()].receive(now_, in_port, ref);
  if (out_port == fabric::Switch::no_port) {
    let_go(node, ref);
  } else {
    kick(node, out_port);
    if (has_head_lifetimes_) [[unlikely]]
      plan_head_watch(node, out_port);
  }
  kick_talkers(node);
}

void Part::arrive_at_host(std::uint32_t number, FrameRef ref) {
  Host& host = hosts_[number];
  if (has_kernels_) [[unlikely]]
    return arrive_at_kernel(number, ref);
  hand_over(number, ref);
  if (host.adapter.port().has_credits()) take_in(host.adapter.port(), frames_[ref]);
  frames_.give(ref);
  attend(number);
}

void Part::handle_control(std::uint32_t node, std::uint16_t number, Control control) {
  LinkEnd& end = ends_[end_index(node, number)];
  if (control.kind == Control::Kind::pause) {
    handle_pause(end, control);
  } else {
    end.port->handle_control(now_, control);
  }
  kick(node, number);
}

void Part::handle_pause(LinkEnd& end, Control control) {
  const Time duration = pause_time(end, settings_);
  const bool fresh = end.port->handle_control(now_, control, duration);
  if (fresh && !is_host(end.node) && settings_.switches.watchdog > Time::zero()) {
    plan_once(end.watchdog_planned, now_ + settings_.switches.watchdog, end.node, end.number,
              watchdog);
  }
  if (control.pause.stop != 0) {
    plan_once(end.pause_end_planned, now_ + duration, end.node, end.number, pause_end);
  }
}

Time Part::pause_time(const LinkEnd& end, const NetworkSettings& settings) {
  return port::pause_time(settings.switches.pause_quanta, end.bits_per_second);
}

// Ends the pauses that the neighbour has not renewed.
void Part::end_pauses(std::uint32_t node, std::uint16_t number) {
  LinkEnd& end = ends_[end_index(node, number)];
  end.pause_end_planned = false;
  const Time next = end.port->expire_pauses(now_);
  if (!next.is_never()) plan_once(end.pause_end_planned, next, node, number, pause_end);
  kick(node, number);
}

void Part::renew_pause(std::uint32_t node, std::uint16_t number) {
  LinkEnd& end = ends_[end_index(node, number)];
  end.renewal_planned = false;
  end.port->stop(end.port->stopping());
  kick(node, number);
}

void Part::watch(std::uint32_t node, std::uint16_t number) {
  LinkEnd& end = ends_[end_index(node, number)];
  end.watchdog_planned = false;
  if (is_host(node)) return watch_host(node);
  if (has_head_lifetimes_) return watch_heads(node, number);
  if (switches_[node - hosts()].watch(now_, number)) {
    plan_once(end.watchdog_planned, now_ + settings_.switches.watchdog, node, number, watchdog);
  }
  kick_talkers(node);
}

void Part::plan_once(bool& planned, Time at, std::uint32_t node, std::uint16_t port, Kind kind) {
  if (planned) return;
  planned = true;
  plan(at.ps, node, port, kind, 0);
}

void Part::plan_deadline(std::uint32_t number) {
  Host& host = hosts_[number];
  const Time deadline = std::max(host.adapter.next_deadline(), now_);
  if (deadline >= host.deadline_planned) return;
  host.deadline_planned = deadline;
  plan(deadline.ps, number, 0, Kind::deadline, 0);
}

void Part::plan(std::int64_t at, std::uint32_t node, std::uint16_t port, Kind kind,
                std::uint32_t datum) {
  const Place& place = places_[node];
  const std::uint32_t index = place.first_end + port;
  const Event event{at, index << kind_bits | static_cast<std::uint32_t>(kind), datum};
  if (place.part != number_) [[unlikely]]
    return send_away(place.part, event);
  if (place.turn == turn_ && at < turn_end_.ps) {
    events_of_turn_.insert(event);
  } else {
    TULLE_CHECK(turn_ == Rounds::no_node || place.turn == turn_ || at >= turn_end_.ps);
    rounds_->add(place.turn, event);
  }
}

// --- sending ---

// Lets a port send if it has something to send. If the port is busy, it sends when it becomes free.
void Part::kick(std::uint32_t node, std::uint16_t number) {
  LinkEnd& end = ends_[end_index(node, number)];
  if (end.waits_for != 0) return;
  if (end.busy_until <= now_.ps) {
    const Control control = end.port->pull_control();
    if (control.kind != Control::Kind::none) {
      send_control(end, control);
    } else if (!settings_.endpoints.enabled || !send_notice(end)) {
      const FrameRef ref =
          is_host(node) ? pull_from_host(node) : switches_[node - hosts()].pull(now_, number);
      if (ref == no_frame) return;
      send(end, ref);
    }
  }
  if (!has_more(node, number)) return;
  end.waits_for |= LinkEnd::its_becoming_free;
  plan(end.busy_until, node, number, port_free, 0);
}

void Part::kick_talkers(std::uint32_t node) {
  fabric::Switch& at = switches_[node - hosts()];
  for (std::uint16_t port; (port = at.take_talker()) != fabric::Switch::no_port;) kick(node, port);
}

bool Part::has_more(std::uint32_t node, std::uint16_t port) const {
  if (!is_host(node)) return switches_[node - hosts()].has_more(port);
  const Host& host = hosts_[node];
  if (host.adapter.port().has_control()) return true;
  if (has_kernels_) [[unlikely]]
    return kernel_has_frame(host);
  return host.adapter.has_ready(host.adapter.port().stopped());
}

FrameRef Part::pull_from_host(std::uint32_t number) {
  Host& host = hosts_[number];
  if (has_kernels_) [[unlikely]]
    return pull_from_kernel(number);
  if (!host.adapter.has_ready()) return no_frame;
  const bool pulled = host.adapter.pull_datagram(now_, outgoing_);
  plan_deadline(number);  // for the answer to this packet, or for the time when one may be sent
  if (!pulled) return no_frame;
  const FrameRef ref = frame_of(number, outgoing_);
  const Frame& frame = frames_[ref];
  if (frame.service_class == port::vl15) [[unlikely]] {
    ++host.adapter.port().counters().unmapped;
  } else {
    host.adapter.port().count_sent(frame);
  }
  return ref;
}

void Part::tell_sending(Time arrives, const LinkEnd& end, FrameRef ref, bool lost) {
  const transport::Payload payload = segment_of(ref);
  observers_.on_send({now_,
                      arrives,
                      end.node,
                      end.number,
                      &frames_[ref],
                      {},
                      payload.data,
                      payload.ghost_bytes,
                      lost});
}

// Takes in a frame at a host. Its memory is free again at once, and the other end is told from time
// to time.
void Part::take_in(port::Port& port, const Frame& frame) {
  port.take_room(frame.service_class, frame.buffer_bytes);
  static_cast<void>(port.free_room(frame.service_class, frame.buffer_bytes));
}

// Discards a frame that fails the link layer's check (FCS, VCRC). The frame has taken room in the
// receiver all the same.
void Part::discard(std::uint32_t node, std::uint16_t port, FrameRef ref) {
  const Frame& frame = frames_[ref];
  if (settings_.switches.flow_control == FlowControl::credits) {
    take_in(*ends_[end_index(node, port)].port, frame);
    kick(node, port);
  }
  frames_.give(ref);
}

std::int64_t Part::time_on_link(const LinkEnd& end, std::uint32_t bytes) {
  if (end.picoseconds_per_byte != 0) return end.picoseconds_per_byte * bytes;
  return std::int64_t{bytes} * 8'000'000'000'000 / end.bits_per_second;
}

void Part::send(LinkEnd& end, FrameRef ref) {
  Frame& frame = frames_[ref];
  frame.next = no_frame;
  const std::int64_t time = time_on_link(end, frame.link_bytes());
  end.busy_until = now_.ps + time;
  // A frame without a lane takes its time on the link, but is dropped (IBTA 7.6.6).
  if (frame.service_class == port::vl15) [[unlikely]]
    return frames_.give(ref);
  // A switch with cut-through acts on the first bit, every other receiver on the last.
  const std::int64_t arrives = (end.peer_cuts_through ? now_.ps : end.busy_until) + end.delay;
  const bool lost = disturbed_ && disturb(end, frame, arrives);
  if (observers_.on_send) [[unlikely]]
    tell_sending(Time{arrives}, end, ref, lost);
  ++all_hops_;
  if (frame.payload_bytes > 0) ++data_hops_;
  if (lost) [[unlikely]] {
    frames_.give(ref);
  } else {
    plan(arrives, end.peer, end.peer_port, end.arrives_as, ref);
  }
  if (!is_host(end.node)) kick_talkers(end.node);
}

void Part::send_control(LinkEnd& end, Control control) {
  const std::uint32_t bytes = control.kind == Control::Kind::pause ? port::pause_link_bytes
                                                                   : port::credit_update_link_bytes;
  end.busy_until = now_.ps + time_on_link(end, bytes);
  // The pause is renewed after half of its time.
  if (control.kind == Control::Kind::pause && control.pause.stop != 0) {
    const Time duration = pause_time(end, settings_);
    plan_once(end.renewal_planned, now_ + Time{duration.ps / 2}, end.node, end.number,
              pause_renewal);
  }
  const std::int64_t arrives = end.busy_until + end.delay;
  const bool lost = !nodes_.port_faults.empty() && goes_down_by(end, arrives);
  if (!lost) plan(arrives, end.peer, end.peer_port, Kind::control, control.packed());
  if (observers_.on_send) [[unlikely]]
    observers_.on_send(
        {now_, Time{arrives}, end.node, end.number, nullptr, control, nullptr, 0, lost});
}

}  // namespace tulle::sim
