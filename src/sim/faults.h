#pragma once

// The faults of a simulated network, as data. The driver turns each into events at the nodes
// concerned.

#include <cstdint>
#include <vector>

#include "base/time.h"
#include "fabric/recovery.h"

namespace tulle::sim {

// A bit error rate of one link, in both directions, that replaces the network's rate for a time.
struct BitErrors {
  std::uint32_t link = 0;
  double rate = 0;
  Time from = Time::zero();
  Time until = Time::never();
};

// A host whose adapter takes in no more than this rate. At 0 it takes in nothing, and asks its
// neighbour to stop from the beginning. Some faulty adapters do this (Guo et al., SIGCOMM 2016,
// section 4.3).
struct SlowHost {
  std::uint32_t host = 0;
  std::int64_t bits_per_second = 0;
  Time from = Time::zero();
  Time until = Time::never();
  // With PFC the host asks its neighbour to stop if it holds more than this many bytes, and to
  // resume at half. Without flow control it loses the excess. With credits, the buffers of its
  // lanes are its memory.
  std::uint32_t buffer_bytes = 256 * 1'024;
};

struct Faults {
  std::vector<fabric::Outage> outages;
  std::vector<BitErrors> bit_errors;
  std::vector<SlowHost> slow_hosts;

  bool any() const { return !outages.empty() || !bit_errors.empty() || !slow_hosts.empty(); }
  Time first() const;  // start of the first fault; never: there is none
};

}  // namespace tulle::sim
