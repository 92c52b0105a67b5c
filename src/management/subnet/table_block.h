#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace tulle::management::subnet {

// Returns a block of a table, as many bytes as there are.
template <typename Field>
std::span<std::byte> block_of(std::vector<Field>& table, std::size_t block, std::size_t entries) {
  const std::size_t first = block * entries;
  if (first >= table.size()) return {};
  return std::as_writable_bytes(
      std::span(table).subspan(first, std::min(entries, table.size() - first)));
}

}  // namespace tulle::management::subnet
