#pragma once

// Measures a machine for simulations of collectives among its processes: single messages and sums
// of them, and no collective.

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "ranks/plan.h"

namespace tulle::ranks {

// These are the times of messages of one size.
struct SizeTimes {
  std::uint64_t bytes = 0;
  double alone = 0;   // seconds a message, between two processes with no other load
  double stored = 0;  // processor seconds for each message, while all ranks send and store
  double added = 0;   // the same while all ranks send and add
  double busy = 0;    // cores that the ranks had meanwhile
};

// Parameters of workload::Servers, in bytes and seconds.
struct Calibration {
  std::uint32_t ranks = 0;
  std::uint32_t cores = 0;  // that this process may use
  std::vector<SizeTimes> sizes;
  double share = 1;             // of the cores' time that the ranks have while all of them send
  double hop = 0;               // of 8 bytes: seconds from a rank to the next, all asleep
  double message_work = 0;      // seconds of a core at each end of a message
  double bytes_per_second = 0;  // that a core moves
  double added_bytes_per_second = 0;  // that a core adds
  double latency = 0;                 // seconds of a hop beyond the work at its ends
};

// Measures five times and takes medians. Takes half a minute.
Result<Calibration> calibrate(const Group& group, std::uint32_t ranks);

// A line by least squares of the relative errors: y = at_zero + slope * x. Neither is negative.
struct Line {
  double at_zero = 0;
  double slope = 0;
};
struct Point {
  double x = 0;
  double y = 0;  // more than 0
};
Line line_through(const std::vector<Point>& points);

// Each rank sends so many messages to the next one, all at once. If `all` is false, rank 0 alone.
Plan exchange(std::uint32_t ranks, std::uint64_t bytes, std::uint32_t count, bool adds, bool all);
// One message goes round all ranks, so many hops.
Plan hops(std::uint32_t ranks, std::uint32_t count);

}  // namespace tulle::ranks
