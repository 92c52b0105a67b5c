#pragma once

#include <cstdint>

#include "base/ids.h"
#include "rdma/verbs/types.h"

namespace tulle::transport::srd {

// Identifies a peer adapter by what its packets say: its GID, its range of queue pair numbers, and
// the service level of packets to and from it.
struct PeerKey {
  Gid gid;
  std::uint32_t range = 0;  // the high bits of its queue pairs' numbers
  std::uint8_t service_level = 0;

  bool operator==(const PeerKey&) const = default;
  std::uint32_t hash() const {
    std::uint64_t h = (std::uint64_t{range} << 8 | service_level) + 1;
    for (const std::uint8_t byte : gid.bytes) h = (h ^ byte) * 0x0000'0100'0000'01B3;  // FNV-1a
    return static_cast<std::uint32_t>(h ^ h >> 32);
  }
};

// The name of a context on the wire: the generation of the sender's packet numbers, and the service
// level. Generations increase, so that the receiver recognizes packets left over from an older one.
struct Context {
  static constexpr unsigned level_bits = 4;
  static constexpr std::uint32_t generation_mask = (1u << (32 - level_bits)) - 1;

  std::uint32_t generation = 0;
  std::uint8_t service_level = 0;

  static Context of(std::uint32_t word) {
    return {word >> level_bits, static_cast<std::uint8_t>(word & ((1u << level_bits) - 1))};
  }
  std::uint32_t word() const { return generation << level_bits | service_level; }
  // Returns true if this generation is later than `other`, for numbers that wrap.
  bool is_later_than(std::uint32_t other) const {
    const std::uint32_t ahead = (generation - other) & generation_mask;
    return ahead != 0 && ahead <= generation_mask / 2;
  }
};

}  // namespace tulle::transport::srd
