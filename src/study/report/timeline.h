#pragma once

// A timeline says what happened when in a run: the network as a whole at even moments, and a job's
// phases on some of its ranks.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/time.h"

namespace tulle::report {

// The network between the moment before and this one.
struct Moment {
  std::uint64_t bytes_sent = 0;   // by adapters, counted as they take time on their links
  std::uint64_t queue_bytes = 0;  // longest queue of a switch's port at this moment
  Time paused;                    // time for which ports were paused, summed over all ports
  std::uint64_t credit_stalls = 0;
  std::uint64_t marked = 0;   // frames
  std::uint64_t dropped = 0;  // frames
};

struct Timeline {
  // A timeline keeps from half as many moments to so many. A longer run has longer intervals.
  static constexpr std::size_t moments_max = 2'048;
  Time interval;
  std::vector<Moment> moments;  // the first one is at `interval`
};

// A time in which a rank computed, or in which messages that it sent were under way.
struct Span {
  std::uint32_t row = 0;    // index in Spans::rows
  std::uint32_t phase = 0;  // index in Spans::phases
  Time start, end;
  bool is_message = false;
};

struct Spans {
  std::vector<std::string> phases;
  std::vector<std::string> rows;  // names of ranks
  std::vector<Span> spans;        // those of a row, phase and kind do not overlap
};

}  // namespace tulle::report
