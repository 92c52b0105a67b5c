#pragma once

/* Bytes that are known at every place, which the programs of several folders use. */

#include <stddef.h>
#include <stdint.h>

/* A seeded stream of numbers, the same on both sides. */
struct random {
  uint64_t state;
};
uint64_t random_next(struct random* random);
uint32_t random_below(struct random* random, uint32_t bound);

/* Fills memory with the bytes of a stream, from byte `position` of the stream on. */
void pattern_fill(uint8_t* to, size_t bytes, uint64_t stream, size_t position);
#define BACKGROUND 0xBACC6A0D /* the stream that fills memory where nothing was placed */
