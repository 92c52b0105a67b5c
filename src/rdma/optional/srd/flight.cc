#include "rdma/optional/srd/flight.h"

#include <algorithm>

namespace tulle::transport::srd {

Sequence Flight::add() {
  TULLE_CHECK(!is_full());
  if (next_ - first_ == capacity_) grow();
  const Sequence added = next_++;
  (*this)[added] = {};
  return added;
}

void Flight::grow() {
  constexpr std::uint32_t least = 64;
  const std::uint32_t capacity = std::max(least, 2 * capacity_);
  auto slots = std::make_unique<Slot[]>(capacity);
  for (Sequence i = first_; i < next_; ++i) slots[i & (capacity - 1)] = (*this)[i];
  slots_ = std::move(slots);
  capacity_ = capacity;
}

void Flight::sent(Time now, Sequence sequence, std::uint8_t path, std::uint32_t frame_bytes) {
  Slot& slot = (*this)[sequence];
  TULLE_CHECK(slot.state != Slot::State::in_flight);
  slot.state = Slot::State::in_flight;
  slot.at = now;
  slot.path = path;
  slot.frame_bytes = frame_bytes;
  slot.transmissions = static_cast<std::uint8_t>(std::min(slot.transmissions + 1, 255));
  slot.earlier = latest_;
  slot.later = no_sequence;
  (latest_ != no_sequence ? (*this)[latest_].later : oldest_) = sequence;
  latest_ = sequence;
  bytes_ += frame_bytes;
}

void Flight::unlink(Slot& slot) {
  (slot.earlier != no_sequence ? (*this)[slot.earlier].later : oldest_) = slot.later;
  (slot.later != no_sequence ? (*this)[slot.later].earlier : latest_) = slot.earlier;
  bytes_ -= slot.frame_bytes;
}

void Flight::leave(Slot& slot) {
  if (slot.state == Slot::State::in_flight) unlink(slot);
  if (slot.state == Slot::State::waiting) --waiting_;
}

void Flight::acknowledged(Sequence sequence) {
  Slot& slot = (*this)[sequence];
  leave(slot);
  slot.state = Slot::State::acknowledged;
  while (first_ < next_ && (*this)[first_].state == Slot::State::acknowledged) ++first_;
}

void Flight::lost(Sequence sequence) {
  Slot& slot = (*this)[sequence];
  leave(slot);
  slot.state = Slot::State::lost;
  lost_.push(sequence);
}

void Flight::wait(Sequence sequence, Time until) {
  Slot& slot = (*this)[sequence];
  leave(slot);
  slot.state = Slot::State::waiting;
  slot.at = until;
  ++waiting_;
}

Sequence Flight::peek_lost() {
  while (!lost_.empty()) {
    const Sequence sequence = lost_.front();
    if (holds(sequence) && (*this)[sequence].state == Slot::State::lost) return sequence;
    lost_.pop();
  }
  return no_sequence;
}

Sequence Flight::take_lost() {
  const Sequence sequence = peek_lost();
  if (sequence != no_sequence) lost_.pop();
  return sequence;
}

Time Flight::end_waits(Time now) {
  Time next = Time::never();
  if (waiting_ == 0) return next;
  for (Sequence i = first_; i < next_; ++i) {
    const Slot& slot = (*this)[i];
    if (slot.state != Slot::State::waiting) continue;
    if (slot.at <= now) {
      lost(i);
    } else {
      next = std::min(next, slot.at);
    }
  }
  return next;
}

void Flight::clear() {
  first_ = next_ = 0;
  oldest_ = latest_ = no_sequence;
  bytes_ = 0;
  waiting_ = 0;
  lost_.clear();
}

}  // namespace tulle::transport::srd
