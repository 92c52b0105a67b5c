#pragma once

#include <cstdint>

namespace tulle::workload {

// Returns the size of part `index` of `parts`. Parts differ by a byte at most and add up to
// `whole`.
constexpr std::uint64_t part_of(std::uint64_t whole, std::uint64_t index, std::uint64_t parts) {
  return whole / parts + (index < whole % parts ? 1 : 0);
}

}  // namespace tulle::workload
