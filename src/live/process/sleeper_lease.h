#pragma once

// Decides when packets wake a program that sleeps on the descriptor of an event channel, and when
// the device's thread serves that program again. The class makes no system call and reads no clock.
//
// A channel gets the lease when its queues were armed several times in a row. The thread checks the
// holder once in `check_interval`. A lease that was of no use doubles the number of arms that the
// next one takes.

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/time.h"

namespace tulle::live {

class EventChannel;

class SleeperLease {
 public:
  static constexpr Time check_interval = Time::milliseconds(1);
  // Arms that follow each other within this time are in a row. A holder that receives nothing for
  // this time loses the lease.
  static constexpr Time patience = Time::milliseconds(20);
  static constexpr std::uint32_t arms_min = 3;  // arms in a row before a lease
  static constexpr std::uint32_t arms_max = 4'096;
  // A holder that is woken so often in a row without an event is the wrong one to wake.
  static constexpr std::uint32_t vain_wakes_max = 16;

  // Returns null if no channel has the lease.
  EventChannel* holder() const { return holder_; }
  bool is_held_by(const EventChannel& channel) const { return holder_ == &channel; }

  // Counts that a queue of the channel was armed while no channel had the lease. Returns true if
  // the channel should get it.
  [[nodiscard]] bool count_arm(const EventChannel& channel, Time at) {
    const bool is_in_row = std::exchange(last_armed_, &channel) == &channel;
    arms_ = is_in_row && at < last_arm_ + patience ? arms_ + 1 : 1;
    last_arm_ = at;
    return arms_ >= arms_needed_;
  }
  void forget_arms() { arms_ = 0; }

  void begin(EventChannel& channel, Time at) {
    holder_ = &channel;
    came_ = begun_ = at;
    waits_since_ = Time::never();
    vain_wakes_ = arms_ = 0;
  }
  enum class End : std::uint8_t { in_order, failed };
  void end(End how) {
    holder_ = nullptr;
    const bool was_of_use = how == End::in_order || came_ > begun_ + patience;
    if (!was_of_use) return defer();
    arms_needed_ = arms_min;
  }
  // The next lease takes twice as many arms.
  void defer() {
    arms_needed_ = std::min(arms_needed_ * 2, arms_max);
    arms_ = 0;
  }
  // Must be called before a channel is destroyed.
  void forget(const EventChannel& channel) {
    if (last_armed_ == &channel) last_armed_ = nullptr;
    if (holder_ == &channel) holder_ = nullptr;
  }
  void forget_all() {
    holder_ = nullptr;
    last_armed_ = nullptr;
  }

  // The holder asks for events.
  void note_coming(Time at) {
    came_ = at;
    waits_since_ = Time::never();
  }
  void note_event() { vain_wakes_ = 0; }
  // Returns true if the holder was woken for nothing too often.
  [[nodiscard]] bool count_vain_wake() { return ++vain_wakes_ >= vain_wakes_max; }

  enum class Check : std::uint8_t { goes_on, does_not_come, is_idle };
  // The thread calls this now and then. `waits` is true if something has come that the holder has
  // not taken. What came before `seen_until` the holder has seen.
  [[nodiscard]] Check check(Time at, bool waits, Time seen_until = Time::zero()) {
    if (!waits) {
      waits_since_ = Time::never();
      return at < came_ + patience ? Check::goes_on : Check::is_idle;
    }
    waits_since_ = waits_since_.is_never() ? at : std::max(waits_since_, seen_until);
    return at >= waits_since_ + check_interval ? Check::does_not_come : Check::goes_on;
  }

  void rebase(Time by) { tulle::rebase(by, came_, begun_, last_arm_, waits_since_); }

 private:
  EventChannel* holder_ = nullptr;
  const EventChannel* last_armed_ = nullptr;
  Time came_;   // when the holder asked for events last
  Time begun_;  // when the lease began
  Time last_arm_;
  Time waits_since_ = Time::never();  // when a check first found what still waits
  std::uint32_t vain_wakes_ = 0;      // in a row
  std::uint32_t arms_ = 0;            // in a row
  std::uint32_t arms_needed_ = arms_min;
};

}  // namespace tulle::live
