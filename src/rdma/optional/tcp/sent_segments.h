#pragma once

// The segments that were sent and are not acknowledged in order, as they were cut: the scoreboard
// of RFC 6675 §3.

#include <cstdint>

#include "base/growing_ring.h"
#include "base/time.h"

namespace tulle::transport::tcp {

struct SentSegment {
  enum class State : std::uint8_t { flying, lost, delivered };

  std::uint64_t offset = 0;
  std::uint64_t tag = 0;
  Time sent_at;  // time of the last transmission
  std::uint32_t bytes = 0;
  State state = State::flying;
  bool again = false;  // sent more than once
  bool push = false;

  std::uint64_t end() const { return offset + bytes; }
};

class SentSegments {
 public:
  bool empty() const { return ring_.empty(); }
  std::uint32_t size() const { return ring_.size(); }
  SentSegment& operator[](std::uint32_t i) { return ring_[i]; }
  const SentSegment& operator[](std::uint32_t i) const { return ring_[i]; }
  SentSegment& back() { return ring_.back(); }
  const SentSegment& front() const { return ring_.front(); }

  SentSegment& push(const SentSegment& segment) {
    flying_bytes_ += segment.bytes;
    return ring_.push(segment);
  }
  // Removes the oldest segment, which is acknowledged.
  void pop() {
    set(0, SentSegment::State::delivered);
    --delivered_;
    if (next_lost_ > 0) --next_lost_;
    ring_.pop();
  }
  void set(std::uint32_t i, SentSegment::State state) {
    SentSegment& segment = ring_[i];
    count(segment, -1);
    segment.state = state;
    count(segment, +1);
    if (state == SentSegment::State::lost && i < next_lost_) next_lost_ = i;
  }
  // Returns the index of the first lost segment. There must be one.
  std::uint32_t first_lost() {
    while (ring_[next_lost_].state != SentSegment::State::lost) ++next_lost_;
    return next_lost_;
  }
  // Returns the index of the first segment that ends behind `offset`, or size() if there is none.
  std::uint32_t find(std::uint64_t offset) const {
    std::uint32_t low = 0, high = ring_.size();
    while (low < high) {
      const std::uint32_t middle = low + (high - low) / 2;
      if (ring_[middle].end() > offset) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

  void rebase(Time by) {
    for (std::uint32_t i = 0; i < ring_.size(); ++i) tulle::rebase(by, ring_[i].sent_at);
  }

  std::uint64_t flying_bytes() const { return flying_bytes_; }  // RFC 6675's pipe
  std::uint32_t lost() const { return lost_; }
  std::uint32_t delivered() const { return delivered_; }

 private:
  void count(const SentSegment& segment, int sign) {
    switch (segment.state) {
      case SentSegment::State::flying:
        flying_bytes_ += static_cast<std::uint64_t>(sign) * segment.bytes;
        break;
      case SentSegment::State::lost:
        lost_ += static_cast<std::uint32_t>(sign);
        break;
      case SentSegment::State::delivered:
        delivered_ += static_cast<std::uint32_t>(sign);
        break;
    }
  }

  GrowingRing<SentSegment> ring_;
  std::uint64_t flying_bytes_ = 0;
  std::uint32_t lost_ = 0;
  std::uint32_t delivered_ = 0;
  std::uint32_t next_lost_ = 0;  // no segment before this index is lost
};

}  // namespace tulle::transport::tcp
