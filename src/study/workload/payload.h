#pragma once

// The payload of flows that carry bytes: a pattern from a seed that differs for each flow and at
// each place in a flow. Bytes that arrive late, twice, elsewhere or for another flow are thus told
// apart.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace tulle::workload {

void fill_payload(std::uint64_t seed, std::uint32_t flow, std::span<std::byte> bytes);

// The first byte that differs from the pattern of fill_payload(). check_payload() returns nothing
// if there is no difference.
struct PayloadDifference {
  std::uint64_t offset = 0;
  std::byte expected{};
  std::byte found{};
};
std::optional<PayloadDifference> check_payload(std::uint64_t seed, std::uint32_t flow,
                                               std::span<const std::byte> bytes);

}  // namespace tulle::workload
