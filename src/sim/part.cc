#include "sim/part.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/prefetch.h"
#include "sim/kernel_driver.h"
#include "sim/processes.h"

namespace tulle::sim {

using port::Control;
using port::FlowControl;
using port::Frame;
using port::FrameRef;
using port::no_frame;

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

void Part::begin(std::uint32_t processes, std::uint32_t parts_each) {
  has_strangers_ = processes > 1;
  parts_each_ = parts_each;
  hosts_ = nodes_.hosts.places();
  switches_ = nodes_.switches.places();
  places_ = nodes_.places;
  ends_ = nodes_.ends.places();
  disturbed_ = nodes_.disturbed;
  has_kernels_ = nodes_.has_kernels;
  has_head_lifetimes_ = nodes_.has_head_lifetimes;
  frames_.give(frames_.take());  // from now on, there is a first frame to prefetch
  if (nodes_.payload_bytes > 0) payloads_ = std::make_unique<port::Payloads>(nodes_.payload_bytes);
  for (auto& boxes : outboxes_) boxes.resize(std::size_t{processes} * parts_each);
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
  nodes_.ends.for_each([](LinkEnd& end) { end.peer_turn = 0; });
  constexpr std::size_t kept = 1 << 14;
  const auto before = std::exchange(rounds_, std::make_unique<Rounds>(turn, 1, kept));
  if (before == nullptr) return;
  while (before->begin(Time::never())) {
    for (std::uint32_t each; (each = before->next_node()) != Rounds::no_node;) {
      before->take(each, [this](const Rounds::Events& events, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) rounds_->add(0, events[i]);
      });
    }
  }
}

// --- the application's side ---

void Part::attend(std::uint32_t host) {
  if (has_kernels_) [[unlikely]]
    return attend_kernel(host);
  kick_host(end_of(host, 0));
  plan_deadline(host);
}

void Part::alarm(Time at, std::uint32_t host, std::uint32_t token) {
  TULLE_CHECK(at >= now_);
  const Place& place = places_[host];  // a host of another process has no end of a link here
  plan(event_at(at.ps, place.first_end, application, token), place.turn, place.part);
}

NetworkEvent Part::run(Time until) {
  for (;;) {
    if (events_of_turn_.empty()) {
      if (begin_turn(until)) continue;
      now_ = latest_;
      return {};
    }
    const Event event = events_of_turn_.pop();
    const NetworkEvent::Kind kind = step(event);
    if (kind != NetworkEvent::Kind::nothing) return {kind, host_of(event), event.datum};
  }
}

// Lets an event happen. Returns what of it the application must know.
inline NetworkEvent::Kind Part::step(Event event) {
  now_ = Time{event.at};
  ++events_;
  look_ahead();
  LinkEnd& end = ends_[event.place >> kind_bits];
  if (is_host(end.node)) return handle_at_host(event, end);
  handle_at_switch(event, end);
  return NetworkEvent::Kind::nothing;
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
  // A kernel's cores take a frame in, and touch its connection later.
  is_in_host_turn_ = is_host(own_[turn_]) && !has_kernels_ && !is_turn_shared();
  const std::uint32_t next = rounds_->peek_node();
  next_turn_ = {};
  if (next != Rounds::no_node) prepare_turn(next);
  events_of_turn_.begin(rounds_->start(), rounds_->end());
  rounds_->take(turn_, [this](const Rounds::Events& events, std::size_t count) {
    events_of_turn_.give(events, count);
  });
  events_of_turn_.sort();
  fetch_heads();
  return true;
}

// --- rounds ---

