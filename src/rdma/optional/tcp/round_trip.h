#pragma once

// RFC 6298: the smoothed round-trip time, its variation, and the time-out that follows from them.

#include <algorithm>

#include "base/time.h"
#include "rdma/transport/tcp_settings.h"

namespace tulle::transport::tcp {

class RoundTrip {
 public:
  bool measured() const { return measured_; }
  Time smoothed() const { return smoothed_; }
  Time least() const { return least_; }

  void sample(Time time) {
    if (!measured_) {  // RFC 6298 §2.2
      measured_ = true;
      smoothed_ = time;
      variation_ = Time{time.ps / 2};
      least_ = time;
      return;
    }
    // RFC 6298 §2.3: beta 1/4, alpha 1/8.
    const std::int64_t error = smoothed_ > time ? smoothed_.ps - time.ps : time.ps - smoothed_.ps;
    variation_ = Time{variation_.ps - variation_.ps / 4 + error / 4};
    smoothed_ = Time{smoothed_.ps - smoothed_.ps / 8 + time.ps / 8};
    // RFC 8985 §6.2 step 1 wants the least round trip of a recent period. Here it is the least
    // ever, since routes do not change for long.
    least_ = std::min(least_, time);
  }
  // Returns the time-out (RFC 6298 §2.2 to §2.5), backed off by `doublings` (§5.5).
  Time timeout(const Settings& settings, std::uint32_t doublings) const {
    Time time = settings.timeout_initial;
    if (measured_) time = smoothed_ + variation_ * 4;
    time = std::clamp(time, settings.timeout_min, settings.timeout_max);
    for (; doublings > 0 && time < settings.timeout_max; --doublings) time = time * 2;
    return std::min(time, settings.timeout_max);
  }

 private:
  bool measured_ = false;
  Time smoothed_;
  Time variation_;
  Time least_;
};

}  // namespace tulle::transport::tcp
