#pragma once

#include <utility>

#include "base/time.h"

namespace tulle {

// Rebases (base/time.h) the times of timers in order, std::set<std::pair<Time, …>>. Needs no
// memory.
template <typename Timers>
void rebase_timers(Time by, Timers& timers) {
  Timers moved;
  while (!timers.empty()) {
    auto timer = timers.extract(timers.begin());
    timer.value().first = timer.value().first.rebased(by);
    moved.insert(std::move(timer));
  }
  timers.swap(moved);
}

}  // namespace tulle
