#pragma once

// IPv4, IPv6 and UDP headers as RoCE v2 uses them (RFC 791, 8200, 768; IBTA A17), and the GRH (IBTA
// 8.3), whose layout is IPv6's.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"

namespace tulle::wire {

inline constexpr std::uint16_t roce_v2_udp_port = 4791;
inline constexpr std::size_t ipv4_header_bytes = 20;
inline constexpr std::size_t ipv6_header_bytes = 40;
inline constexpr std::size_t grh_bytes = 40;
inline constexpr std::size_t udp_header_bytes = 8;
inline constexpr std::size_t icrc_bytes = 4;
// ECN, the low two bits of the traffic class (RFC 3168).
inline constexpr std::uint8_t ecn_mask = 3;
inline constexpr std::uint8_t ecn_capable = 2;
inline constexpr std::uint8_t ecn_congestion_experienced = 3;
// Bytes of the IPv4 and UDP headers behind the fragment offset, from which `explain_identification`
// counts.
inline constexpr std::size_t ipv4_udp_bytes_after_fragment_offset = 20;

// The IP and UDP headers of one datagram, decoded. Addresses are GIDs, with IPv4 as ::ffff:a.b.c.d.
// Both are of one family.
struct IpUdp {
  Gid source{};
  Gid destination{};
  std::uint16_t source_port = 0;
  std::uint16_t destination_port = roce_v2_udp_port;
  std::uint8_t traffic_class = 0;  // DSCP << 2 | ECN
  std::uint8_t hop_limit = 64;
  std::uint32_t flow_label = 0;      // 20 bits, IPv6
  std::uint16_t identification = 0;  // IPv4
  bool dont_fragment = true;         // IPv4
  std::uint16_t udp_checksum = 0;

  bool operator==(const IpUdp&) const = default;
};

// True if a switch marked the packet "congestion experienced" (RFC 3168).
inline bool is_marked(const IpUdp& headers) {
  return (headers.traffic_class & ecn_mask) == ecn_congestion_experienced;
}

// True if the headers are IPv4's: both addresses are mapped ones.
inline bool is_ipv4(const IpUdp& headers) {
  return headers.source.is_ipv4_mapped() && headers.destination.is_ipv4_mapped();
}

// Returns the bytes of the IP and UDP headers: 28 for IPv4, 48 for IPv6.
std::size_t ip_udp_header_bytes(const IpUdp& headers);
// Returns the bytes of the longest UDP payload: 65,507 over IPv4, whose length counts its own
// header, and 65,527 over IPv6.
std::size_t udp_payload_bytes_max(const IpUdp& headers);

// Writes IP and UDP headers for a UDP payload of `udp_payload_bytes` (BTH … ICRC, and no longer
// than the longest) into `out` (48 bytes are enough), and computes the IPv4 header checksum.
// Returns the bytes written.
std::size_t encode(const IpUdp& headers, std::size_t udp_payload_bytes, std::span<std::byte> out);

// Writes the same bytes as the ICRC sees them, with ones in the fields that may change: TTL, ToS
// and header checksum (in IPv6 traffic class, flow label and hop limit) and the UDP checksum.
std::size_t encode_for_icrc(const IpUdp& headers, std::size_t udp_payload_bytes,
                            std::span<std::byte> out);

// Returns the UDP checksum over a payload in `pieces`, in order (RFC 768; RFC 8200 §8.1), for
// IpUdp::udp_checksum. IPv4 allows 0 (no checksum); over IPv6 receivers may insist on one. On a
// live network the kernel computes it.
std::uint16_t udp_checksum(const IpUdp& headers,
                           std::span<const std::span<const std::byte>> pieces);

struct DecodedIpUdp {
  bool ok = false;
  std::size_t header_bytes = 0;
  std::size_t udp_payload_bytes = 0;  // from the UDP length
};
// Reads an IPv4 or IPv6 header (by its version) and UDP from the front of `in`. The result is not
// ok for fragments, options, extension headers, other protocols, IPv4-mapped addresses inside IPv6,
// and lengths that disagree or do not fit `in`; `headers` is then unspecified. Checksums are read
// but not verified: the ICRC covers the same bytes, and a capture may hold a packet whose checksums
// are not yet filled in.
[[nodiscard]] DecodedIpUdp decode(std::span<const std::byte> in, IpUdp& headers);

// Writes the 40 bytes that a UD receive buffer begins with (IBTA 11.4.1.2, A17.9.2 for RoCE v2).
// For IPv6 they are the header itself in the GRH's layout, for IPv4 20 unspecified (zero) bytes and
// the IPv4 header.
void encode_grh(const IpUdp& headers, std::size_t udp_payload_bytes,
                std::span<std::byte, grh_bytes> out);

}  // namespace tulle::wire
