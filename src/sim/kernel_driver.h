#pragma once

// Connects a host's kernel stack to the host's frames.

#include <cstdint>

#include "base/time.h"
#include "rdma/device/adapter.h"
#include "rdma/optional/host_stack.h"
#include "rdma/port/frame.h"
#include "sim/calendar.h"
#include "sim/frame_store.h"

namespace tulle::sim {

struct KernelDriver final : device::HostStack::Driver {
  KernelDriver(const Calendar& calendar, FrameStore& frames, std::uint32_t host,
               const device::HostStackSettings& settings, device::Adapter& adapter)
      : calendar(calendar),
        frames(frames),
        host(host),
        adapter(adapter),
        stack(settings, adapter, *this) {}

  void deliver(port::FrameRef frame) override {
    frames.hand_over(calendar.now(), adapter, frame);
    frames.give(frame);
  }
  port::FrameRef keep(const device::Datagram& datagram) override {
    return frames.make(host, datagram);
  }

  const Calendar& calendar;
  FrameStore& frames;
  std::uint32_t host;
  device::Adapter& adapter;
  device::HostStack stack;
  Time planned = Time::never();
};

}  // namespace tulle::sim
