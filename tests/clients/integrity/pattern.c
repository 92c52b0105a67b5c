#include "pattern.h"

#include <string.h>

static uint64_t mixed(uint64_t z) { /* SplitMix64's finisher */
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

uint64_t random_next(struct random* random) {
  random->state += 0x9E3779B97F4A7C15ull;
  return mixed(random->state);
}

uint32_t random_below(struct random* random, uint32_t bound) {
  return (uint32_t)(((random_next(random) >> 32) * bound) >> 32);
}

void pattern_fill(uint8_t* to, size_t bytes, uint64_t stream, size_t position) {
  const uint64_t start = mixed(stream + 1);
  size_t done = 0;
  while (done < bytes) {
    const size_t word = (position + done) / 8;
    const size_t skip = (position + done) % 8;
    const uint64_t value = mixed(start + word * 0x9E3779B97F4A7C15ull);
    const size_t count = bytes - done < 8 - skip ? bytes - done : 8 - skip;
    memcpy(to + done, (const uint8_t*)&value + skip, count);
    done += count;
  }
}
