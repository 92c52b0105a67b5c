#pragma once

// What goes wrong in a simulated network, as data: the driver makes an event of it at each node
// that it concerns.

#include <cstdint>
#include <vector>

#include "base/time.h"
#include "fabric/recovery.h"

namespace tulle::sim {

// Of one link, in both directions, instead of the network's own rate.
struct BitErrors {
  std::uint32_t link = 0;
  double rate = 0;
  Time from = Time::zero();
  Time until = Time::never();
};

// A host whose adapter takes in no more than this; 0: nothing at all, and it asks its neighbour to
// stop from the beginning. Some faulty adapters do (Guo et al., SIGCOMM 2016, section 4.3).
struct SlowHost {
  std::uint32_t host = 0;
  std::int64_t bits_per_second = 0;
  Time from = Time::zero();
  Time until = Time::never();
  // With PFC it asks its neighbour to stop when it holds more than that, and to go on at half of
  // it; without flow control it loses what is more. With credits its memory is its lanes'.
  std::uint32_t buffer_bytes = 256 * 1'024;
};

struct Faults {
  std::vector<fabric::Outage> outages;
  std::vector<BitErrors> bit_errors;
  std::vector<SlowHost> slow_hosts;

  bool any() const { return !outages.empty() || !bit_errors.empty() || !slow_hosts.empty(); }
  Time first() const;  // when the first begins; never: there is none
};

}  // namespace tulle::sim
