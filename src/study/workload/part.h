#pragma once

#include <cstdint>

namespace tulle::workload {

// Returns the size of part `index` of `parts`. Parts differ by a byte at most and add up to
// `whole`.
constexpr std::uint64_t part_of(std::uint64_t whole, std::uint64_t index, std::uint64_t parts) {
  return whole / parts + (index < whole % parts ? 1 : 0);
}

// Returns where that part begins.
constexpr std::uint64_t start_of(std::uint64_t whole, std::uint64_t index, std::uint64_t parts) {
  const std::uint64_t longer = whole % parts;
  return whole / parts * index + (index < longer ? index : longer);
}

}  // namespace tulle::workload
