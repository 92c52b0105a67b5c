#include "sim/host_driver.h"

#include <algorithm>
#include <memory>

#include "sim/addresses.h"
#include "sim/kernel_driver.h"

namespace tulle::sim {

using port::FlowControl;
using port::Frame;
using port::FrameRef;
using port::no_frame;

static_assert(no_frame == device::HostStack::no_frame);

Host::Host(const device::Configuration& configuration) : adapter(configuration) {}
Host::~Host() = default;

HostDriver::HostDriver(Nodes& nodes, Calendar& calendar, FrameStore& frames, Links& links,
                       fabric::Switch::Notices& notices)
    : nodes_(nodes),
      settings_(nodes.settings),
      hosts_(nodes.hosts.places()),
      has_kernels_(nodes.has_kernels),
      calendar_(calendar),
      frames_(frames),
      links_(links),
      notices_(notices) {}

void HostDriver::add_kernel(std::uint32_t number) {
  Host& host = hosts_[number];
  host.kernel = std::make_unique<KernelDriver>(calendar_, frames_, number, settings_.host.stack,
                                               host.adapter);
}

void HostDriver::prefetch(std::uint32_t number) const {
  if (has_kernels_) hosts_[number].kernel->stack.prefetch();
  hosts_[number].adapter.prefetch();
}

NetworkEvent::Kind HostDriver::handle(Event event, LinkEnd& end) {
  Host& host = hosts_[end.node];
  switch (kind_of(event)) {
    case EventKind::application:
      return NetworkEvent::Kind::alarm;
    case EventKind::arrival:
      if (frames_[event.datum].damaged != 0) [[unlikely]] {
        discard(end, event.datum);
        return NetworkEvent::Kind::nothing;
      }
      arrive(end, event.datum);
      break;
    case EventKind::port_free:
      end.waits_for &= LinkEnd::its_link;
      kick(end);
      break;
    case EventKind::deadline:
      // An earlier deadline may have been planned since.
      if (host.deadline_planned == calendar_.now()) host.deadline_planned = Time::never();
      host.adapter.handle_deadline(calendar_.now());
      attend(end.node);
      break;
    case EventKind::slow_arrival:
      arrive_at_slow(end.node, event.datum);
      break;
    case EventKind::taken_in:
      end_taking_in(end.node);
      break;
    case EventKind::stack_work:
      run_kernel(end.node);
      break;
    case EventKind::watchdog:
      end.watchdog_planned = false;
      watch(end.node);
      break;
    case EventKind::fault:
      handle_fault(end, nodes_.fault_actions[event.datum]);
      break;
    case EventKind::notice:
      handle_notice(end.node, event.datum);
      break;
    default:
      links_.handle_flow_control(event, end);
      kick(end);
  }
  if (host.adapter.completions() == host.completions) return NetworkEvent::Kind::nothing;
  host.completions = host.adapter.completions();
  return NetworkEvent::Kind::host;
}

void HostDriver::attend(std::uint32_t number) {
  if (has_kernels_) [[unlikely]] {
    hosts_[number].kernel->stack.attend(calendar_.now());
    return run_kernel(number);
  }
  kick(links_.end_of(number, 0));
  plan_deadline(number);
}

// --- frames ---

void HostDriver::arrive(LinkEnd& end, FrameRef ref) {
  if (has_kernels_) [[unlikely]]
    return arrive_at_kernel(end.node, ref);
  hand_over(end.node, ref);
  if (end.port->has_credits()) Links::take_in(*end.port, frames_[ref]);
  frames_.give(ref);
  kick(end);
  plan_deadline(end.node);
}

inline void HostDriver::hand_over(std::uint32_t number, FrameRef ref) {
  frames_.hand_over(calendar_.now(), hosts_[number].adapter, ref);
}

// Discards a frame that fails the link layer's check (FCS, VCRC). The frame has taken room in the
// receiver all the same.
void HostDriver::discard(LinkEnd& end, FrameRef ref) {
  if (end.port->has_credits()) {
    Links::take_in(*end.port, frames_[ref]);
    kick(end);
  }
  frames_.give(ref);
}

// Lets a host send if it has something to send. If the port is busy, it sends when it becomes free.
void HostDriver::kick(LinkEnd& end) {
  if (end.waits_for != 0) return;
  const Host& host = hosts_[end.node];
  if (end.busy_until <= calendar_.now().ps && !links_.send_first(end)) {
    const FrameRef ref = pull(end.node);
    if (ref == no_frame) return;
    links_.send(end, ref);
  }
  if (has_more(host)) links_.wait(end);
}

inline bool HostDriver::has_more(const Host& host) const {
  const port::Port& port = host.adapter.port();
  if (port.has_control()) return true;
  if (has_kernels_) [[unlikely]]
    return kernel_has_frame(host);
  return host.adapter.has_ready(port.stopped());
}

FrameRef HostDriver::pull(std::uint32_t number) {
  Host& host = hosts_[number];
  if (has_kernels_) [[unlikely]]
    return pull_from_kernel(number);
  if (!host.adapter.has_ready()) return no_frame;
  const bool pulled = host.adapter.pull_datagram(calendar_.now(), outgoing_);
  plan_deadline(number);  // for the answer to this packet, or for the time when one may be sent
  if (!pulled) return no_frame;
  const FrameRef ref = frames_.make(number, outgoing_);
  const Frame& frame = frames_[ref];
  if (frame.service_class == port::vl15) [[unlikely]] {
    ++host.adapter.port().counters().unmapped;
  } else {
    host.adapter.port().count_sent(frame);
  }
  return ref;
}

void HostDriver::plan_deadline(std::uint32_t number) {
  Host& host = hosts_[number];
  const Time deadline = std::max(host.adapter.next_deadline(), calendar_.now());
  if (deadline >= host.deadline_planned) return;
  host.deadline_planned = deadline;
  links_.plan(deadline.ps, links_.end_of(number, 0), EventKind::deadline, 0);
}

// --- faults and notices ---

// A link that goes leaves the packets in an adapter, which belong to the transport and keep
// waiting.
void HostDriver::handle_fault(LinkEnd& end, const FaultAction& action) {
  Intake* intake = hosts_[end.node].intake.get();
  switch (action.kind) {
    case FaultAction::Kind::go_down:
      links_.begin_going_down(end);
      end.port->take_down(calendar_.now());
      return links_.end_going_down(end);
    case FaultAction::Kind::come_up:
      links_.come_up(end);
      return kick(end);
    case FaultAction::Kind::bit_errors:
      return links_.set_bit_error_rate(end, action.bit_error_rate);
    case FaultAction::Kind::slow_down:
      intake->slow_down(action.bits_per_second);
      return update_asking(end.node);
    case FaultAction::Kind::recover:
      intake->recover();
      update_asking(end.node);
      return begin_taking_in(end.node);
    default:
      return;  // a switch's
  }
}

// Congestion control by the ports to hosts: a switch limits what this host sends to an endpoint.
void HostDriver::handle_notice(std::uint32_t number, std::uint32_t place) {
  const fabric::EndpointNotice notice = notices_[place];
  notices_.give(place);
  hosts_[number].adapter.limit(calendar_.now(), address_of(settings_, notice.endpoint),
                               notice.bits_per_second, notice.hold);
}

// --- slow hosts ---

void HostDriver::arrive_at_slow(std::uint32_t number, FrameRef ref) {
  Host& host = hosts_[number];
  const Frame& frame = frames_[ref];
  if (frame.damaged != 0) return discard(links_.end_of(number, 0), ref);
  const FlowControl flow_control = settings_.switches.flow_control;
  if (flow_control == FlowControl::credits) {
    host.adapter.port().take_room(frame.service_class, frame.buffer_bytes);
  } else {
    const bool may_lose = flow_control == FlowControl::none || host.intake->has_given_up();
    if (may_lose && !host.intake->has_room(frame.buffer_bytes)) {
      ++host.adapter.port().counters().lost;
      host.adapter.port().counters().lost_bytes += frame.buffer_bytes;
      last_loss_ = std::max(last_loss_, calendar_.now());
      return frames_.give(ref);
    }
  }
  host.intake->push(frames_.pool(), ref);
  update_asking(number);
  begin_taking_in(number);
}

void HostDriver::begin_taking_in(std::uint32_t number) {
  Intake& intake = *hosts_[number].intake;
  if (intake.is_taking || intake.is_stuck() || intake.empty()) return;
  intake.is_taking = true;
  links_.plan((calendar_.now() + intake.time_of_first(frames_.pool())).ps, links_.end_of(number, 0),
              EventKind::taken_in, 0);
}

void HostDriver::end_taking_in(std::uint32_t number) {
  Intake& intake = *hosts_[number].intake;
  intake.is_taking = false;
  if (!intake.is_stuck() && !intake.empty()) take_in_next(number);
  update_asking(number);
  begin_taking_in(number);
  attend(number);
}

void HostDriver::take_in_next(std::uint32_t number) {
  Host& host = hosts_[number];
  const FrameRef ref = host.intake->pop(frames_.pool());
  const Frame& frame = frames_[ref];
  hand_over(number, ref);
  port::Port& port = host.adapter.port();
  if (port.has_credits()) {
    static_cast<void>(port.free_room(frame.service_class, frame.buffer_bytes));
  }
  frames_.give(ref);
}

// Stops or resumes the neighbour as the intake asks.
void HostDriver::update_asking(std::uint32_t number) {
  if (settings_.switches.flow_control != FlowControl::pfc) return;
  Host& host = hosts_[number];
  if (!host.intake->update(calendar_.now())) return;
  const std::uint8_t classes = settings_.switches.lossless_classes;
  port::Port& port = host.adapter.port();
  static_cast<void>(host.intake->is_asking() ? port.stop(classes) : port.resume(classes));
  if (host.intake->is_asking() && settings_.host.watchdog > Time::zero()) {
    LinkEnd& end = links_.end_of(number, 0);
    links_.plan_once(end.watchdog_planned, calendar_.now() + settings_.host.watchdog, end,
                     EventKind::watchdog);
  }
  kick(links_.end_of(number, 0));
}

// Runs the adapter's watchdog. Once it trips, the adapter's pauses run out (Guo et al., SIGCOMM
// 2016, section 4.3).
void HostDriver::watch(std::uint32_t number) {
  Host& host = hosts_[number];
  if (!host.intake->is_asking()) return;
  const Time due = host.intake->asking_since() + settings_.host.watchdog;
  if (due <= calendar_.now()) {
    host.intake->give_up();
    host.adapter.port().fall_silent();
    ++host.adapter.port().counters().watchdog_trips;
  } else {
    LinkEnd& end = links_.end_of(number, 0);
    links_.plan_once(end.watchdog_planned, due, end, EventKind::watchdog);
  }
}

// --- hosts with a kernel ---

void HostDriver::arrive_at_kernel(std::uint32_t number, FrameRef ref) {
  Host& host = hosts_[number];
  const Frame& frame = frames_[ref];
  if (host.adapter.port().has_credits()) Links::take_in(host.adapter.port(), frame);
  // A connection belongs to one core, as with receive-side scaling.
  const std::uint32_t flow = device::HostStack::flow_of(frames_.receiver_of(frame));
  if (!host.kernel->stack.arrive(calendar_.now(), ref, flow, frame.payload_bytes)) {
    frames_.give(ref);
  }
  run_kernel(number);
}

void HostDriver::run_kernel(std::uint32_t number) {
  Host& host = hosts_[number];
  device::HostStack& stack = host.kernel->stack;
  while (stack.next_deadline() <= calendar_.now()) stack.run(calendar_.now());
  kick(links_.end_of(number, 0));
  plan_deadline(number);
  if (host.kernel->planned <= calendar_.now()) host.kernel->planned = Time::never();
  const Time next = stack.next_deadline();
  if (next >= host.kernel->planned) return;
  host.kernel->planned = next;
  links_.plan(next.ps, links_.end_of(number, 0), EventKind::stack_work, 0);
}

bool HostDriver::kernel_has_frame(const Host& host) const {
  const device::HostStack& stack = host.kernel->stack;
  if (!stack.has_frame()) return false;
  return (host.adapter.port().stopped() >> frames_[stack.front()].service_class & 1) == 0;
}

FrameRef HostDriver::pull_from_kernel(std::uint32_t number) {
  Host& host = hosts_[number];
  if (!kernel_has_frame(host)) return no_frame;
  const FrameRef ref = host.kernel->stack.pull(calendar_.now());
  host.adapter.port().count_sent(frames_[ref]);
  return ref;
}

}  // namespace tulle::sim
