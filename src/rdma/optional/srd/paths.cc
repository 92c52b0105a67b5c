#include "rdma/optional/srd/paths.h"

#include <algorithm>

#include "base/check.h"

namespace tulle::transport::srd {
namespace {

// A path is overloaded if its packets take more than one and a half times the mean round trip.
constexpr std::int64_t overloaded_numerator = 3, overloaded_denominator = 2;
// Each packet counts for 1/32 of the mean, so that all of 64 paths contribute to it.
constexpr std::int64_t mean_weight = 32;
// The number of round trips for which a path is avoided. It doubles with each further strike.
constexpr std::int64_t avoided_round_trips = 4;
constexpr std::uint8_t strikes_max = 10;

}  // namespace

Paths::Paths(std::uint32_t count, std::uint64_t seed)
    : paths_(std::make_unique<Path[]>(count)), count_(count) {
  TULLE_CHECK(count > 0);
  Random random(seed);
  constexpr std::uint64_t flow_labels = (1u << 20) - 1;  // without 0, which is none (IPv6, 20 bits)
  for (std::uint32_t path = 0; path < count; ++path) {
    paths_[path].flow_label = static_cast<std::uint32_t>(1 + random.below(flow_labels));
  }
  next_ = static_cast<std::uint32_t>(random.below(count));
}

std::uint8_t Paths::choose(Time now, std::uint32_t other_than) {
  std::uint32_t best = next_;
  for (std::uint32_t tried = 0; tried < count_; ++tried) {
    const std::uint32_t path = next_ + tried < count_ ? next_ + tried : next_ + tried - count_;
    if (path == other_than && count_ > 1) {
      if (best == path) best = path + 1 < count_ ? path + 1 : 0;
      continue;
    }
    if (now >= paths_[path].avoided_until) {
      best = path;
      break;
    }
    // If all paths are avoided, the one whose time ends first is taken.
    if (paths_[path].avoided_until < paths_[best].avoided_until) best = path;
  }
  next_ = best + 1 < count_ ? best + 1 : 0;
  return static_cast<std::uint8_t>(best);
}

void Paths::acknowledged(Time now, std::uint8_t number, Time round_trip) {
  Path& path = paths_[number];
  if (mean_ == Time::zero()) mean_ = round_trip;
  if (round_trip.ps * overloaded_denominator > mean_.ps * overloaded_numerator) {
    // All packets of a burst together count as one strike.
    if (now >= path.avoided_until) avoid(now, path);
  } else {
    path.strikes = 0;
    path.avoided_until = Time::zero();
  }
  mean_.ps += (round_trip.ps - mean_.ps) / mean_weight;
}

void Paths::lost(Time now, std::uint8_t number) {
  if (now >= paths_[number].avoided_until) avoid(now, paths_[number]);
}

void Paths::avoid(Time now, Path& path) {
  path.avoided_until = now + mean_ * (avoided_round_trips << path.strikes);
  path.strikes = std::min<std::uint8_t>(path.strikes + 1, strikes_max);
}

}  // namespace tulle::transport::srd
