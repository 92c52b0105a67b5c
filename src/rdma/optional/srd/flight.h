#pragma once

// The packets that one adapter has sent to another and that are not answered yet. There is a slot
// for each packet number from the first unanswered one on. Packets in flight are also linked in the
// order in which they were sent.

#include <cstdint>
#include <memory>

#include "base/growing_ring.h"
#include "base/ids.h"
#include "base/time.h"
#include "rdma/transport/srd_settings.h"

namespace tulle::transport::srd {

// A packet number that does not wrap. The wire carries its low 24 bits.
using Sequence = std::uint64_t;
inline constexpr Sequence no_sequence = ~Sequence{0};

inline Psn psn_of(Sequence sequence) { return Psn(static_cast<std::uint32_t>(sequence)); }
// Returns the number nearest to `base` that the PSN can mean, or no_sequence if it would be before
// the first.
inline Sequence unwrapped(Psn psn, Sequence base) {
  const std::int64_t number = static_cast<std::int64_t>(base) + psn.distance_from(psn_of(base));
  return number < 0 ? no_sequence : static_cast<Sequence>(number);
}

struct Slot {
  enum class State : std::uint8_t {
    acknowledged,
    in_flight,
    lost,     // must be sent again
    waiting,  // the receiver was not ready; the packet must be sent again at `at`
  };
  Time at = Time::zero();                               // time of the last transmission
  Sequence earlier = no_sequence, later = no_sequence;  // neighbours in the order of sending
  std::uint32_t message = 0;
  std::uint32_t segment = 0;
  std::uint32_t frame_bytes = 0;
  std::uint8_t path = 0;
  std::uint8_t transmissions = 0;
  State state = State::acknowledged;
};

class Flight {
 public:
  Sequence first() const { return first_; }  // first number that is not acknowledged
  Sequence next() const { return next_; }    // next number to give out
  bool empty() const { return first_ == next_; }
  bool is_full() const { return next_ - first_ >= window_packets; }
  bool holds(Sequence sequence) const { return sequence >= first_ && sequence < next_; }
  Slot& operator[](Sequence sequence) { return slots_[sequence & (capacity_ - 1)]; }
  const Slot& operator[](Sequence sequence) const { return slots_[sequence & (capacity_ - 1)]; }

  std::uint64_t bytes() const { return bytes_; }
  Sequence oldest() const { return oldest_; }  // earliest sent packet in flight, or no_sequence
  std::uint32_t waiting() const { return waiting_; }

  // Gives out a new number. Its packet is not in flight yet.
  Sequence add();
  void sent(Time now, Sequence sequence, std::uint8_t path, std::uint32_t frame_bytes);
  void acknowledged(Sequence sequence);
  void lost(Sequence sequence);
  void wait(Sequence sequence, Time until);
  // Takes the next packet that must be sent again. Returns no_sequence if there is none.
  Sequence take_lost();
  bool has_lost() { return peek_lost() != no_sequence; }
  // Packets that have waited long enough become lost. Returns when the next wait ends, or never.
  Time end_waits(Time now);
  void clear();
  void rebase(Time by) {
    for (std::uint32_t i = 0; i < capacity_; ++i) tulle::rebase(by, slots_[i].at);
  }

 private:
  void grow();
  void unlink(Slot& slot);
  void leave(Slot& slot);
  Sequence peek_lost();

  std::unique_ptr<Slot[]> slots_;
  std::uint32_t capacity_ = 0;  // a power of two
  Sequence first_ = 0, next_ = 0;
  Sequence oldest_ = no_sequence, latest_ = no_sequence;
  std::uint64_t bytes_ = 0;  // bytes in flight
  std::uint32_t waiting_ = 0;
  GrowingRing<Sequence> lost_;  // some of them may have been acknowledged since
};

}  // namespace tulle::transport::srd
