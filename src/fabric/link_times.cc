#include "fabric/link_times.h"

#include <algorithm>

namespace tulle::fabric {

void LinkTimes::carry(NodePort at, std::int64_t bits_per_second, std::int64_t bytes) {
  if (bits_per_second == 0) return;
  constexpr std::int64_t million = 1'000'000;
  const Time duration = Time::picoseconds(8 * bytes * million / (bits_per_second / million));
  free_at_[at.node][at.port] = now_ + duration;
}

void LinkTimes::advance(Time now) {
  const Time earliest = now > catch_up_max ? now - catch_up_max : Time::zero();
  advanced_at_ = now;
  now_ = std::max({std::min(now, next()), now_, earliest});
}

Time LinkTimes::next() const {
  Time next = Time::never();
  for (const NodePort& at : waiting_) next = std::min(next, free_at_[at.node][at.port]);
  return next;
}

}  // namespace tulle::fabric
