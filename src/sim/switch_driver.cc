#include "sim/switch_driver.h"

#include "sim/processes.h"

namespace tulle::sim {

using port::Frame;
using port::FrameRef;
using port::no_frame;

SwitchDriver::SwitchDriver(Nodes& nodes, const Observers& observers, std::uint32_t part,
                           Calendar& calendar, FrameStore& frames, Links& links)
    : nodes_(nodes),
      observers_(observers),
      settings_(nodes.settings),
      switches_(nodes.switches.places()),
      first_(static_cast<std::uint32_t>(nodes.hosts.size())),
      part_(part),
      has_strangers_(nodes.processes > 1),
      has_head_lifetimes_(nodes.has_head_lifetimes),
      calendar_(calendar),
      frames_(frames),
      links_(links) {}

void SwitchDriver::prefetch(std::uint32_t node) {
  const fabric::Switch& at = this->at(node);
  at.prefetch();
  nodes_.routes.prefetch_switch(node);
  for (std::uint16_t port = 0; port < at.ports(); ++port) {
    at.port(port).prefetch();
    tulle::prefetch(&links_.end_of(node, port));
  }
}

void SwitchDriver::prefetch_heads(std::uint32_t node) const {
  const fabric::Switch& at = this->at(node);
  for (std::uint16_t number = 0; number < at.ports(); ++number) {
    at.port(number).prefetch(port::Port::Fetched::head);
  }
}

// --- frames ---

// Discards a frame that fails the link layer's check (FCS, VCRC). The frame has taken room in the
// receiver all the same.
void SwitchDriver::discard(LinkEnd& end, FrameRef ref) {
  if (end.port->has_credits()) {
    Links::take_in(*end.port, frames_[ref]);
    kick(at(end.node), end);
  }
  frames_.give(ref);
}

// Gives up a frame that a switch has dropped.
void SwitchDriver::let_go(std::uint32_t node, FrameRef ref) {
  if (observers_.on_loss) [[unlikely]]
    observers_.on_loss({calendar_.now(), node, &frames_[ref]});
  frames_.give(ref);
}

// With credits, a frame finds room, or its sender has not kept to them. Throws if that is another
// process.
void SwitchDriver::check_credits(const LinkEnd& end, const Frame& frame) const {
  if (!end.port->has_credits()) return;
  const std::uint32_t process = nodes_.process_of(end.peer_part);
  if (process == nodes_.process_of(part_)) return;
  const std::uint32_t lane = frame.service_class & (port::classes - 1);
  const std::uint32_t free = end.port->credits().receivers[lane].free_blocks();
  if (free < port::blocks_of(frame.buffer_bytes)) fail_at(process);
}

// Lets a port send if it has something to send. If the port is busy, it sends when it becomes free.
void SwitchDriver::kick(fabric::Switch& at, LinkEnd& end) {
  if (end.waits_for != 0) return;
  if (end.busy_until <= calendar_.now().ps && !links_.send_first(end)) {
    const FrameRef ref = at.pull(calendar_.now(), end.number);
    if (ref == no_frame) return;
    links_.send(end, ref);
    kick_talkers(at, end.node);
  }
  if (at.has_more(*end.port)) links_.wait(end);
}

void SwitchDriver::kick_all_talkers(fabric::Switch& at, std::uint32_t node) {
  for (std::uint16_t port; (port = at.take_talker()) != fabric::Switch::no_port;) {
    kick(at, links_.end_of(node, port));
  }
}

// --- other events ---

void SwitchDriver::handle_rare(Event event, LinkEnd& end) {
  switch (kind_of(event)) {
    case EventKind::watchdog:
      return watch(end);
    case EventKind::fault:
      return handle_fault(end, nodes_.fault_actions[event.datum]);
    case EventKind::notice: {
      const std::uint16_t way = at(end.node).forward_notice(event.datum);
      if (way != fabric::Switch::no_port) kick(at(end.node), links_.end_of(end.node, way));
      return;
    }
    default:
      links_.handle_flow_control(event, end);
      kick(at(end.node), end);
  }
}

void SwitchDriver::handle_fault(LinkEnd& end, const FaultAction& action) {
  switch (action.kind) {
    case FaultAction::Kind::go_down:
      return go_down(end);
    case FaultAction::Kind::come_up:
      links_.come_up(end);
      return kick(at(end.node), end);
    case FaultAction::Kind::bit_errors:
      return links_.set_bit_error_rate(end, action.bit_error_rate);
    case FaultAction::Kind::reroute:
      return at(end.node).reroute(*action.routes);
    case FaultAction::Kind::avoid:
      return at(end.node).avoid(end.number, true);
    case FaultAction::Kind::stop_avoiding:
      return at(end.node).avoid(end.number, false);
    default:
      return;  // a host's
  }
}

// Frames that wait for a port are lost with its link, as Ethernet switches flush the queue of a
// port without a link, and InfiniBand switches drop the packets that they cannot send (IBTA
// 18.2.5.4).
void SwitchDriver::go_down(LinkEnd& end) {
  links_.begin_going_down(end);
  fabric::Switch& at = this->at(end.node);
  for (FrameRef ref = at.take_down(calendar_.now(), end.number); ref != no_frame;) {
    const FrameRef next = frames_[ref].next;
    let_go(end.node, ref);
    ref = next;
  }
  kick_talkers(at, end.node);
  links_.end_going_down(end);
}

void SwitchDriver::watch(LinkEnd& end) {
  end.watchdog_planned = false;
  if (has_head_lifetimes_) return watch_heads(end);
  fabric::Switch& at = this->at(end.node);
  const Time now = calendar_.now();
  if (at.watch(now, end.number)) {
    links_.plan_once(end.watchdog_planned, now + settings_.switches.watchdog, end,
                     EventKind::watchdog);
  }
  kick_talkers(at, end.node);
}

// --- frames that stay at the head of a queue too long ---

// Plans a check of the heads of a port's queues, because a frame waits there.
void SwitchDriver::plan_head_watch(LinkEnd& end) {
  const Time lifetime = at(end.node).head_lifetime(end.number);
  if (lifetime == Time::zero()) return;
  links_.plan_once(end.watchdog_planned, calendar_.now() + lifetime, end, EventKind::watchdog);
}

// Discards frames that have been at the head of a queue too long, and plans the next check for the
// earliest time at which another may have.
void SwitchDriver::watch_heads(LinkEnd& end) {
  fabric::Switch& at = this->at(end.node);
  const Time next = at.discard_heads(calendar_.now(), end.number);
  if (!next.is_never()) {
    links_.plan_once(end.watchdog_planned, next, end, EventKind::watchdog);
  }
  kick(at, end);
  kick_talkers(at, end.node);
}

}  // namespace tulle::sim
