// Hosts whose kernel does all or a part of the transport's work (rdma/optional/host_stack.h).
// Received frames wait for the kernel's cores before the adapter gets them, and sent frames wait
// for the port behind it.

#include "sim/kernel_driver.h"
#include "sim/part.h"

namespace tulle::sim {

using port::Frame;
using port::FrameRef;
using port::no_frame;

static_assert(no_frame == device::HostStack::no_frame);

Host::Host(const device::Configuration& configuration) : adapter(configuration) {}
Host::~Host() = default;

void KernelDriver::deliver(FrameRef frame) {
  part.hand_over(host, frame);
  part.frames_.give(frame);
}

FrameRef KernelDriver::keep(const device::Datagram& datagram) {
  return part.frame_of(host, datagram);
}

void Part::arrive_at_kernel(std::uint32_t number, FrameRef ref) {
  Host& host = hosts_[number];
  const Frame& frame = frames_[ref];
  if (host.adapter.port().has_credits()) take_in(host.adapter.port(), frame);
  // A connection belongs to one core, as with receive-side scaling.
  const std::uint32_t flow = device::HostStack::flow_of(receiver_of(frame));
  if (!host.kernel->stack.arrive(now_, ref, flow, frame.payload_bytes)) {
    frames_.give(ref);
  }
  run_kernel(number);
}

QpNumber Part::receiver_of(const Frame& frame) const {
  if (!frame.is_tcp()) return wire::peek_destination_qp(frame.header);
  wire::Tcp header;
  const wire::DecodedTcp decoded =
      wire::decode(std::span(frame.header).first(frame.header_bytes), header);
  TULLE_CHECK(decoded.ok);
  return QpNumber{header.destination_port};
}

void Part::attend_kernel(std::uint32_t number) {
  hosts_[number].kernel->stack.attend(now_);
  run_kernel(number);
}

void Part::run_kernel(std::uint32_t number) {
  Host& host = hosts_[number];
  device::HostStack& stack = host.kernel->stack;
  while (stack.next_deadline() <= now_) stack.run(now_);
  kick(end_of(number, 0));
  plan_deadline(number);
  if (host.kernel->planned <= now_) host.kernel->planned = Time::never();
  const Time next = stack.next_deadline();
  if (next >= host.kernel->planned) return;
  host.kernel->planned = next;
  plan(next.ps, end_of(number, 0), stack_work, 0);
}

bool Part::kernel_has_frame(const Host& host) const {
  const device::HostStack& stack = host.kernel->stack;
  if (!stack.has_frame()) return false;
  return (host.adapter.port().stopped() >> frames_[stack.front()].service_class & 1) == 0;
}

FrameRef Part::pull_from_kernel(std::uint32_t number) {
  Host& host = hosts_[number];
  if (!kernel_has_frame(host)) return no_frame;
  const FrameRef ref = host.kernel->stack.pull(now_);
  host.adapter.port().count_sent(frames_[ref]);
  return ref;
}

}  // namespace tulle::sim
