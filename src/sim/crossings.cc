#include "sim/crossings.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "sim/event_kind.h"

namespace tulle::sim {
namespace {

// Distance, in frames ahead of the present one, at which free frames are fetched.
constexpr std::size_t free_distance = 12;

}  // namespace

Crossings::Crossings(const Nodes& nodes, std::uint32_t part, Calendar& calendar, FrameStore& frames,
                     fabric::Switch::Notices& notices)
    : nodes_(nodes),
      part_(part),
      calendar_(calendar),
      frames_(frames),
      notices_(notices),
      admission_(nodes, part, frames.payload_room()) {
  for (auto& boxes : outboxes_) boxes.resize(std::size_t{nodes.processes} * nodes.parts_each);
}

void Crossings::send(std::uint32_t part, Event event) {
  TULLE_CHECK(event.at >= calendar_.turn_end().ps);
  Crossing& box = outboxes_[parity_][part];
  box.note(event);
  switch (kind_of(event)) {
    case EventKind::arrival:
    case EventKind::slow_arrival: {
      box.add(event, frames_[event.datum]);
      const auto payload = frames_.payload_memory(event.datum);
      box.payloads.insert(box.payloads.end(), payload.begin(), payload.end());
      return frames_.give(event.datum);
    }
    case EventKind::notice:
      box.notices.push_back({event, notices_[event.datum]});
      return notices_.give(event.datum);
    default:
      box.events.push_back(event);
  }
}

void Crossings::request(std::uint32_t host, std::uint32_t token, std::uint32_t note) {
  outboxes_[parity_][nodes_.places[host].part].requests.push_back({host, token, note});
}

Time Crossings::earliest() const {
  std::int64_t earliest = Time::never().ps;
  for (const Crossing& box : outboxes_[parity_]) earliest = std::min(earliest, box.earliest);
  return Time{earliest};
}

void Crossings::take_from(Crossings& other, unsigned parity, Application& application) {
  Crossing& box = other.outboxes_[parity][part_];
  if (box.is_empty()) return;
  take(CrossingView(box), application);
  box.clear();
}

void Crossings::take(const CrossingView& box, Application& application) {
  for (const auto& [host, token, note] : box.requests) application.meet_request(host, token, note);
  port::FramePool& pool = frames_.pool();
  const std::size_t room = frames_.payload_room();
  for (std::size_t i = 0; i < box.frames.size(); ++i) {
    pool.prefetch_free(free_distance);
    box.fetch_after(i);
    Event event = box.arrivals[i];
    event.datum = pool.take();
    pool[event.datum] = box.frames[i];
    if (room > 0) {
      std::ranges::copy(box.payloads.subspan(i * room, room),
                        frames_.payload_memory(event.datum).begin());
    }
    add(event);
  }
  for (auto [event, message] : box.notices) {
    event.datum = notices_.take(message);
    add(event);
  }
  for (const Event& event : box.events) add(event);
}

inline void Crossings::add(Event event) {
  const LinkEnd& end = nodes_.ends[end_index_of(event)];
  calendar_.add(nodes_.places[end.node].turn, event);
}

// The boxes for other processes have been sent by now. They are swapped so that the next round
// writes to the same memory.
void Crossings::forget_sent(std::uint32_t first, std::uint32_t own) {
  for (std::uint32_t part = 0; part < outboxes_[parity_].size(); ++part) {
    if (part - first < own) continue;
    TULLE_CHECK(outboxes_[parity_ ^ 1][part].is_empty());
    outboxes_[parity_][part].clear();
    std::swap(outboxes_[parity_][part], outboxes_[parity_ ^ 1][part]);
  }
}

bool Crossings::take_sent(std::uint32_t process, const CrossingView& crossing, Time earliest,
                          Application& application) {
  const Time first = std::max(earliest, calendar_.round_end());
  if (!admission_.accepts(process, crossing, first, application)) return false;
  take(crossing, application);
  return true;
}

}  // namespace tulle::sim
