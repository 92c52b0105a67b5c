#pragma once

namespace tulle {

// Prefetches the cache line at `address`, which may be any value. The empty asm statement keeps GCC
// from dropping the calls: without it, GCC takes a function that only prefetches for one without an
// effect.
inline void prefetch(const void* address) {
  __builtin_prefetch(address);
  asm volatile("");
}

}  // namespace tulle
