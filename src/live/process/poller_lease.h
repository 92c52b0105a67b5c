#pragma once

// Decides when a caller that polls finds datagrams itself, so that the device's thread does not
// watch the sockets (device_impl.h). The class makes no system call and reads no clock.

#include <algorithm>
#include <cstdint>

#include "base/time.h"

namespace tulle::live {

class PollerLease {
 public:
  // The thread checks so often whether the caller still polls.
  static constexpr Time check_interval = Time::milliseconds(1);
  static constexpr std::uint32_t polls_min = 64;  // in a row before a lease
  static constexpr std::uint32_t polls_max = 4'096;
  // After a lease of that time, the next one is as easy to get as the first.
  static constexpr Time long_lease = Time::milliseconds(20);

  bool is_held() const { return is_held_; }
  // Counts a poll. Returns true if the caller should get the lease.
  [[nodiscard]] bool count_poll() { return !is_held_ && ++polls_ >= polls_needed_; }
  void forget_polls() { polls_ = 0; }

  void begin(Time now) {
    is_held_ = true;
    begun_ = now;
  }
  // The caller hands over.
  void end() {
    is_held_ = false;
    forget_polls();
  }
  // The caller has stopped to poll. `has_kept_waiting` says that datagrams waited for it.
  void end_late(Time now, bool has_kept_waiting) {
    if (has_kept_waiting) {
      polls_needed_ = std::min(polls_needed_ * 2, polls_max);
    } else if (now > begun_ + long_lease) {
      polls_needed_ = polls_min;
    }
  }
  void rebase(Time by) { tulle::rebase(by, begun_); }

 private:
  bool is_held_ = false;
  Time begun_;
  std::uint32_t polls_ = 0;
  std::uint32_t polls_needed_ = polls_min;
};

}  // namespace tulle::live
