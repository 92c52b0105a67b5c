#pragma once

// What an adapter may send to one other host, as the network says it: the switch that a congested
// host is plugged into tells those who contribute (fabric/endpoint_monitor.h). All queue pairs that
// send to that host share the rate; nobody else's packets wait.

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
  // Not before this.
  Time may_send_at() const { return may_send_at_; }
  void sent(Time now, std::uint32_t bytes) {
    if (now >= until_) return;
    constexpr std::int64_t bits_ps_per_byte = 8'000'000'000'000;
    may_send_at_ = now + Time{std::int64_t{bytes} * bits_ps_per_byte / bits_per_second_};
  }

 private:
  std::int64_t bits_per_second_ = 0;
  Time until_;
  Time may_send_at_;
};

// By destination; addresses stay.
using EndpointLimits = std::map<PortAddress, EndpointLimit>;

}  // namespace tulle::transport::congestion
