#pragma once

// What a RoCE port answers of subnet management (IBTA 14.2): who it is, to those on its own host.
// It has no QP0, no LID and no subnet manager (IBTA A16.2.1), so nothing can be set and nobody else
// asks.

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
  std::uint8_t state = 0;           // as PortInfo counts them: 1 down … 4 active
  std::uint8_t physical_state = 0;  // 3 disabled, 5 link up
  std::uint8_t mtu_code = 0;        // 1: 256 bytes … 5: 4096
  std::string_view description;     // up to 64 bytes are told
};

// False: this is none that is answered. It is of class 0x01 or 0x81.
[[nodiscard]] bool answer(Request request, const Identity& identity, Answer answer);

// Whether a directed route leads no further than this port; one that does leads nowhere.
bool stays_here(Request request);

}  // namespace tulle::management::subnet
