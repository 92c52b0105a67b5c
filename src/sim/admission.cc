#include "sim/admission.h"

#include <algorithm>
#include <cstring>

namespace tulle::sim {

using port::Control;
using port::FlowControl;
using port::Frame;

bool Admission::accepts(std::uint32_t process, const CrossingView& box, Time earliest,
                        const Application& application) const {
  const Origin from{process, earliest};
  if (!accepts_frames(from, box) || !accepts_notices(from, box)) return false;
  const auto may_happen = [&](const Event& event) {
    return accepts_event(from, event, application);
  };
  if (!std::ranges::all_of(box.events, may_happen)) return false;
  return std::ranges::all_of(box.requests, [&](const Crossing::Request& request) {
    return nodes_.is_host(request.host) && nodes_.places[request.host].part == part_ &&
           application.accepts_request(request.host, request.token, request.note);
  });
}

bool Admission::accepts_frames(const Origin& from, const CrossingView& box) const {
  if (box.payloads.size() != box.frames.size() * payload_room_) return false;
  for (std::size_t i = 0; i < box.frames.size(); ++i) {
    const Frame& frame = box.frames[i];
    const Event& event = box.arrivals[i];
    if (kind_of(event) != arrival && kind_of(event) != slow_arrival) return false;
    if (!accepts(event, from.earliest) || !accepts(frame) || !comes_from(from, event)) return false;
    if (!nodes_.carries_fronts || !frame.is_tcp()) continue;
    std::uint32_t front = 0;
    std::memcpy(&front, box.payloads.data() + i * payload_room_, sizeof front);
    if (front > payload_room_ - sizeof front || front > frame.payload_bytes) return false;
  }
  return true;
}

bool Admission::accepts_notices(const Origin& from, const CrossingView& box) const {
  if (!box.notices.empty() && !nodes_.settings.endpoints.enabled) return false;
  return std::ranges::all_of(box.notices, [&](const Crossing::NoticeArrival& at) {
    return kind_of(at.event) == notice && accepts(at.event, from.earliest) &&
           nodes_.is_host(at.notice.source) && nodes_.is_host(at.notice.endpoint) &&
           comes_from(from, at.event);
  });
}

// Returns true if an event that names nothing else may happen.
bool Admission::accepts_event(const Origin& from, const Event& event,
                              const Application& application) const {
  if (!accepts(event, from.earliest)) return false;
  if (kind_of(event) == EventKind::application) {
    return application.accepts_alarm(nodes_.ends[end_index_of(event)].node, event.datum);
  }
  return kind_of(event) == control && is_control(event.datum) && comes_from(from, event);
}

// Returns true if a message of flow control is of a kind that this network has.
bool Admission::is_control(std::uint32_t datum) const {
  const Control message = Control::unpacked(datum);
  if (message.packed() != datum) return false;
  const FlowControl flow_control = nodes_.settings.switches.flow_control;
  if (message.kind == Control::Kind::pause) return flow_control == FlowControl::pfc;
  return flow_control == FlowControl::credits && message.credit.lane < port::classes;
}

bool Admission::comes_from(const Origin& from, const Event& event) const {
  return nodes_.process_of(nodes_.ends[end_index_of(event)].peer_part) == from.process;
}

// Returns true if the event is at one of this part's ports, and not before that time. An earlier
// one would stay in a round that is over.
bool Admission::accepts(const Event& event, Time earliest) const {
  const std::size_t index = end_index_of(event);
  if (!nodes_.ends.has(index) || event.at < earliest.ps) return false;
  const LinkEnd& end = nodes_.ends[index];
  if (nodes_.places[end.node].part != part_) return false;
  const auto kind = kind_of(event);
  const bool is_at_host = nodes_.is_host(end.node);
  const bool is_slow = is_at_host && nodes_.hosts[end.node].intake != nullptr;
  if (kind == arrival || kind == slow_arrival) return is_slow == (kind == slow_arrival);
  return kind != EventKind::application || is_at_host;
}

bool Admission::accepts(const Frame& frame) const {
  const std::uint32_t groups =
      nodes_.non_minimal == nullptr ? 0 : nodes_.non_minimal->groups().groups();
  return frame.via <= groups && nodes_.is_host(frame.source) && nodes_.is_host(frame.destination) &&
         frame.service_class < port::classes && frame.header_bytes <= Frame::header_bytes_max &&
         frame.headers <= static_cast<std::uint8_t>(port::FrameHeaders::tcp);
}

}  // namespace tulle::sim
