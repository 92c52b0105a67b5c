#pragma once

// The values that ranks exchange: floating-point numbers that are whole and so small that their
// sums are exact, whatever the order. They differ by rank, place and iteration.

#include <cstdint>
#include <span>

#include "ranks/plan.h"

namespace tulle::ranks {

using Value = float;

// Returns a rank's input at that index of its buffer: 0 to 65535.
Value input_of(std::uint32_t rank, std::uint64_t index, std::uint32_t iteration);

// Fills a rank's buffer with its input, and the second one with a value that is nobody's.
void fill(std::span<Value> buffer, std::span<Value> second, std::uint32_t rank,
          std::uint32_t iteration);

// Adds values to others, one by one.
void add(Value* into, const Value* values, std::uint64_t count);

// Counts the values of a rank's buffers that are not what the plan's collective promises.
std::uint64_t count_wrong(const Plan& plan, std::span<const Value> buffer,
                          std::span<const Value> second, std::uint32_t rank,
                          std::uint32_t iteration);

}  // namespace tulle::ranks
