#pragma once

// The datagrams that the processes of a fabric on several machines send to each other over UDP.
// Each begins with a header. Packets of InfiniBand follow it as they would be on the link, from the
// LRH to the VCRC (IBTA 7.4), and flow control packets without their CRC (IBTA 7.9.4). A datagram
// that is too long for the network goes as pieces: IP's own fragments would share a small table in
// the receiver's kernel with those of anyone who can send to it.
//
// A process that has read nothing of what another one sends cannot write a datagram that the latter
// accepts: each carries the receiver's session, a random number that the receiver sends to the
// machines of its fabric alone.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/big_endian.h"
#include "fabric/subnet.h"
#include "management/packet.h"
#include "rdma/wire/flow_control.h"
#include "rdma/wire/header.h"
#include "rdma/wire/ip_udp.h"
#include "rdma/wire/smp.h"
#include "rdma/wire/vcrc.h"

namespace tulle::fabric {

enum class TunnelKind : std::uint8_t {
  hello = 1,       // TunnelHello
  ports = 2,       // one PortRecord after another
  credits = 3,     // one CreditRecord after another
  management = 4,  // a management datagram, as a packet
  data = 5,        // any other packet
  piece = 6,       // TunnelPiece, and a part of a datagram with data
};

struct TunnelHeader {
  static constexpr std::uint32_t right_magic = 0x5475'4642;  // "TuFB"
  static constexpr std::uint8_t right_version = 2;

  be32 magic = right_magic;
  std::uint8_t version = right_version;
  std::uint8_t kind = 0;     // TunnelKind
  std::uint8_t machine = 0;  // that sends
  std::uint8_t hops = 0;     // of a packet
  // A hello has the session of the receiver, if the sender knows it. All others have it XOR that of
  // the sender, so that a datagram that was under way when either process ended is refused.
  be64 session;
  be32 sequence;  // grows with each datagram to a receiver, modulo 2^32
  be32 link;      // of a packet
  be32 number;    // of a multicast packet (fabric/subnet_traffic.h)
};
static_assert(wire::is_wire_format<TunnelHeader, 28>);

struct TunnelHello {
  be64 session;            // that of the sender
  be32 digest;             // digest_of()
  std::uint8_t hears = 0;  // 1: the sender received from it in the last second
  be24 reserved;
};
static_assert(wire::is_wire_format<TunnelHello, 16>);

// Subnet::PortReport.
struct PortRecord {
  be32 node;
  std::uint8_t port = 0;
  std::uint8_t is_willing = 0;
  be16 reserved;
  be32 attempt;
  be32 heard;
  wire::PortInfo info;
};
static_assert(wire::is_wire_format<PortRecord, 80>);

struct CreditRecord {
  be32 link;
  wire::FlowControlPacket packet;
};
static_assert(wire::is_wire_format<CreditRecord, 8>);

// A part of what follows the header of a datagram with data. Pieces have successive sequences.
struct TunnelPiece {
  be16 whole;   // bytes that all pieces have together
  be16 offset;  // of this one in them
};
static_assert(wire::is_wire_format<TunnelPiece, 4>);

// The longest datagram that every network takes: IPv6's least MTU (RFC 8200 §5), without the
// longest headers of IP and UDP, and a seal.
inline constexpr std::size_t tunnel_seal_bytes = 48;
inline constexpr std::size_t tunnel_datagram_bytes = 1'280 - 40 - 8 - tunnel_seal_bytes;
inline constexpr std::size_t tunnel_records_bytes_max =
    tunnel_datagram_bytes - sizeof(TunnelHeader);
inline constexpr std::size_t port_records_max = tunnel_records_bytes_max / sizeof(PortRecord);
inline constexpr std::size_t credit_records_max = tunnel_records_bytes_max / sizeof(CreditRecord);

// Returns a CRC-32 over all that the processes of a fabric must agree on: its nodes and links, and
// the machines that have them.
std::uint32_t digest_of(const Topology& topology, std::span<const std::uint32_t> machines);

PortRecord record_of(const Subnet::PortReport& report);
Subnet::PortReport report_of(const PortRecord& record);

// A management datagram as a packet: LRH 8, BTH 12, DETH 8, MAD, ICRC, VCRC (IBTA 13.5.1).
inline constexpr std::size_t management_packet_bytes =
    8 + 12 + 8 + wire::mad_bytes + wire::icrc_bytes + wire::vcrc_bytes;
std::array<std::byte, management_packet_bytes> encode(const management::Packet& packet);
// Returns nothing if the bytes are no management datagram, or are damaged.
std::optional<management::Packet> decode_management(std::span<const std::byte> bytes);

// Appends a packet with data with its checks, as it is on a link where it has that lane. The packet
// goes from its LRH to its pad, and its link headers are right.
void append_packet(std::span<const std::byte> packet, std::uint8_t lane,
                   std::vector<std::byte>& out);
// A packet with data that has come, from its LRH to its pad, and its lane.
struct DecodedPacket {
  std::span<const std::byte> packet;
  std::uint8_t lane = 0;
};
std::optional<DecodedPacket> decode_packet(std::span<const std::byte> bytes);

}  // namespace tulle::fabric
