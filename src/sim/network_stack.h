#pragma once

// Declares Network::KernelDriver for network_stack.cc and the code that creates hosts.

#include "device/host_stack.h"
#include "sim/network.h"

namespace tulle::sim {

struct Network::KernelDriver : device::HostStack::Driver {
  KernelDriver(Network& network, std::uint32_t host, const device::HostStackSettings& settings,
               device::Adapter& adapter)
      : network(network), host(host), stack(settings, adapter, *this) {}
  void deliver(port::FrameRef frame) override;
  port::FrameRef keep(const device::Datagram& datagram) override;

  Network& network;
  std::uint32_t host;
  device::HostStack stack;
  Time planned = Time::never();
};

}  // namespace tulle::sim
