#pragma once

// Holds the counts of all nodes of a network. It reads those of this process's nodes from the
// network, and has been told those of the others by the other processes.

#include <cstdint>
#include <vector>

#include "base/packed.h"
#include "base/time.h"
#include "fabric/topology.h"
#include "rdma/device/adapter.h"
#include "rdma/optional/host_stack.h"
#include "rdma/port/counters.h"
#include "sim/network.h"

namespace tulle::experiment {

struct SwitchCounters {
  std::uint64_t lossless_drops = 0;  // frames
  std::uint64_t bytes_held_max = 0;
};

struct NetworkTotals {
  Time now;        // of the last event
  Time last_loss;  // to a fault
  std::uint64_t events = 0;
  std::uint64_t data_packet_hops = 0;
  std::uint64_t frames_sent = 0;
  std::uint64_t notices = 0;
};

class Measured {
 public:
  // Network and topology must outlive it.
  Measured(const sim::Network& network, const fabric::Topology& topology)
      : network_(network), topology_(topology) {}

  const port::Counters& port(std::uint32_t node, std::uint16_t port) const;
  SwitchCounters at_switch(std::uint32_t node) const;
  const device::Counters& host(std::uint32_t host) const;
  // Hosts must have a kernel's stack.
  device::HostStack::Counters stack(std::uint32_t host) const;
  NetworkTotals totals() const;

  // Adds what this process's nodes have counted.
  void pack(Packer& packer) const;
  // Takes what a process has told by pack(). Returns false if that is damaged.
  [[nodiscard]] bool take(std::uint32_t process, Unpacker& unpacker);

 private:
  bool has_stacks() const { return network_.has_stacks(); }
  NetworkTotals own_totals() const;
  void make_room();

  const sim::Network& network_;
  const fabric::Topology& topology_;
  // These are the counts that other processes have told. All are empty if there are no others.
  std::vector<std::size_t> first_port_;  // by node: index of its first port in ports_
  std::vector<port::Counters> ports_;
  std::vector<SwitchCounters> switches_;  // by switch
  std::vector<device::Counters> hosts_;
  std::vector<device::HostStack::Counters> stacks_;
  NetworkTotals elsewhere_;
};

}  // namespace tulle::experiment
