#pragma once

// Bounds that keep sums of times within the range of a Time, which is 106 days. Topologies from
// tables obey them too.

#include <cstdint>

#include "base/time.h"

namespace tulle::config {

inline constexpr Time delay_max = Time::seconds(1'000);          // the longest delay or interval
inline constexpr Time last_moment = Time::seconds(9'000'000);    // of virtual time
inline constexpr std::int64_t rate_max = 1'000'000'000'000'000;  // the highest rate, bits a second

}  // namespace tulle::config
