#include "sim/part.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tulle::sim {

// --- set-up ---

Part::Part(Nodes& nodes, const Observers& observers, std::uint32_t number)
    : nodes_(nodes),
      hosts_(static_cast<std::uint32_t>(nodes.hosts.size())),
      has_kernels_(nodes.has_kernels),
      frames_(nodes),
      crossings_(nodes, number, calendar_, frames_, notices_),
      links_(nodes, observers, calendar_, frames_, crossings_, notices_),
      host_driver_(nodes, calendar_, frames_, links_, notices_),
      switch_driver_(nodes, observers, number, calendar_, frames_, links_) {}

void Part::own(std::vector<std::uint32_t> nodes) {
  own_ = std::move(nodes);
  for (std::uint32_t turn = 0; turn < own_.size(); ++turn) {
    Place& place = nodes_.places[own_[turn]];
    place.turn = turn & 0xFF'FFFF;
    place.part = number() & 0xFF;
  }
}

void Part::take_turns(Time round) {
  calendar_.take_turns(round, static_cast<std::uint32_t>(own_.size()), nodes_.delay_max);
}

void Part::share_turn(Time turn) {
  for (Place& place : nodes_.places) place.turn = 0;
  nodes_.ends.for_each([](LinkEnd& end) { end.peer_turn = 0; });
  calendar_.share_turn(turn);
}

// --- the application's side ---

void Part::alarm(Time at, std::uint32_t host, std::uint32_t token) {
  TULLE_CHECK(at >= now());
  const Place& place = nodes_.places[host];  // a host of another process has no end of a link here
  links_.plan(event_at(at.ps, place.first_end, EventKind::application, token), place.turn,
              place.part);
}

NetworkEvent Part::run(Time until) {
  for (;;) {
    if (calendar_.is_turn_over()) {
      if (begin_turn() || calendar_.begin_round(until)) continue;
      calendar_.rest();
      return {};
    }
    const Event event = calendar_.pop();
    const NetworkEvent::Kind kind = step(event);
    if (kind != NetworkEvent::Kind::nothing) return {kind, host_of(event), event.datum};
  }
}

// Lets an event happen. Returns what of it the application must know.
inline NetworkEvent::Kind Part::step(Event event) {
  look_ahead();
  LinkEnd& end = links_.end_of(event);
  if (is_host(end.node)) return host_driver_.handle(event, end);
  switch_driver_.handle(event, end);
  return NetworkEvent::Kind::nothing;
}

// Begins the turn of the next node that has something to do in the present round. Returns false if
// all nodes have had their turns.
bool Part::begin_turn() {
  if (!calendar_.begin_turn([this](std::uint32_t next) { fetch_node(own_[next]); })) return false;
  const bool is_alone = !calendar_.is_turn_shared();
  const std::uint32_t node = own_[calendar_.turn()];
  // A kernel's cores take a frame in, and touch its connection later.
  is_in_host_turn_ = is_host(node) && !has_kernels_ && is_alone;
  if (!is_host(node) && is_alone) switch_driver_.prefetch_heads(node);
  return true;
}

// --- rounds ---

void Part::play_turns(Application& application) {
  while (begin_turn()) {
    while (!calendar_.is_turn_over()) {
      const Event event = calendar_.pop();
      const NetworkEvent::Kind kind = step(event);
      if (kind == NetworkEvent::Kind::nothing) [[likely]]
        continue;
      if (kind == NetworkEvent::Kind::alarm) {
        application.handle_alarm(now(), host_of(event), event.datum);
      } else {
        application.handle_completions(now(), host_of(event));
      }
    }
  }
}

bool Part::play_alone(Time until, Application& application) {
  std::uint64_t looked = events();
  while (calendar_.begin_round(until)) {
    play_turns(application);
    if (events() - looked < events_between_looks) continue;
    looked = events();
    calendar_.rest();
    if (!application.goes_on()) return false;
  }
  calendar_.rest();
  return true;
}

void Part::play(Time start, Time end, unsigned parity, Application& application) {
  crossings_.begin_round(parity);
  calendar_.begin_round_at(start, end);
  play_turns(application);
}

Time Part::earliest_event() const { return std::min(calendar_.next(), crossings_.earliest()); }

Time Part::earliest_round() const {
  const Time sent = crossings_.earliest();
  const Time planned = calendar_.next_round();
  return sent.is_never() ? planned : std::min(planned, calendar_.round_of(sent));
}

Time Part::last_loss() const { return std::max(links_.last_loss(), host_driver_.last_loss()); }

// --- what is prefetched ---

// Prefetches the data that the next node's turn will touch. A cluster does not fit in a cache, and
// this happens during the present turn, so that little time is spent waiting for memory.
void Part::fetch_node(std::uint32_t node) {
  if (is_host(node)) return host_driver_.prefetch(node);
  switch_driver_.prefetch(node);
}

inline void Part::look_ahead() {
  calendar_.look_ahead([this](const Event& event) { fetch_frame(event); });
  const Event& later = calendar_.peek_known();
  if (kind_of(later) != EventKind::arrival) return;
  if (is_in_host_turn_) {
    host_driver_.prefetch(later);
  } else {
    nodes_.routes.prefetch_host(frames_[later.datum].destination);
  }
}

// Prefetches the frame that an event names. If it names none, the first frame is prefetched, since
// that takes less time than a branch that cannot be predicted.
inline void Part::fetch_frame(const Event& event) {
  frames_.pool().prefetch(kind_of(event) == EventKind::arrival ? event.datum : 0);
}

}  // namespace tulle::sim
