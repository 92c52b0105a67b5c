#pragma once

// The slots of a host. Each process with a device has one, and the numbers of its queue pairs begin
// with the slot's number (live/path/packets/socket_group.h).

#include <cstdint>

#include "base/ids.h"

namespace tulle::live {

inline constexpr std::uint32_t slot_bits = 7;
inline constexpr std::uint32_t slots = 1u << slot_bits;
inline constexpr std::uint32_t qps_per_slot = 1u << (24 - slot_bits);
// One process gets a part of a slot's numbers, and the next process the next part. So a late
// datagram to a dead process's queue pair reaches nobody.
inline constexpr std::uint32_t qps_per_process = 16'384;
inline constexpr std::uint32_t turns_per_slot = qps_per_slot / qps_per_process;
// Returns the first number of a part.
constexpr std::uint32_t first_qp_of(std::uint32_t slot, std::uint32_t turn) {
  return slot * qps_per_slot + turn * qps_per_process;
}
// Queue pair numbers that follow one another.
struct QpNumbers {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  constexpr bool contains(QpNumber number) const { return number.value - first < count; }
};
inline constexpr std::uint32_t agent_slot = 0;  // QP0 and QP1 are the management queue pairs

// Always less than `slots`: a number has 24 bits, and any further bits are ignored.
constexpr std::uint32_t slot_of(QpNumber qp) {
  return (qp.value & qp_number_max) >> (24 - slot_bits);
}

// Returns which of the parts of its slot's numbers the number belongs to.
constexpr std::uint32_t turn_of(QpNumber qp) {
  return (qp.value & (qps_per_slot - 1)) / qps_per_process;
}

}  // namespace tulle::live