void Part::play_turns(Application& application) {
  while (begin_turn()) {
    while (!events_of_turn_.empty()) {
      const Event event = events_of_turn_.pop();
      const NetworkEvent::Kind kind = step(event);
      if (kind == NetworkEvent::Kind::nothing) [[likely]]
        continue;
      if (kind == NetworkEvent::Kind::alarm) {
        application.handle_alarm(now_, host_of(event), event.datum);
      } else {
        application.handle_completions(now_, host_of(event));
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
  next_turn_ = rounds_->view(turn);
  const std::uint32_t node = own_[turn];
  if (is_host(node)) {
    if (has_kernels_) hosts_[node].kernel->stack.prefetch();
    return hosts_[node].adapter.prefetch();
  }
  const fabric::Switch& at = switches_[node - hosts()];
  at.prefetch();
  nodes_.routes.prefetch_switch(node);
  for (std::uint16_t port = 0; port < at.ports(); ++port) {
    at.port(port).prefetch();
    tulle::prefetch(&end_of(node, port));
  }
}

// Prefetches the frames at the heads of a switch's queues, whose turn has begun.
void Part::fetch_heads() {
  const std::uint32_t node = own_[turn_];
  if (is_host(node) || is_turn_shared()) return;
  const fabric::Switch& at = switches_[node - hosts()];
  for (std::uint16_t number = 0; number < at.ports(); ++number) {
    at.port(number).prefetch(port::Port::Fetched::head);
  }
}

inline void Part::look_ahead() {
  if (!next_turn_.empty()) {
    rounds_->look(next_turn_, [this](const Event& event) { fetch_frame(event); });
  }
  const Event& later = events_of_turn_.peek_known();
  if (kind_of(later) != arrival) return;
  const Frame& frame = frames_[later.datum];
  if (is_in_host_turn_) {
    const LinkEnd& end = ends_[later.place >> kind_bits];
    hosts_[end.node].adapter.prefetch(wire::peek_destination_qp(frame.header));
  } else {
    nodes_.routes.prefetch_host(frame.destination);
  }
}

// Prefetches the frame that an event names. If it names none, the first frame is prefetched, since
// that takes less time than a branch that cannot be predicted.
inline void Part::fetch_frame(const Event& event) {
  frames_.prefetch(kind_of(event) == arrival ? event.datum : 0);
}

// --- events ---

inline void Part::handle_at_switch(Event event, LinkEnd& end) {
  switch (kind_of(event)) {
    case arrival:
      return arrive_at_switch(end, event.datum);
    case port_free:
      end.waits_for &= LinkEnd::its_link;
      return kick_switch(switches_[end.node - hosts()], end);
    default:
      return handle_anywhere(event, end);
  }
}

NetworkEvent::Kind Part::handle_at_host(Event event, LinkEnd& end) {
  Host& host = hosts_[end.node];
  switch (kind_of(event)) {
    case application:
      return NetworkEvent::Kind::alarm;
    case arrival:
      if (frames_[event.datum].damaged != 0) [[unlikely]] {
        discard(end, event.datum);
        return NetworkEvent::Kind::nothing;
      }
      arrive_at_host(end, event.datum);
      break;
    case port_free:
      end.waits_for &= LinkEnd::its_link;
      kick_host(end);
      break;
    case deadline:
      // An earlier deadline may have been planned since.
      if (host.deadline_planned == now_) host.deadline_planned = Time::never();
      host.adapter.handle_deadline(now_);
      attend(end.node);
      break;
    case slow_arrival:
      arrive_at_slow_host(end.node, event.datum);
      break;
    case taken_in:
      end_taking_in(end.node);
      break;
    case stack_work:
      run_kernel(end.node);
      break;
    default:
      handle_anywhere(event, end);
  }
  if (host.adapter.completions() == host.completions) return NetworkEvent::Kind::nothing;
  host.completions = host.adapter.completions();
  return NetworkEvent::Kind::host;
}

// Handles an event of a kind that hosts and switches have.
void Part::handle_anywhere(Event event, LinkEnd& end) {
  switch (kind_of(event)) {
    case control:
      return handle_control(end, Control::unpacked(event.datum));
    case pause_end:
      return end_pauses(end);
    case pause_renewal:
      return renew_pause(end);
    case watchdog:
      return watch(end);
    case fault:
      return handle_fault(end.node, end.number, nodes_.fault_actions[event.datum]);
    case notice:
      return handle_notice(end.node, event.datum);
    default:
      return;
  }
}

inline void Part::arrive_at_switch(LinkEnd& end, FrameRef ref) {
  if (frames_[ref].damaged != 0) [[unlikely]]
    return discard(end, ref);
  if (has_strangers_) [[unlikely]]
    check_credits(end, frames_[ref]);
  fabric::Switch& at = switches_[end.node - hosts()];
  const std::uint16_t number = at.receive(now_, end.number, ref);
  if (number == fabric::Switch::no_port) [[unlikely]] {
    let_go(end.node, ref);
  } else {
    LinkEnd& out = *(&end - end.number + number);
    kick_switch(at, out);
    if (has_head_lifetimes_) [[unlikely]]
      plan_head_watch(out);
  }
  kick_talkers(at, end.node);
}

// With credits, a frame finds room, or its sender has not kept to them. Throws if that is another
// process.
void Part::check_credits(const LinkEnd& end, const Frame& frame) const {
  if (!end.port->has_credits()) return;
  const std::uint32_t process = process_of_peer(end);
  if (process == number_ / parts_each_) return;
  const std::uint32_t lane = frame.service_class & (port::classes - 1);
  const std::uint32_t free = end.port->credits().receivers[lane].free_blocks();
  if (free < port::blocks_of(frame.buffer_bytes)) fail_at(process);
}

void Part::arrive_at_host(LinkEnd& end, FrameRef ref) {
  if (has_kernels_) [[unlikely]]
    return arrive_at_kernel(end.node, ref);
  hand_over(end.node, ref);
  if (end.port->has_credits()) take_in(*end.port, frames_[ref]);
  frames_.give(ref);
  kick_host(end);
  plan_deadline(end.node);
}

void Part::handle_control(LinkEnd& end, Control control) {
  if (control.kind == Control::Kind::pause) {
    handle_pause(end, control);
  } else {
    end.port->handle_control(now_, control);
  }
  kick(end);
}

void Part::handle_pause(LinkEnd& end, Control control) {
  const Time duration = pause_time(end, settings_);
  const bool fresh = end.port->handle_control(now_, control, duration);
  if (fresh && !is_host(end.node) && settings_.switches.watchdog > Time::zero()) {
    plan_once(end.watchdog_planned, now_ + settings_.switches.watchdog, end, watchdog);
  }
  if (control.pause.stop != 0) {
    plan_once(end.pause_end_planned, now_ + duration, end, pause_end);
  }
}

Time Part::pause_time(const LinkEnd& end, const NetworkSettings& settings) {
  return port::pause_time(settings.switches.pause_quanta, end.bits_per_second);
}

// Ends the pauses that the neighbour has not renewed.
void Part::end_pauses(LinkEnd& end) {
  end.pause_end_planned = false;
  const Time next = end.port->expire_pauses(now_);
  if (!next.is_never()) plan_once(end.pause_end_planned, next, end, pause_end);
  kick(end);
}

void Part::renew_pause(LinkEnd& end) {
  end.renewal_planned = false;
  end.port->stop(end.port->stopping());
  kick(end);
}

void Part::watch(LinkEnd& end) {
  end.watchdog_planned = false;
  if (is_host(end.node)) return watch_host(end.node);
  if (has_head_lifetimes_) return watch_heads(end);
  fabric::Switch& at = switches_[end.node - hosts()];
  if (at.watch(now_, end.number)) {
    plan_once(end.watchdog_planned, now_ + settings_.switches.watchdog, end, watchdog);
  }
  kick_talkers(at, end.node);
}

void Part::plan_once(bool& planned, Time at, const LinkEnd& end, Kind kind) {
  if (planned) return;
  planned = true;
  plan(at.ps, end, kind, 0);
}

void Part::plan_deadline(std::uint32_t number) {
  Host& host = hosts_[number];
  const Time deadline = std::max(host.adapter.next_deadline(), now_);
  if (deadline >= host.deadline_planned) return;
  host.deadline_planned = deadline;
  plan(deadline.ps, end_of(number, 0), Kind::deadline, 0);
}

void Part::plan(std::int64_t at, const LinkEnd& end, EventKind kind, std::uint32_t datum) {
  const Place& place = places_[end.node];
  plan(event_at(at, index_of(end), kind, datum), place.turn, place.part);
}

// --- sending ---

// Lets a port send if it has something to send. If the port is busy, it sends when it becomes free.
void Part::kick(LinkEnd& end) {
  if (is_host(end.node)) {
    kick_host(end);
  } else {
    kick_switch(switches_[end.node - hosts()], end);
  }
}

void Part::kick_host(LinkEnd& end) {
  if (end.waits_for != 0) return;
  const Host& host = hosts_[end.node];
  if (end.busy_until <= now_.ps && !send_first(end)) {
    const FrameRef ref = pull_from_host(end.node);
    if (ref == no_frame) return;
    send(end, ref);
  }
  if (has_more(host)) wait(end);
}

void Part::kick_switch(fabric::Switch& at, LinkEnd& end) {
  if (end.waits_for != 0) return;
  if (end.busy_until <= now_.ps && !send_first(end)) {
    const FrameRef ref = at.pull(now_, end.number);
    if (ref == no_frame) return;
    send(end, ref);
    kick_talkers(at, end.node);
  }
  if (at.has_more(*end.port)) wait(end);
}

void Part::kick_all_talkers(fabric::Switch& at, std::uint32_t node) {
  for (std::uint16_t port; (port = at.take_talker()) != fabric::Switch::no_port;) {
    kick_switch(at, end_of(node, port));
  }
}

// Sends what goes before frames. Returns false if there is nothing.
inline bool Part::send_first(LinkEnd& end) {
  if (end.port->has_control()) [[unlikely]] {
    send_control(end, end.port->pull_control());
    return true;
  }
  return settings_.endpoints.enabled && send_notice(end);
}

// Lets a port send again when it becomes free.
inline void Part::wait(LinkEnd& end) {
  end.waits_for |= LinkEnd::its_becoming_free;
  plan(end.busy_until, end, port_free, 0);
}

inline bool Part::has_more(const Host& host) const {
  const port::Port& port = host.adapter.port();
  if (port.has_control()) return true;
  if (has_kernels_) [[unlikely]]
    return kernel_has_frame(host);
  return host.adapter.has_ready(port.stopped());
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
void Part::discard(LinkEnd& end, FrameRef ref) {
  const Frame& frame = frames_[ref];
  if (settings_.switches.flow_control == FlowControl::credits) {
    take_in(*end.port, frame);
    kick(end);
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
  data_hops_ += frame.payload_bytes > 0 ? 1 : 0;
  if (lost) [[unlikely]] {
    frames_.give(ref);
  } else {
    plan_at_peer(arrives, end, end.arrives_as, ref);
  }
}

void Part::send_control(LinkEnd& end, Control control) {
  const std::uint32_t bytes = control.kind == Control::Kind::pause ? port::pause_link_bytes
                                                                   : port::credit_update_link_bytes;
  end.busy_until = now_.ps + time_on_link(end, bytes);
  // The pause is renewed after half of its time.
  if (control.kind == Control::Kind::pause && control.pause.stop != 0) {
    const Time duration = pause_time(end, settings_);
    plan_once(end.renewal_planned, now_ + Time{duration.ps / 2}, end, pause_renewal);
  }
  const std::int64_t arrives = end.busy_until + end.delay;
  const bool lost = !nodes_.port_faults.empty() && goes_down_by(end, arrives);
  if (!lost) plan_at_peer(arrives, end, Kind::control, control.packed());
  if (observers_.on_send) [[unlikely]]
    observers_.on_send(
        {now_, Time{arrives}, end.node, end.number, nullptr, control, nullptr, 0, lost});
}

}  // namespace tulle::sim
