#pragma once

// The clock of a driver that may run for years. Time counts picoseconds in 64 bits, which last
// 106.75 days, so this clock moves its zero. It begins with the driver: since the machine's start,
// more time may have passed already.

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/time.h"

namespace tulle::live {

class DriverClock {
 public:
  // Returns CLOCK_MONOTONIC in nanoseconds.
  using Source = std::int64_t (*)();
  static std::int64_t system() {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
  }

  explicit DriverClock(Source source = system) : source_(source) {}

  // The clock's zero moves once the clock shows `longest`, so that it then shows `kept`. Nothing
  // waits for as long as `kept`: the longest ACK timeout is 2.4 hours (IBTA 9.7.6.1.3).
  static constexpr Time longest = Time::seconds(50 * 86'400);
  static constexpr Time kept = Time::seconds(86'400);

  // Returns the time. If the clock's zero has to move, `rebase(by)` is called first: it must
  // rebase every point in time that the driver and its state machines keep (base/time.h), and the
  // caller must keep none.
  template <typename Rebase>
  Time now(const Rebase& rebase) {
    const std::int64_t since = source_() - zero_nanoseconds_;
    if (since <= longest.to_nanoseconds()) [[likely]]
      return Time::nanoseconds(since);
    const std::int64_t by = since - kept.to_nanoseconds();
    zero_nanoseconds_ += by;
    // A process that was stopped for long may come back later than Time can tell.
    rebase(Time::nanoseconds(std::min(by, last_nanosecond)));
    return kept;
  }
  // Returns the time where nothing may be rebased. It stops at the last time that it can show.
  Time peek() const {
    return Time::nanoseconds(std::min(source_() - zero_nanoseconds_, last_nanosecond));
  }
  // Returns CLOCK_MONOTONIC at that time, in nanoseconds.
  std::int64_t monotonic_nanoseconds(Time at) const {
    return zero_nanoseconds_ + at.to_nanoseconds();
  }

 private:
  static constexpr std::int64_t last_nanosecond =
      std::numeric_limits<std::int64_t>::max() / 1'000 - 1;

  Source source_;
  std::int64_t zero_nanoseconds_ = source_();  // CLOCK_MONOTONIC at Time zero
};

}  // namespace tulle::live
