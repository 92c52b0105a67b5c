#pragma once

// Tracks which classes of a port the neighbour has stopped, and until when (IEEE 802.1Qbb, 802.3
// annex 31D). A pause holds for the time that it names, unless it is renewed or ended before.

#include <array>
#include <cstdint>
#include <utility>

#include "base/time.h"
#include "rdma/port/flow_control/control.h"
#include "rdma/port/frame.h"

namespace tulle::port {

inline constexpr std::uint32_t pause_quanta_max = 65'535;  // in units of 512 bit times

constexpr Time pause_time(std::uint32_t quanta, std::int64_t bits_per_second) {
  __extension__ using Wide = __int128;
  constexpr Wide quantum_bits = 512;
  constexpr Wide longest = Time::seconds(200'000).ps;  // below 168 bits a second
  const Wide ps = quanta * quantum_bits * 1'000'000'000'000 / bits_per_second;
  return Time{static_cast<std::int64_t>(ps < longest ? ps : longest)};
}

class PauseState {
 public:
  // Returns the classes that are stopped now and were not before.
  std::uint8_t handle(Time now, const Pause& pause, Time duration) {
    const std::uint8_t before = stopped_;
    stopped_ = static_cast<std::uint8_t>((before | pause.stop) & ~pause.go);
    const auto fresh = static_cast<std::uint8_t>(stopped_ & ~before);
    for (std::uint32_t c = 0; c < classes; ++c) {
      if ((pause.stop >> c & 1) != 0) {
        until_[c] = duration < Time::never() - now ? now + duration : Time::never();
      }
      if ((fresh >> c & 1) != 0) since_[c] = now;
    }
    if (fresh != 0) ++pauses_;  // a renewal does not count
    count(now, before);
    return fresh;
  }
  // Resets the state when the link is gone, as no neighbour is left to stop a class.
  void reset(Time now) { count(now, std::exchange(stopped_, std::uint8_t{0})); }
  // Resumes the classes whose pause has run out.
  void expire(Time now) {
    const std::uint8_t before = stopped_;
    for (std::uint32_t c = 0; c < classes; ++c) {
      if ((stopped_ >> c & 1) != 0 && until_[c] <= now) {
        stopped_ = static_cast<std::uint8_t>(stopped_ & ~(1u << c));
      }
    }
    count(now, before);
  }

  std::uint8_t stopped() const { return stopped_; }
  // Returns when the next of the stopped classes resumes by itself. Time::never() means that none
  // is stopped.
  Time next_end() const {
    Time end = Time::never();
    for (std::uint32_t c = 0; c < classes; ++c) {
      if ((stopped_ >> c & 1) != 0 && until_[c] < end) end = until_[c];
    }
    return end;
  }
  // Returns the classes that have been stopped without a break for at least `span`.
  std::uint8_t stopped_for(Time now, Time span) const {
    std::uint8_t found = 0;
    for (std::uint32_t c = 0; c < classes; ++c) {
      if ((stopped_ >> c & 1) != 0 && since_[c] + span <= now) {
        found = static_cast<std::uint8_t>(found | 1u << c);
      }
    }
    return found;
  }
  std::uint64_t pauses() const { return pauses_; }
  // Returns how long some class has been stopped in total, until now.
  Time paused(Time now) const { return stopped_ != 0 ? paused_ + (now - any_since_) : paused_; }
  void rebase(Time by) {
    tulle::rebase(by, any_since_);
    for (std::uint32_t c = 0; c < classes; ++c) tulle::rebase(by, since_[c], until_[c]);
  }

 private:
  void count(Time now, std::uint8_t before) {
    if (before == 0 && stopped_ != 0) any_since_ = now;
    if (before != 0 && stopped_ == 0) paused_ += now - any_since_;
  }

  std::uint8_t stopped_ = 0;
  std::uint64_t pauses_ = 0;
  Time any_since_;
  Time paused_;
  std::array<Time, classes> since_{};
  std::array<Time, classes> until_{};
};

}  // namespace tulle::port
