#pragma once

#include <cstdint>

namespace tulle::sim {

// A future event. Events are ordered by time, then place, then datum. No two events are equal in
// all of these, so the order does not depend on when an event was planned. Events are passed by
// value, in two registers: the processor waits where it reads 16 bytes that were written in pieces.
struct Event {
  std::int64_t at = 0;  // ps
  std::uint32_t datum = 0;
  std::uint32_t place = 0;  // where the event happens and its kind, as defined by the user

  bool before(const Event& other) const { return key() < other.key(); }

 private:
  __extension__ using Key = __int128;

  // The members are in an order in which the key is the event's 16 bytes, so that a comparison
  // takes two instructions and no branch, which would be mispredicted half of the time.
  Key key() const {
    return static_cast<Key>(at) << 64 |
           static_cast<Key>(std::uint64_t{place} << 32 | std::uint64_t{datum});
  }
};

}  // namespace tulle::sim
