#pragma once

// Random scenarios of streams (QpType::stream), held to what a socket promises under any weather.
// One end reads what the other writes, in order, once and completely, however the two divide it.
// Completions come in order, and no other memory is touched.

#include <cstdint>

#include "tests/scenarios/world.h"

namespace tulle::scenarios {

// Throws Broken if a promise was not kept. With `damage`, bytes change where no checksum covers
// them, and the checker has to find that.
Outcome play_streams(std::uint64_t seed, bool damage = false, const sim::Clocks& clocks = {});

}  // namespace tulle::scenarios
