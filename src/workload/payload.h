#pragma once

// What flows carry where they carry bytes: a pattern from a seed, another for each flow and at each
// place of it, so that bytes that arrive late, twice, elsewhere or for another flow are told apart.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace tulle::workload {

void fill_payload(std::uint64_t seed, std::uint32_t flow, std::span<std::byte> bytes);

// The first byte that is not as fill_payload() makes it; nothing: all are.
struct PayloadDifference {
  std::uint64_t offset = 0;
  std::byte expected{};
  std::byte found{};
};
std::optional<PayloadDifference> check_payload(std::uint64_t seed, std::uint32_t flow,
                                               std::span<const std::byte> bytes);

}  // namespace tulle::workload
