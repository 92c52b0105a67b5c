#pragma once

// Sizes of flows as a cumulative distribution, piecewise linear between points, as published
// studies of data centres give it.

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "base/result.h"

namespace tulle::workload {

class SizeDistribution {
 public:
  // `cumulative_percent` of all flows have at most this many bytes. Sizes between two points are
  // equally likely. Two points of the same size mean flows of exactly that size.
  struct Point {
    double bytes = 0;
    double cumulative_percent = 0;
    bool operator==(const Point&) const = default;
  };

  // Every flow has this many bytes, 1 to 2^53.
  static Result<SizeDistribution> fixed(std::uint64_t bytes);

  // Needs at least one point. Neither column may fall, and the last point is at 100 percent. If the
  // first point is above 0 percent, that share of the flows has exactly its size.
  static Result<SizeDistribution> from_points(std::vector<Point> points);

  // Reads lines of "bytes,cumulative percent" and skips blank lines, comments (#) and one line of
  // column names. An error begins with "FILE:LINE: "; `file` is only its name.
  static Result<SizeDistribution> from_csv(std::string_view text, std::string_view file);

  // Web search: Alizadeh et al., "Data Center TCP (DCTCP)", SIGCOMM 2010. Mean 1.71 MB.
  static SizeDistribution web_search();
  // Hadoop at Facebook: Roy et al., "Inside the Social Network's (Datacenter) Network", SIGCOMM
  // 2015. Mean 120 kB.
  static SizeDistribution hadoop();

  double mean_bytes() const { return mean_bytes_; }
  const std::vector<Point>& points() const { return points_; }

  // Returns the size of one flow, at least 1. The same stream gives the same sizes on every
  // machine.
  std::uint64_t sample(Random& random) const;

 private:
  explicit SizeDistribution(std::vector<Point> points);

  std::vector<Point> points_;
  double mean_bytes_ = 0;
};

}  // namespace tulle::workload
