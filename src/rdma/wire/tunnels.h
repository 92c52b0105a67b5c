#pragma once

// Headers behind IP and UDP that flow steering looks at: tunnels, and IPsec's encrypted payload.

#include <array>
#include <cstdint>

#include "base/big_endian.h"
#include "rdma/wire/header.h"

namespace tulle::wire {

// Protocol numbers (IANA, Assigned Internet Protocol Numbers).
inline constexpr std::uint8_t ip_protocol_gre = 47;
inline constexpr std::uint8_t ip_protocol_esp = 50;
inline constexpr std::uint16_t vxlan_port = 4789;  // RFC 7348 §5

// RFC 7348 §5: flags, one of which marks the identifier as valid, and 24 bits of identifier.
struct Vxlan {
  std::uint8_t flags = 0;
  std::array<std::uint8_t, 3> reserved{};
  be24 identifier;
  std::uint8_t last = 0;
};
static_assert(is_wire_format<Vxlan, 8>);

// RFC 2784 §2.1 and RFC 2890 §2.
struct Gre {
  static constexpr std::uint16_t has_checksum = 0x8000;
  static constexpr std::uint16_t has_key = 0x2000;
  be16 flags;
  be16 protocol;
};
static_assert(is_wire_format<Gre, 4>);

// RFC 4303 §2.
struct Esp {
  be32 security_index;
  be32 sequence;
};
static_assert(is_wire_format<Esp, 8>);

}  // namespace tulle::wire
