#pragma once

// When a subnet manager sets the groups of its switches: changes of groups do not keep it busier
// than half of the time, but wait no longer than `pause_max`. What counts is the time from when
// groups begin to be set until the first call at a later time. All calls of one pass of the
// driver have the same time, which says nothing about how long they took.

#include <algorithm>
#include <optional>

#include "base/time.h"

namespace tulle::management::subnet {

class GroupTimes {
 public:
  static constexpr Time pause_max = Time::milliseconds(100);

  // Groups begin to be set.
  void begin(Time now) { began_ = now; }
  // Groups are set. Collecting members and computing trees took until now.
  void end(Time now) {
    if (!began_ || now <= *began_) return;
    next_ = now + std::min(now - *began_, pause_max);
    began_.reset();
  }
  // Returns when groups may be set.
  Time next() const { return next_; }
  // Returns when end() must be called.
  Time next_end() const { return began_ ? *began_ + Time::picoseconds(1) : Time::never(); }
  void rebase(Time by) {
    if (began_) began_ = began_->rebased(by);
    tulle::rebase(by, next_);
  }

 private:
  std::optional<Time> began_;  // set until a later call has come
  Time next_;
};

}  // namespace tulle::management::subnet
