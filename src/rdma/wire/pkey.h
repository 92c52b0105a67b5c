#pragma once

// Partition keys (IBTA 10.9.1). The low 15 bits name a partition. The top bit says whether the
// holder of the key is a full or a limited member.

#include <cstdint>

#include "base/ids.h"

namespace tulle::wire {

inline constexpr std::uint16_t pkey_full_member = 0x8000;

constexpr bool is_full_member(Pkey pkey) { return (pkey.value & pkey_full_member) != 0; }
constexpr Pkey full_member(Pkey pkey) {
  return Pkey(static_cast<std::uint16_t>(pkey.value | pkey_full_member));
}
constexpr bool is_same_partition(Pkey a, Pkey b) {
  return ((a.value ^ b.value) & ~pkey_full_member & 0xFFFF) == 0;
}
// IBTA 10.9.3: two limited members do not talk to each other, and partition 0 is invalid.
constexpr bool pkeys_match(Pkey a, Pkey b) {
  return is_same_partition(a, b) && (is_full_member(a) || is_full_member(b)) &&
         !is_same_partition(a, Pkey{0});
}

}  // namespace tulle::wire
