#pragma once

// Local identifiers, as a subnet manager deals them out. A host has 2^LMC, each a path of its own,
// the first of them a multiple of 2^LMC (IBTA 7.11.1), which leaves those below it, 0 among them,
// unused. A switch has one, behind the hosts'.

#include <cstdint>

#include "base/ids.h"

namespace tulle::fabric {

inline constexpr unsigned lmc_max = 7;                    // three bits (IBTA 14.2.5.6)
inline constexpr std::uint32_t unicast_lid_max = 0xBFFF;  // IBTA 4.1.3: multicast's are behind

constexpr std::uint64_t last_lid(std::uint64_t hosts, std::uint64_t switches, unsigned lmc) {
  return ((hosts + 1) << lmc) - 1 + switches;
}

// Of a subnet whose last LID is a unicast one; `path` below 2^lmc.
constexpr Lid lid_of(std::uint32_t host, unsigned lmc, std::uint32_t path = 0) {
  return Lid(static_cast<std::uint16_t>(((host + 1) << lmc) + path));
}

}  // namespace tulle::fabric
