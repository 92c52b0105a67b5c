#pragma once

// Addresses of an InfiniBand subnet, as its manager gives them out. A host has 2^LMC LIDs, each
// with its own path. The first is a multiple of 2^LMC (IBTA 7.11.1), so the LIDs below the first
// host's, 0 among them, are unused. A switch has one LID, behind the hosts'.

#include <cstddef>
#include <cstdint>

#include "base/ids.h"

namespace tulle::fabric {

inline constexpr unsigned lmc_max = 7;  // three bits (IBTA 14.2.5.6)

constexpr std::uint64_t last_lid(std::uint64_t hosts, std::uint64_t switches, unsigned lmc) {
  return ((hosts + 1) << lmc) - 1 + switches;
}

// Returns the LID of one of a host's paths. The subnet's last LID must be a unicast LID.
constexpr Lid lid_of(std::uint32_t host, unsigned lmc, std::uint32_t path = 0) {
  return lid_of_path(Lid(static_cast<std::uint16_t>((host + 1) << lmc)), lmc, path);
}

// Returns the host that has this LID, which must be a host's.
constexpr std::uint32_t host_of(Lid lid, unsigned lmc) {
  return (std::uint32_t{lid.value} >> lmc) - 1;
}

// Returns a host's GID: the link-local prefix (IBTA 4.1.1) and a locally administered GUID.
constexpr Gid gid_of(std::uint32_t host) {
  Gid gid;
  gid.bytes[0] = 0xFE;
  gid.bytes[1] = 0x80;
  gid.bytes[8] = 0x02;
  for (std::size_t i = 0; i < 4; ++i) {
    gid.bytes[15 - i] = static_cast<std::uint8_t>((host + 1) >> (8 * i));
  }
  return gid;
}

}  // namespace tulle::fabric
