#pragma once

// Local identifiers as a subnet manager assigns them. A host has 2^LMC LIDs, one for each path. The
// first is a multiple of 2^LMC (IBTA 7.11.1), so the LIDs below the first host's, 0 among them,
// stay unused. A switch has one LID, after those of the hosts.

#include <cstdint>

#include "base/ids.h"

namespace tulle::fabric {

inline constexpr unsigned lmc_max = 7;                    // three bits (IBTA 14.2.5.6)
inline constexpr std::uint32_t unicast_lid_max = 0xBFFF;  // IBTA 4.1.3: multicast LIDs follow

constexpr std::uint64_t last_lid(std::uint64_t hosts, std::uint64_t switches, unsigned lmc) {
  return ((hosts + 1) << lmc) - 1 + switches;
}

// Returns the LID of one of a host's paths. The subnet's last LID must be a unicast LID, and `path`
// must be below 2^lmc.
constexpr Lid lid_of(std::uint32_t host, unsigned lmc, std::uint32_t path = 0) {
  return Lid(static_cast<std::uint16_t>(((host + 1) << lmc) + path));
}

}  // namespace tulle::fabric
