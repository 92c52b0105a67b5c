// Frames and events cross between the parts of a network here, in one process or between two
// (sim/crossing.h).

#include <algorithm>
#include <cstring>
#include <utility>

#include "sim/part.h"

namespace tulle::sim {

using port::Control;
using port::FlowControl;
using port::Frame;

namespace {

// Distance, in frames ahead of the present one, at which free frames are fetched.
constexpr std::size_t free_distance = 12;

}  // namespace

// Sends an event to a node of another part.
void Part::send_away(std::uint32_t part, Event event) {
  TULLE_CHECK(event.at >= turn_end_.ps);
  Crossing& box = outboxes_[parity_][part];
  box.note(event);
  switch (kind_of(event)) {
    case arrival:
    case slow_arrival:
      box.add(event, frames_[event.datum]);
      if (payloads_ != nullptr) {
        const std::byte* payload = payloads_->of(event.datum);
        box.payloads.insert(box.payloads.end(), payload, payload + payloads_->bytes_each());
      }
      return frames_.give(event.datum);
    case notice:
      box.notices.push_back({event, notices_[event.datum]});
      return notices_.give(event.datum);
    default:
      box.events.push_back(event);
  }
}

void Part::request_elsewhere(std::uint32_t host, std::uint32_t token, std::uint32_t note) {
  outboxes_[parity_][places_[host].part].requests.push_back({host, token, note});
}

void Part::take_from(Part& other, unsigned parity, Application& application) {
  Crossing& box = other.outboxes_[parity][number_];
  if (box.is_empty()) return;
  take(CrossingView(box), application);
  box.clear();
}

void Part::take(const CrossingView& box, Application& application) {
  for (const auto& [host, token, note] : box.requests) application.meet_request(host, token, note);
  for (std::size_t i = 0; i < box.frames.size(); ++i) {
    frames_.prefetch_free(free_distance);
    box.fetch_after(i);
    Event event = box.arrivals[i];
    event.datum = frames_.take();
    frames_[event.datum] = box.frames[i];
    if (payloads_ != nullptr) {
      const std::size_t each = payloads_->bytes_each();
      std::copy_n(box.payloads.data() + i * each, each, payloads_->of(event.datum));
    }
    add(event);
  }
  for (auto [event, message] : box.notices) {
    event.datum = notices_.take(message);
    add(event);
  }
  for (const Event& event : box.events) add(event);
}

// --- between processes ---

// The boxes for other processes have been sent by now. They are swapped so that the next round
// writes to the same memory.
void Part::forget_sent(std::uint32_t first, std::uint32_t own) {
  for (std::uint32_t part = 0; part < outboxes_[parity_].size(); ++part) {
    if (part - first < own) continue;
    TULLE_CHECK(outboxes_[parity_ ^ 1][part].is_empty());
    outboxes_[parity_][part].clear();
    std::swap(outboxes_[parity_][part], outboxes_[parity_ ^ 1][part]);
  }
}

bool Part::take_sent(std::uint32_t process, const CrossingView& crossing, Time earliest,
                     Application& application) {
  if (!accepts(process, crossing, std::max(earliest, rounds_->end()), application)) return false;
  take(crossing, application);
  return true;
}

// Returns true if all of it may come to this part now. Frames, notices and flow control come over a
// link from one of that process's nodes.
bool Part::accepts(std::uint32_t process, const CrossingView& box, Time earliest,
                   const Application& told) const {
  const auto is_of_kind = [this, earliest](const Event& event, auto... kinds) {
    const auto kind = kind_of(event);
    return ((kind == kinds) || ...) && accepts(event, earliest);
  };
  const auto comes_from_there = [this, process](const Event& event) {
    return process_of_peer(ends_[event.place >> kind_bits]) == process;
  };
  const std::size_t each = payloads_ == nullptr ? 0 : payloads_->bytes_each();
  if (box.payloads.size() != box.frames.size() * each) return false;
  for (std::size_t i = 0; i < box.frames.size(); ++i) {
    const Frame& frame = box.frames[i];
    const Event& event = box.arrivals[i];
    if (!is_of_kind(event, arrival, slow_arrival) || !accepts(frame)) return false;
    if (!comes_from_there(event)) return false;
    if (!nodes_.carries_fronts || !frame.is_tcp()) continue;
    std::uint32_t front = 0;
    std::memcpy(&front, box.payloads.data() + i * each, sizeof front);
    if (front > each - sizeof front || front > frame.payload_bytes) return false;
  }
  if (!box.notices.empty() && !settings_.endpoints.enabled) return false;
  for (const Crossing::NoticeArrival& at : box.notices) {
    const bool names_hosts = at.notice.source < hosts() && at.notice.endpoint < hosts();
    if (!is_of_kind(at.event, notice) || !names_hosts) return false;
    if (!comes_from_there(at.event)) return false;
  }
  for (const Event& event : box.events) {
    const auto kind = kind_of(event);
    const bool is_known = kind == application || (kind == control && is_control(event.datum));
    if (!accepts(event, earliest) || !is_known) return false;
    if (kind != application) {
      if (!comes_from_there(event)) return false;
      continue;
    }
    if (!told.accepts_alarm(ends_[event.place >> kind_bits].node, event.datum)) return false;
  }
  return std::ranges::all_of(box.requests, [&](const Crossing::Request& request) {
    return request.host < hosts() && places_[request.host].part == number_ &&
           told.accepts_request(request.host, request.token, request.note);
  });
}

// Returns true if a message of flow control is of a kind that this network has.
bool Part::is_control(std::uint32_t datum) const {
  const Control message = Control::unpacked(datum);
  if (message.packed() != datum) return false;
  const FlowControl flow_control = settings_.switches.flow_control;
  if (message.kind == Control::Kind::pause) return flow_control == FlowControl::pfc;
  return flow_control == FlowControl::credits && message.credit.lane < port::classes;
}

// Returns true if the event is at one of this part's ports, and not before that time. An earlier
// one would stay in a round that is over.
bool Part::accepts(const Event& event, Time earliest) const {
  const std::size_t index = event.place >> kind_bits;
  if (!nodes_.ends.has(index) || event.at < earliest.ps) return false;
  const LinkEnd& end = ends_[index];
  if (places_[end.node].part != number_) return false;
  const auto kind = kind_of(event);
  const bool is_at_host = end.node < hosts();
  const bool is_slow = is_at_host && hosts_[end.node].intake != nullptr;
  if (kind == arrival || kind == slow_arrival) return is_slow == (kind == slow_arrival);
  return kind != application || is_at_host;
}

bool Part::accepts(const Frame& frame) const {
  const std::uint32_t groups =
      nodes_.non_minimal == nullptr ? 0 : nodes_.non_minimal->groups().groups();
  return frame.via <= groups && frame.source < hosts() && frame.destination < hosts() &&
         frame.service_class < port::classes && frame.header_bytes <= Frame::header_bytes_max &&
         frame.headers <= static_cast<std::uint8_t>(port::FrameHeaders::tcp);
}

}  // namespace tulle::sim
