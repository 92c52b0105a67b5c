#pragma once

// IP over InfiniBand (RFC 4391): the header in front of an IP packet, addresses of interfaces,
// address resolution, and the multicast groups that carry IP multicast.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/big_endian.h"
#include "base/ids.h"
#include "rdma/wire/header.h"
#include "rdma/wire/pkey.h"

namespace tulle::wire {

// Behind DETH (RFC 4391 §6).
struct IpoibHeader {
  static constexpr std::uint16_t ipv4 = 0x0800;
  static constexpr std::uint16_t arp = 0x0806;
  static constexpr std::uint16_t ipv6 = 0x86DD;

  be16 type;
  be16 reserved;
};
static_assert(is_wire_format<IpoibHeader, 4>);

// The address of an interface, of 20 bytes (RFC 4391 §9.1.1).
struct IpoibAddress {
  std::uint8_t flags = 0;  // connected modes that the interface knows (RFC 4755 §3)
  be24 qp;
  std::array<std::uint8_t, 16> gid{};

  bool operator==(const IpoibAddress& other) const {
    return std::uint32_t{qp} == std::uint32_t{other.qp} && gid == other.gid;
  }
};
static_assert(is_wire_format<IpoibAddress, 20>);

// Address resolution for IPv4 (RFC 826) with such addresses.
struct IpoibArp {
  static constexpr std::uint16_t infiniband = 32;  // hardware type (RFC 4391 §9.1.2)
  static constexpr std::uint16_t request = 1;
  static constexpr std::uint16_t reply = 2;

  be16 hardware;
  be16 protocol;
  std::uint8_t hardware_bytes = 0;
  std::uint8_t protocol_bytes = 0;
  be16 operation;
  IpoibAddress sender;
  be32 sender_ip;
  IpoibAddress target;
  be32 target_ip;
};
static_assert(is_wire_format<IpoibArp, 56>);

// Neighbour discovery for IPv6 (RFC 4861 §4.3, 4.4): a solicitation or an advertisement, with the
// option that has an interface's address (RFC 4391 §9.3).
struct NeighbourMessage {
  static constexpr std::uint8_t solicitation = 135;  // types
  static constexpr std::uint8_t advertisement = 136;
  static constexpr std::uint8_t solicited = 0x40;  // flags of an advertisement
  static constexpr std::uint8_t overrides = 0x20;

  std::uint8_t type = 0;
  std::uint8_t code = 0;
  be16 checksum;
  std::uint8_t flags = 0;
  std::array<std::uint8_t, 3> reserved{};
  std::array<std::uint8_t, 16> target{};
};
static_assert(is_wire_format<NeighbourMessage, 24>);

struct NeighbourOption {
  static constexpr std::uint8_t source = 1;  // types: whose address it is
  static constexpr std::uint8_t target = 2;
  static constexpr std::uint8_t units = 3;  // of eight bytes

  std::uint8_t type = 0;
  std::uint8_t length = 0;
  be16 reserved;
  IpoibAddress address;
};
static_assert(is_wire_format<NeighbourOption, 24>);

// Signatures in a multicast GID (RFC 4391 §4).
inline constexpr std::uint16_t ipoib_ipv4_signature = 0x401B;
inline constexpr std::uint16_t ipoib_ipv6_signature = 0x601B;

// Returns the GID of the group that carries an IP group's packets (RFC 4391 §4), with link-local
// scope. An IPv4 group is mapped into IPv6. The signature may be another one than IPoIB's.
constexpr Gid group_of_ip(const Gid& address, Pkey partition, std::uint16_t signature) {
  constexpr std::uint8_t link_local = 0x12;  // not permanent, of this scope
  constexpr std::uint8_t ipv4_group_mask = 0x0F;
  const std::uint16_t pkey = full_member(partition).value;
  Gid gid;
  gid.bytes[0] = 0xFF;
  gid.bytes[1] = link_local;
  gid.bytes[2] = static_cast<std::uint8_t>(signature >> 8);
  gid.bytes[3] = static_cast<std::uint8_t>(signature);
  gid.bytes[4] = static_cast<std::uint8_t>(pkey >> 8);
  gid.bytes[5] = static_cast<std::uint8_t>(pkey);
  const std::size_t copied_from = address.is_ipv4_mapped() ? 12 : 6;
  std::copy(address.bytes.begin() + copied_from, address.bytes.end(),
            gid.bytes.begin() + copied_from);
  if (address.is_ipv4_mapped()) gid.bytes[12] &= ipv4_group_mask;
  return gid;
}
constexpr Gid group_of_ip(const Gid& address, Pkey partition) {
  return group_of_ip(address, partition,
                     address.is_ipv4_mapped() ? ipoib_ipv4_signature : ipoib_ipv6_signature);
}

// Returns the group that carries IPv4's broadcasts, which all interfaces of a partition join before
// anything else (RFC 4391 §5).
constexpr Gid broadcast_group(Pkey partition) {
  Gid gid = group_of_ip(Gid::from_ipv4(0xFFFF'FFFF), partition);
  gid.bytes[12] = 0xFF;
  return gid;
}

}  // namespace tulle::wire
