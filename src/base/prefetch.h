#pragma once

namespace tulle {

// Has the cache line at `address`, which may be any, fetched. GCC takes a function that does
// nothing else for one without an effect, and leaves calls of it out: hence the empty statement.
inline void prefetch(const void* address) {
  __builtin_prefetch(address);
  asm volatile("");
}

}  // namespace tulle
