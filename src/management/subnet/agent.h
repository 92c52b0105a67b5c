#pragma once

// The subnet management agent of a RoCE port (IBTA 14.2). It reports the port's identity to
// programs on its own host. The port has no QP0, no LID and no subnet manager (IBTA A16.2.1), so
// nothing can be set and no other host asks.

#include <cstdint>
#include <string_view>

#include "management/answer.h"

namespace tulle::management::subnet {

struct Identity {
  std::uint64_t node_guid = 0;
  std::uint64_t port_guid = 0;
  std::uint64_t gid_prefix = 0;
  std::uint32_t vendor_id = 0;  // 24 bits
  std::uint16_t device_id = 0;
  std::uint32_t revision = 0;
  std::uint8_t state = 0;           // values of PortInfo: 1 down … 4 active
  std::uint8_t physical_state = 0;  // 3 disabled, 5 link up
  std::uint8_t mtu_code = 0;        // 1 is 256 bytes … 5 is 4096
  std::string_view description;     // only the first 64 bytes are sent
};

// Writes the answer. Returns false if the request gets none. The request must be of class 0x01 or
// 0x81.
[[nodiscard]] bool answer(Request request, const Identity& identity, Answer answer);

// Returns true if the request's route ends at this port. A directed route that continues leads
// nowhere.
bool stays_here(Request request);

}  // namespace tulle::management::subnet
