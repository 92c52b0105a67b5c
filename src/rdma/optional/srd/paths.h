#pragma once

// The paths from one adapter to another: values of the UDP source port, by which switches choose
// among equal-cost links. For each path the sender knows whether recent packets were slow or lost.
// Packets take all paths round robin, except those that are overloaded or dead.

#include <cstdint>
#include <memory>

#include "base/random.h"
#include "base/time.h"

namespace tulle::transport::srd {

class Paths {
 public:
  Paths(std::uint32_t count, std::uint64_t seed);

  // Returns the next path, round robin, but not `other_than` if there is a choice.
  static constexpr std::uint32_t none = ~0u;
  std::uint8_t choose(Time now, std::uint32_t other_than = none);
  // A packet that took this path was acknowledged.
  void acknowledged(Time now, std::uint8_t path, Time round_trip);
  // A packet that took this path is missing.
  void lost(Time now, std::uint8_t path);

  // Returns the flow label that names a path: 20 bits, never 0.
  std::uint32_t flow_label(std::uint8_t path) const { return paths_[path].flow_label; }
  std::uint32_t count() const { return count_; }
  bool is_avoided(Time now, std::uint8_t path) const { return now < paths_[path].avoided_until; }
  void rebase(Time by) {
    for (std::uint32_t i = 0; i < count_; ++i) tulle::rebase(by, paths_[i].avoided_until);
  }

 private:
  struct Path {
    Time avoided_until = Time::zero();
    std::uint32_t flow_label = 0;
    std::uint8_t strikes = 0;  // strikes in a row
  };
  void avoid(Time now, Path& path);

  std::unique_ptr<Path[]> paths_;
  std::uint32_t count_;
  std::uint32_t next_ = 0;
  Time mean_ = Time::zero();  // round trip of the packets acknowledged last, over all paths
};

}  // namespace tulle::transport::srd
