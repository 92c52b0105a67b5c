#pragma once

// Random scenarios of streams (QpType::stream): what a socket promises under any weather. What one
// end writes the other reads, in order, once and whole, however both cut it; completions come in
// order; and nobody's memory is touched elsewhere.

#include <cstdint>

#include "tests/scenarios/world.h"

namespace tulle::scenarios {

// Throws Broken where a promise is. `damage`: bytes change where no checksum covers them, which has
// to be found.
Outcome play_streams(std::uint64_t seed, bool damage = false);

}  // namespace tulle::scenarios
