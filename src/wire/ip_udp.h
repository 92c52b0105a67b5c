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
// RFC 3168, the low two bits of the traffic class.
inline constexpr std::uint8_t ecn_mask = 3;
inline constexpr std::uint8_t ecn_capable = 2;
inline constexpr std::uint8_t ecn_congestion_experienced = 3;
// Of the IPv4 and UDP headers, the bytes behind the fragment offset: what `explain_identification`
// counts from.
inline constexpr std::size_t ipv4_udp_bytes_after_fragment_offset = 20;

// What the IP and UDP headers of one datagram say. Addresses are GIDs: IPv4 as ::ffff:a.b.c.d; both
// of one family.
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

// Whether the headers are IPv4's: both addresses are mapped ones.
inline bool is_ipv4(const IpUdp& headers) {
  return headers.source.is_ipv4_mapped() && headers.destination.is_ipv4_mapped();
}

// Bytes of IP and UDP headers: 28 for IPv4, 48 for IPv6.
std::size_t ip_udp_header_bytes(const IpUdp& headers);

// Writes IP and UDP headers for a UDP payload of `udp_payload_bytes` (BTH … ICRC) into `out` (48
// bytes are enough); the IPv4 header checksum is computed. Returns the bytes written.
std::size_t encode(const IpUdp& headers, std::size_t udp_payload_bytes, std::span<std::byte> out);

// The same bytes as the ICRC sees them: TTL, ToS and header checksum (traffic class, flow label,
// hop limit) and the UDP checksum as ones.
std::size_t encode_for_icrc(const IpUdp& headers, std::size_t udp_payload_bytes,
                            std::span<std::byte> out);

// The UDP checksum over a payload that lies in `pieces`, in order (RFC 768; RFC 8200 §8.1), for
// IpUdp::udp_checksum. IPv4 may leave it 0; over IPv6 receivers may insist. Live, the kernel does
// it.
std::uint16_t udp_checksum(const IpUdp& headers,
                           std::span<const std::span<const std::byte>> pieces);

struct DecodedIpUdp {
  bool ok = false;
  std::size_t header_bytes = 0;
  std::size_t udp_payload_bytes = 0;  // as the UDP length says
};
// Reads an IPv4 or IPv6 header (by its version) and UDP from the front of `in`. Fragments, options,
// extension headers, other protocols, IPv4-mapped addresses inside IPv6, and lengths that disagree
// or do not fit `in` are not ok; `headers` is then unspecified. Checksums are read, not verified:
// the ICRC covers what they cover, and who captures a packet may see it before they are filled in.
[[nodiscard]] DecodedIpUdp decode(std::span<const std::byte> in, IpUdp& headers);

// The 40 bytes that a UD receive buffer begins with (IBTA 11.4.1.2, A17.9.2 for RoCE v2): for IPv6
// the header itself in the GRH's layout; for IPv4 20 unspecified (zero) bytes and the IPv4 header.
void encode_grh(const IpUdp& headers, std::size_t udp_payload_bytes,
                std::span<std::byte, grh_bytes> out);

}  // namespace tulle::wire
