#pragma once

// Moves the hosts of a part: hands them the frames that arrive, lets them send, and wakes them at
// their deadlines. A fault may make a host slow or stuck (sim/intake.h), and a kernel may do all or
// a part of the transport's work (rdma/optional/host_stack.h). Then received frames wait for the
// kernel's cores before the adapter gets them, and sent frames wait for the port behind it.

#include <cstdint>
#include <span>

#include "base/time.h"
#include "fabric/switch.h"
#include "rdma/device/adapter.h"
#include "rdma/port/frame.h"
#include "sim/calendar.h"
#include "sim/event_kind.h"
#include "sim/frame_store.h"
#include "sim/links.h"
#include "sim/network_events.h"
#include "sim/nodes.h"

namespace tulle::sim {

class HostDriver {
 public:
  // All of these must outlive it.
  HostDriver(Nodes& nodes, Calendar& calendar, FrameStore& frames, Links& links,
             fabric::Switch::Notices& notices);

  // Gives a host its kernel.
  void add_kernel(std::uint32_t host);
  // Lets an event happen. Returns what of it the application must know.
  NetworkEvent::Kind handle(Event event, LinkEnd& end);
  // Lets a host send what the application has given it.
  void attend(std::uint32_t host);

  // Fetches what the next turn of a host will touch into the processor's cache.
  void prefetch(std::uint32_t host) const;
  // Does so with the queue pair of a packet.
  void prefetch(const Event& arrival) {
    const port::Frame& frame = frames_[arrival.datum];
    const LinkEnd& end = links_.end_of(arrival);
    hosts_[end.node].adapter.prefetch(wire::peek_destination_qp(frame.header));
  }
  // Returns the latest time at which a slow host lost a frame.
  Time last_loss() const { return last_loss_; }

 private:
  // Frames
  void arrive(LinkEnd& end, port::FrameRef frame);
  void hand_over(std::uint32_t host, port::FrameRef frame);
  void discard(LinkEnd& end, port::FrameRef ref);
  void kick(LinkEnd& end);
  port::FrameRef pull(std::uint32_t host);
  bool has_more(const Host& host) const;
  void plan_deadline(std::uint32_t host);
  // Faults and notices
  void handle_fault(LinkEnd& end, const FaultAction& action);
  void handle_notice(std::uint32_t host, std::uint32_t place);
  // Slow hosts
  void arrive_at_slow(std::uint32_t host, port::FrameRef frame);
  void begin_taking_in(std::uint32_t host);
  void end_taking_in(std::uint32_t host);
  void take_in_next(std::uint32_t host);
  void update_asking(std::uint32_t host);
  void watch(std::uint32_t host);
  // Hosts with a kernel
  void arrive_at_kernel(std::uint32_t host, port::FrameRef frame);
  void run_kernel(std::uint32_t host);
  bool kernel_has_frame(const Host& host) const;
  port::FrameRef pull_from_kernel(std::uint32_t host);

  const Nodes& nodes_;
  const NetworkSettings& settings_;
  std::span<Host> hosts_;  // a view of the nodes, since an event needs it at once
  bool has_kernels_;
  Calendar& calendar_;
  FrameStore& frames_;
  Links& links_;
  fabric::Switch::Notices& notices_;
  device::Datagram outgoing_;
  Time last_loss_;
};

}  // namespace tulle::sim
