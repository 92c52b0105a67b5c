#include "sim/links.h"

#include "rdma/port/framing/overhead.h"

namespace tulle::sim {

using port::Control;
using port::Frame;
using port::FrameRef;
using port::no_frame;

Links::Links(Nodes& nodes, const Observers& observers, Calendar& calendar, FrameStore& frames,
             Crossings& crossings, fabric::Switch::Notices& notices)
    : nodes_(nodes),
      observers_(observers),
      settings_(nodes.settings),
      ends_(nodes.ends.places()),
      places_(nodes.places),
      part_(crossings.part()),
      has_notices_(nodes.settings.endpoints.enabled),
      calendar_(calendar),
      frames_(frames),
      crossings_(crossings),
      notices_(notices),
      faults_(nodes) {}

// --- sending ---

inline std::int64_t Links::time_on_link(const LinkEnd& end, std::uint32_t bytes) {
  if (end.picoseconds_per_byte != 0) return end.picoseconds_per_byte * bytes;
  return std::int64_t{bytes} * 8'000'000'000'000 / end.bits_per_second;
}

void Links::send(LinkEnd& end, FrameRef ref) {
  Frame& frame = frames_[ref];
  frame.next = no_frame;
  const std::int64_t now = calendar_.now().ps;
  end.busy_until = now + time_on_link(end, frame.link_bytes());
  // A frame without a lane takes its time on the link, but is dropped (IBTA 7.6.6).
  if (frame.service_class == port::vl15) [[unlikely]]
    return frames_.give(ref);
  // A switch with cut-through acts on the first bit, every other receiver on the last.
  const std::int64_t arrives = (end.peer_cuts_through ? now : end.busy_until) + end.delay;
  const bool lost = faults_.disturb(end, frame, arrives);
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

void Links::tell_sending(Time arrives, const LinkEnd& end, FrameRef ref, bool lost) {
  const transport::Payload payload = frames_.payload_of(ref);
  observers_.on_send({calendar_.now(),
                      arrives,
                      end.node,
                      end.number,
                      &frames_[ref],
                      {},
                      payload.data,
                      payload.ghost_bytes,
                      lost});
}

void Links::send_control(LinkEnd& end, Control control) {
  const Time now = calendar_.now();
  const std::uint32_t bytes = control.kind == Control::Kind::pause ? port::pause_link_bytes
                                                                   : port::credit_update_link_bytes;
  end.busy_until = now.ps + time_on_link(end, bytes);
  // The pause is renewed after half of its time.
  if (control.kind == Control::Kind::pause && control.pause.stop != 0) {
    const Time half{pause_time(end).ps / 2};
    plan_once(end.renewal_planned, now + half, end, EventKind::pause_renewal);
  }
  const std::int64_t arrives = end.busy_until + end.delay;
  const bool lost = faults_.goes_down_by(end, arrives);
  if (!lost) plan_at_peer(arrives, end, EventKind::control, control.packed());
  if (observers_.on_send) [[unlikely]]
    observers_.on_send(
        {now, Time{arrives}, end.node, end.number, nullptr, control, nullptr, 0, lost});
}

// Sends a notice that waits at this port. Returns false if there is none. A notice is short and
// goes before frames, hop by hop, by the first of the routes (fabric/switch.h). Nothing holds it
// back, as on InfiniBand's management lane (IBTA 7.9: no flow control on VL15). Its memory in
// switches is not counted.
bool Links::send_notice(LinkEnd& end) {
  const std::uint32_t place = notices_.pop(end.port->management);
  if (place == port::ManagementLane::none) return false;
  const port::Overhead& around = overhead(settings_);
  const std::uint32_t bytes = around.stored_bytes(fabric::endpoint_notice_bytes) + around.gap_bytes;
  end.busy_until = calendar_.now().ps + time_on_link(end, bytes);
  const std::int64_t arrives = end.busy_until + end.delay;
  if (faults_.goes_down_by(end, arrives)) {
    notices_.give(place);
  } else {
    plan_at_peer(arrives, end, EventKind::notice, place);
  }
  return true;
}

// --- flow control ---

void Links::handle_flow_control(Event event, LinkEnd& end) {
  switch (kind_of(event)) {
    case EventKind::control: {
      const Control control = Control::unpacked(event.datum);
      if (control.kind == Control::Kind::pause) return handle_pause(end, control);
      end.port->handle_control(calendar_.now(), control);
      return;
    }
    case EventKind::pause_end:
      return end_pauses(end);
    case EventKind::pause_renewal:
      end.renewal_planned = false;
      end.port->stop(end.port->stopping());
      return;
    default:
      return;
  }
}

void Links::handle_pause(LinkEnd& end, Control control) {
  const Time now = calendar_.now(), duration = pause_time(end);
  const bool fresh = end.port->handle_control(now, control, duration);
  if (fresh && !nodes_.is_host(end.node) && settings_.switches.watchdog > Time::zero()) {
    plan_once(end.watchdog_planned, now + settings_.switches.watchdog, end, EventKind::watchdog);
  }
  if (control.pause.stop != 0) {
    plan_once(end.pause_end_planned, now + duration, end, EventKind::pause_end);
  }
}

Time Links::pause_time(const LinkEnd& end) const {
  return port::pause_time(settings_.switches.pause_quanta, end.bits_per_second);
}

// Ends the pauses that the neighbour has not renewed.
void Links::end_pauses(LinkEnd& end) {
  end.pause_end_planned = false;
  const Time next = end.port->expire_pauses(calendar_.now());
  if (!next.is_never()) plan_once(end.pause_end_planned, next, end, EventKind::pause_end);
}

// --- links that go ---

void Links::begin_going_down(LinkEnd& end) {
  end.waits_for |= LinkEnd::its_link;
  faults_.go_down(end);
}

void Links::end_going_down(const LinkEnd& end) {
  if (!observers_.on_link_change) return;
  observers_.on_link_change({calendar_.now(), end.node, end.number, false});
}

void Links::come_up(LinkEnd& end) {
  end.waits_for = static_cast<std::uint8_t>(end.waits_for & ~LinkEnd::its_link);
  end.port->bring_up();
  if (!observers_.on_link_change) return;
  observers_.on_link_change({calendar_.now(), end.node, end.number, true});
}

}  // namespace tulle::sim
