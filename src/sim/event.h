#pragma once

#include <cstdint>

namespace tulle::sim {

// A future event. Events are ordered by time, then place, then datum. No two events are equal in
// all of these, so the order does not depend on when an event was planned.
struct Event {
  std::int64_t at = 0;      // ps
  std::uint32_t place = 0;  // where the event happens and its kind, as defined by the user
  std::uint32_t datum = 0;

  std::uint64_t order() const { return std::uint64_t{place} << 32 | datum; }
  // Avoids a branch, which would be mispredicted half of the time.
  bool before(const Event& other) const {
    return (at < other.at) | ((at == other.at) & (order() < other.order()));
  }
};

}  // namespace tulle::sim
