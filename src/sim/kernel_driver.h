#pragma once

// Connects a host's kernel stack to the part of the network that has the host.

#include "rdma/optional/host_stack.h"
#include "sim/part.h"

namespace tulle::sim {

struct KernelDriver final : device::HostStack::Driver {
  KernelDriver(Part& part, std::uint32_t host, const device::HostStackSettings& settings,
               device::Adapter& adapter)
      : part(part), host(host), stack(settings, adapter, *this) {}
  void deliver(port::FrameRef frame) override;
  port::FrameRef keep(const device::Datagram& datagram) override;

  Part& part;
  std::uint32_t host;
  device::HostStack stack;
  Time planned = Time::never();
};

}  // namespace tulle::sim
