#pragma once

// The rate at which an adapter may send to one other host, as the network says it. The switch that
// a congested host is plugged into notifies the adapters that contribute
// (fabric/endpoint_monitor.h). All queue pairs that send to that host share the rate. Packets to
// other hosts do not wait.

#include <algorithm>
#include <cstdint>
#include <map>

#include "base/ids.h"
#include "base/time.h"

namespace tulle::transport::congestion {

class EndpointLimit {
 public:
  void limit(Time now, std::int64_t bits_per_second, Time hold) {
    bits_per_second_ = bits_per_second;
    until_ = now + hold;
  }
  // The earliest time for the next packet to the host.
  Time may_send_at() const { return may_send_at_; }
  void sent(Time now, std::uint32_t bytes) {
    if (now >= until_) return;
    constexpr std::int64_t bits_ps_per_byte = 8'000'000'000'000;
    may_send_at_ = now + Time{std::int64_t{bytes} * bits_ps_per_byte / bits_per_second_};
  }
  void rebase(Time by) { tulle::rebase(by, until_, may_send_at_); }

 private:
  std::int64_t bits_per_second_ = 0;
  Time until_;
  Time may_send_at_;
};

// The limits by destination. A limit keeps its address in memory.
using EndpointLimits = std::map<PortAddress, EndpointLimit>;

}  // namespace tulle::transport::congestion
