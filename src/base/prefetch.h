#pragma once

#include <cstddef>

namespace tulle {

// Prefetches the cache line at `address`, which may be any value. The empty asm statement keeps GCC
// from dropping the calls: without it, GCC takes a function that only prefetches for one without an
// effect.
inline void prefetch(const void* address) {
  __builtin_prefetch(address);
  asm volatile("");
}

// Does so for all cache lines from `begin` to `end`.
inline void prefetch_range(const void* begin, const void* end) {
  const auto* last = static_cast<const std::byte*>(end);
  for (const auto* line = static_cast<const std::byte*>(begin); line < last; line += 64) {
    prefetch(line);
  }
}

// Does so for a cache line that is to be written.
inline void prefetch_to_write(const void* address) {
  __builtin_prefetch(address, 1);
  asm volatile("");
}

}  // namespace tulle
