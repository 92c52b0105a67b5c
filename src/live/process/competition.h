#pragma once

// Detects that other threads compete for the processor of a thread that polls (decision 052).

#include <cstdint>
#include <limits>

namespace tulle::live {

class Competition {
 public:
  // A thread that loses the processor to one that computes loses it for a time slice: 0.7 ms and
  // more (Linux, base_slice_ns). What the kernel does between two threads takes far less.
  static constexpr std::int64_t slice_nanoseconds = 200'000;
  // A thread that lost a slice has competitors for so long after it.
  static constexpr std::int64_t remembered_nanoseconds = 100'000'000;

  // Called now and then by a thread that polls, with CLOCK_MONOTONIC and CLOCK_THREAD_CPUTIME_ID in
  // nanoseconds. Returns true if it has competitors.
  bool note(std::int64_t time, std::int64_t processor_time) {
    const std::int64_t lost = (time - time_) - (processor_time - processor_time_);
    time_ = time;
    processor_time_ = processor_time;
    if (is_known_ && lost > slice_nanoseconds) until_ = time + remembered_nanoseconds;
    is_known_ = true;
    return time < until_;
  }
  // The thread gave its processor away since the last call. That does not count as lost.
  void note_pause() { is_known_ = false; }

 private:
  std::int64_t time_ = 0;
  std::int64_t processor_time_ = 0;
  std::int64_t until_ = std::numeric_limits<std::int64_t>::min();
  bool is_known_ = false;  // the two times above
};

}  // namespace tulle::live
