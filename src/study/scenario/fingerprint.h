#pragma once

#include <cstdint>

#include "study/scenario/setup.h"

namespace tulle::scenario {

// Returns a number in which setups almost certainly differ that play different traffic, or have
// another topology. Each rank of a run on several machines builds its own setup, and one may have
// other files than another.
std::uint64_t fingerprint(const Setup& setup);

}  // namespace tulle::scenario
