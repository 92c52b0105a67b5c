#pragma once

// IPv6 extension headers (RFC 8200 §4) that precede a transport's header.

#include <array>
#include <cstdint>

#include "base/big_endian.h"
#include "rdma/wire/header.h"

namespace tulle::wire {

// Protocol numbers (IANA, Assigned Internet Protocol Numbers).
inline constexpr std::uint8_t ipv6_hop_by_hop = 0;
inline constexpr std::uint8_t ipv6_routing = 43;
inline constexpr std::uint8_t ipv6_fragment = 44;
inline constexpr std::uint8_t ipv6_destination_options = 60;

constexpr bool is_ipv6_extension(std::uint8_t protocol) {
  return protocol == ipv6_hop_by_hop || protocol == ipv6_routing || protocol == ipv6_fragment ||
         protocol == ipv6_destination_options;
}

struct Ipv6Extension {
  std::uint8_t next = 0;
  std::uint8_t length = 0;  // in words of 8 bytes behind the first; reserved in a fragment header
  be16 offset;              // in a fragment header: offset 13, reserved 2, more fragments 1
  std::array<std::uint8_t, 4> rest{};
};
static_assert(is_wire_format<Ipv6Extension, 8>);

}  // namespace tulle::wire
