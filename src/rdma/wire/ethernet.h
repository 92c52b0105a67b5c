#pragma once

// Ethernet's header (IEEE 802.3 clause 3.2) and the tag of a virtual LAN (IEEE 802.1Q clause 9.6).

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/big_endian.h"
#include "rdma/wire/header.h"

namespace tulle::wire {

using MacAddress = std::array<std::uint8_t, 6>;

// The first bit on the wire is set in every group address and in the broadcast address (IEEE 802.3
// clause 3.2.3).
constexpr bool is_multicast(const MacAddress& address) { return (address[0] & 1) != 0; }

inline constexpr std::uint16_t ether_type_ipv4 = 0x0800;
inline constexpr std::uint16_t ether_type_ipv6 = 0x86DD;
inline constexpr std::uint16_t ether_type_roce = 0x8915;          // RoCE v1 (IBTA A16.3)
inline constexpr std::uint16_t ether_type_vlan = 0x8100;          // a customer's tag
inline constexpr std::uint16_t ether_type_service_vlan = 0x88A8;  // a provider's tag

struct Ethernet {
  MacAddress destination{};
  MacAddress source{};
  be16 type;
};
static_assert(is_wire_format<Ethernet, 14>);

// Follows the EtherType of the tag itself. `type` is the EtherType of the payload.
struct VlanTag {
  be16 control;  // priority 3, drop eligible 1, virtual LAN 12
  be16 type;
};
static_assert(is_wire_format<VlanTag, 4>);

}  // namespace tulle::wire
