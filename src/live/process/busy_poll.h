#pragma once

// Decides how long a caller that is about to sleep looks for packets first. To sleep and to be
// woken costs tens of microseconds where the processor was idle, so that looking is cheaper if
// something comes soon. The class makes no system call and reads no clock.
//
// Each look is a trial. While looks find something, each caller looks. After some in vain, each
// further one doubles the number of sleeps until the next, so that a program to which things come
// seldom spends next to nothing on it.

#include <algorithm>
#include <cstdint>

#include "base/time.h"

namespace tulle::live {

class BusyPoll {
 public:
  // Between two looks, so many callers at most sleep without one. A look then costs less for each
  // of them than a wake-up.
  static constexpr std::uint32_t sleeps_between_max = 63;
  // So many looks in vain are forgiven, one for each that found something. On a busy machine, a
  // look may be in vain because the peer lost its processor.
  static constexpr std::uint32_t forgiven_max = 8;

  // `longest` is how long one look takes at most. With zero, nobody looks.
  explicit BusyPoll(Time longest) : longest_(longest) {}

  // Must be called when a caller is about to sleep. Returns how long it looks first: zero if it
  // sleeps at once.
  [[nodiscard]] Time begin() {
    if (sleeps_ < sleeps_between_) {
      ++sleeps_;
      return Time::zero();
    }
    sleeps_ = 0;
    return longest_;
  }
  // Must be called at the end of a look.
  void end(bool has_found) {
    if (has_found) {
      sleeps_between_ /= 4;
      forgiven_ = std::min(forgiven_ + 1, forgiven_max);
    } else if (forgiven_ > 0) {
      --forgiven_;
    } else {
      sleeps_between_ = std::min(2 * sleeps_between_ + 1, sleeps_between_max);
    }
  }

 private:
  Time longest_;
  std::uint32_t sleeps_between_ = 0;
  std::uint32_t forgiven_ = 0;  // looks in vain that will be
  std::uint32_t sleeps_ = 0;    // without a look, since the last one
};

}  // namespace tulle::live
