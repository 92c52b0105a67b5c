#pragma once

// The frames that an adapter has received and not yet taken in, because a fault makes it slow or
// stuck. This class holds the queue and decides whether the neighbour must stop (IEEE 802.1Qbb).
// The driver keeps the time and moves frames.

#include <cstdint>

#include "base/check.h"
#include "base/time.h"
#include "rdma/port/frame.h"

namespace tulle::sim {

class Intake {
 public:
  explicit Intake(std::uint32_t buffer_bytes) : buffer_bytes_(buffer_bytes) {}

  // Limits the adapter to this rate from now on. 0 means stuck.
  void slow_down(std::int64_t bits_per_second) {
    bits_per_second_ = bits_per_second;
    is_stuck_ = bits_per_second == 0;
  }
  // Makes the adapter take in all frames at once from now on.
  void recover() {
    bits_per_second_ = 0;
    is_stuck_ = false;
  }
  bool is_stuck() const { return is_stuck_; }

  bool empty() const { return first_ == port::no_frame; }
  bool has_room(std::uint32_t bytes) const { return bytes_ + bytes <= buffer_bytes_; }
  void push(port::FramePool& frames, port::FrameRef ref) {
    frames[ref].next = port::no_frame;
    (empty() ? first_ : frames[last_].next) = ref;
    last_ = ref;
    bytes_ += frames[ref].buffer_bytes;
  }
  port::FrameRef pop(port::FramePool& frames) {
    TULLE_CHECK(!empty());
    const port::FrameRef ref = first_;
    first_ = frames[ref].next;
    bytes_ -= frames[ref].buffer_bytes;
    return ref;
  }
  // Returns the time that taking in the first frame needs. There must be a frame, and the adapter
  // must not be stuck.
  Time time_of_first(port::FramePool& frames) const {
    constexpr std::int64_t picoseconds_bits = 8'000'000'000'000;
    TULLE_CHECK(!empty() && !is_stuck_);
    if (bits_per_second_ == 0) return Time::zero();
    return Time{frames[first_].buffer_bytes * picoseconds_bits / bits_per_second_};
  }

  // True if the adapter asks its neighbour to stop. It no longer asks once its watchdog has
  // tripped.
  bool is_asking() const { return is_asking_; }
  Time asking_since() const { return asking_since_; }
  // Updates the decision from the bytes held. Returns true if the adapter has begun or stopped
  // asking.
  bool update(Time now) {
    const bool wants = is_stuck_ || bytes_ > (is_asking_ ? buffer_bytes_ / 2 : buffer_bytes_);
    if (!wants) has_given_up_ = false;
    const bool asks = wants && !has_given_up_;
    if (asks == is_asking_) return false;
    is_asking_ = asks;
    asking_since_ = now;
    return true;
  }
  void give_up() {
    has_given_up_ = true;
    is_asking_ = false;
  }
  bool has_given_up() const { return has_given_up_; }

  bool is_taking = false;  // set by the driver while an event is planned

 private:
  std::uint32_t buffer_bytes_;
  std::int64_t bits_per_second_ = 0;
  bool is_stuck_ = false;
  bool is_asking_ = false;
  bool has_given_up_ = false;
  Time asking_since_;
  port::FrameRef first_ = port::no_frame;
  port::FrameRef last_ = port::no_frame;
  std::uint64_t bytes_ = 0;
};

}  // namespace tulle::sim
