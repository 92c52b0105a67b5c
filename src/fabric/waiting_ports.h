#pragma once

// The ports of a subnet at which packets wait. Each is checked from time to time, until none waits
// there.

#include <algorithm>
#include <utility>
#include <vector>

#include "base/time.h"
#include "fabric/node_port.h"

namespace tulle::fabric {

class WaitingPorts {
 public:
  static constexpr Time between_checks = Time::milliseconds(10);
  // If a check comes so late, the thread that moves packets was stopped. The packets that waited
  // for it are given so much time more.
  static constexpr Time late_after = Time::milliseconds(50);
  static constexpr Time time_after_stop = Time::milliseconds(100);

  void add(Time now, NodePort at) {
    if (std::ranges::find(ports_, at) != ports_.end()) return;
    if (ports_.empty()) next_check_ = now + between_checks;
    ports_.push_back(at);
  }
  Time next_check() const { return ports_.empty() ? Time::never() : next_check_; }
  // If a check is due, calls `waits` for each port, and forgets those for which it returns false.
  template <typename Waits>
  void check(Time now, Waits waits) {
    if (now < next_check()) return;
    if (now > next_check_ + late_after) {
      next_check_ = now + time_after_stop;
      return;
    }
    std::vector<NodePort> left;
    for (const NodePort& at : std::exchange(ports_, {})) {
      if (waits(at)) left.push_back(at);
    }
    ports_ = std::move(left);
    next_check_ = now + between_checks;
  }
  void rebase(Time by) { tulle::rebase(by, next_check_); }

 private:
  std::vector<NodePort> ports_;
  Time next_check_;
};

}  // namespace tulle::fabric
