#include "rdma/wire/ip_udp.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/check.h"
#include "rdma/wire/internet_checksum.h"
#include "rdma/wire/ipv4.h"
#include "rdma/wire/ipv6.h"
#include "rdma/wire/udp.h"

namespace tulle::wire {
namespace {

constexpr std::uint16_t all_ones = 0xFFFF;

static_assert(sizeof(Ipv4) == ipv4_header_bytes);
static_assert(sizeof(Ipv6) == ipv6_header_bytes && sizeof(Ipv6) == grh_bytes);
static_assert(sizeof(Udp) == udp_header_bytes);
static_assert(ipv4_udp_bytes_after_fragment_offset ==
              sizeof(Ipv4) - offsetof(Ipv4, time_to_live) + sizeof(Udp));

be16 length16(std::size_t bytes) { return be16(static_cast<std::uint16_t>(bytes)); }

Ipv4 ipv4_of(const IpUdp& headers, std::size_t udp_payload_bytes) {
  Ipv4 ip = ipv4_without_checksum(headers, ip_protocol_udp, udp_header_bytes + udp_payload_bytes);
  ip.checksum = header_checksum(ip);
  return ip;
}

Ipv6 ipv6_of(const IpUdp& headers, std::size_t udp_payload_bytes) {
  Ipv6 ip;
  ip.version_class_flow = Ipv6::version |
                          static_cast<std::uint32_t>(headers.traffic_class)
                              << Ipv6::traffic_class_shift |
                          (headers.flow_label & Ipv6::flow_label_mask);
  ip.payload_length = length16(udp_header_bytes + udp_payload_bytes);
  ip.next_header = ip_protocol_udp;
  ip.hop_limit = headers.hop_limit;
  ip.source = headers.source.bytes;
  ip.destination = headers.destination.bytes;
  return ip;
}

Udp udp_of(const IpUdp& headers, std::size_t udp_payload_bytes) {
  Udp udp;
  udp.source_port = headers.source_port;
  udp.destination_port = headers.destination_port;
  udp.length = length16(udp_header_bytes + udp_payload_bytes);
  udp.checksum = headers.udp_checksum;
  return udp;
}

// These two return the length of the IP header and the number of bytes that it claims to follow it.
// The result is not ok in the cases that `decode` lists.
DecodedIpUdp decode_ipv4(std::span<const std::byte> in, IpUdp& headers) {
  if (in.size() < sizeof(Ipv4)) return {};
  const Ipv4 ip = take<Ipv4>(in);
  const std::uint16_t flags = ip.flags_and_offset;
  if (ip.version_and_length != Ipv4::version_4_no_options) return {};
  if ((flags & ~Ipv4::dont_fragment) != 0) return {};
  if (ip.protocol != ip_protocol_udp) return {};
  if (ip.total_length < sizeof(Ipv4)) return {};
  headers.source = Gid::from_ipv4(ip.source);
  headers.destination = Gid::from_ipv4(ip.destination);
  headers.traffic_class = ip.type_of_service;
  headers.hop_limit = ip.time_to_live;
  headers.flow_label = 0;
  headers.identification = ip.identification;
  headers.dont_fragment = (flags & Ipv4::dont_fragment) != 0;
  return {true, sizeof(Ipv4), ip.total_length - sizeof(Ipv4)};
}

DecodedIpUdp decode_ipv6(std::span<const std::byte> in, IpUdp& headers) {
  if (in.size() < sizeof(Ipv6)) return {};
  const Ipv6 ip = take<Ipv6>(in);
  if (ip.next_header != ip_protocol_udp) return {};
  const std::uint32_t version_class_flow = ip.version_class_flow;
  headers.source.bytes = ip.source;
  headers.destination.bytes = ip.destination;
  // A mapped address represents an IPv4 node (RFC 4291 §2.5.5.2). As a GID it would be taken for
  // IPv4.
  if (headers.source.is_ipv4_mapped() || headers.destination.is_ipv4_mapped()) return {};
  headers.traffic_class =
      static_cast<std::uint8_t>(version_class_flow >> Ipv6::traffic_class_shift);
  headers.hop_limit = ip.hop_limit;
  headers.flow_label = version_class_flow & Ipv6::flow_label_mask;
  headers.identification = 0;
  headers.dont_fragment = true;
  return {true, sizeof(Ipv6), ip.payload_length};
}

}  // namespace

Ipv4 ipv4_without_checksum(const IpUdp& headers, std::uint8_t protocol, std::size_t bytes) {
  Ipv4 ip;
  ip.type_of_service = headers.traffic_class;
  ip.total_length = length16(ipv4_header_bytes + bytes);
  ip.identification = headers.identification;
  ip.flags_and_offset = headers.dont_fragment ? Ipv4::dont_fragment : std::uint16_t{0};
  ip.time_to_live = headers.hop_limit;
  ip.protocol = protocol;
  ip.source = headers.source.ipv4();
  ip.destination = headers.destination.ipv4();
  return ip;
}

std::uint16_t header_checksum(const Ipv4& ip) {
  InternetChecksum checksum;
  checksum.add(std::as_bytes(std::span(&ip, 1)));
  return checksum.value();
}

std::size_t ip_udp_header_bytes(const IpUdp& headers) {
  return (is_ipv4(headers) ? sizeof(Ipv4) : sizeof(Ipv6)) + sizeof(Udp);
}

std::size_t udp_payload_bytes_max(const IpUdp& headers) {
  constexpr std::size_t length_max = 0xFFFF;
  return length_max - sizeof(Udp) - (is_ipv4(headers) ? sizeof(Ipv4) : 0);
}

std::size_t encode(const IpUdp& headers, std::size_t udp_payload_bytes, std::span<std::byte> out) {
  const std::size_t bytes = ip_udp_header_bytes(headers);
  TULLE_CHECK(out.size() >= bytes);
  TULLE_CHECK(udp_payload_bytes <= udp_payload_bytes_max(headers));
  if (is_ipv4(headers)) {
    put(ipv4_of(headers, udp_payload_bytes), out);
  } else {
    put(ipv6_of(headers, udp_payload_bytes), out);
  }
  put(udp_of(headers, udp_payload_bytes), out);
  return bytes;
}

std::size_t encode_for_icrc(const IpUdp& headers, std::size_t udp_payload_bytes,
                            std::span<std::byte> out) {
  const std::size_t bytes = ip_udp_header_bytes(headers);
  TULLE_CHECK(out.size() >= bytes);
  if (is_ipv4(headers)) {
    Ipv4 ip = ipv4_without_checksum(headers, ip_protocol_udp, udp_header_bytes + udp_payload_bytes);
    ip.type_of_service = 0xFF;
    ip.time_to_live = 0xFF;
    ip.checksum = all_ones;
    put(ip, out);
  } else {
    Ipv6 ip = ipv6_of(headers, udp_payload_bytes);
    ip.version_class_flow = Ipv6::version | ~Ipv6::version_mask;
    ip.hop_limit = 0xFF;
    put(ip, out);
  }
  Udp udp = udp_of(headers, udp_payload_bytes);
  udp.checksum = all_ones;
  put(udp, out);
  return bytes;
}

std::uint16_t udp_checksum(const IpUdp& headers,
                           std::span<const std::span<const std::byte>> pieces) {
  std::size_t payload_bytes = 0;
  for (const auto& piece : pieces) payload_bytes += piece.size();
  InternetChecksum checksum;
  // The pseudo-header comes first. The prefixes of mapped addresses add two words of ones, which
  // count as zero, so that IPv4 needs no case apart from IPv6.
  checksum.add(std::as_bytes(std::span(headers.source.bytes)));
  checksum.add(std::as_bytes(std::span(headers.destination.bytes)));
  checksum.add(ip_protocol_udp);
  Udp udp = udp_of(headers, payload_bytes);
  udp.checksum = std::uint16_t{0};
  checksum.add(udp.length);
  checksum.add(std::as_bytes(std::span(&udp, 1)));
  for (const auto& piece : pieces) checksum.add(piece);
  const std::uint16_t value = checksum.value();
  return value == 0 ? all_ones : value;  // 0 would mean "no checksum"
}

DecodedIpUdp decode(std::span<const std::byte> in, IpUdp& headers) {
  if (in.empty()) return {};
  const unsigned version = std::to_integer<unsigned>(in[0]) >> 4;
  DecodedIpUdp ip;
  if (version == 4) ip = decode_ipv4(in, headers);
  if (version == 6) ip = decode_ipv6(in, headers);
  if (!ip.ok) return {};

  in = in.subspan(ip.header_bytes);
  if (in.size() < ip.udp_payload_bytes || ip.udp_payload_bytes < sizeof(Udp)) return {};
  const Udp udp = take<Udp>(in);
  // A UDP length beyond that of the IP header means a cut datagram. A shorter one hides bytes that
  // the ICRC does not cover.
  if (udp.length != ip.udp_payload_bytes) return {};
  headers.source_port = udp.source_port;
  headers.destination_port = udp.destination_port;
  headers.udp_checksum = udp.checksum;
  return {true, ip.header_bytes + sizeof(Udp), ip.udp_payload_bytes - sizeof(Udp)};
}

void encode_grh(const IpUdp& headers, std::size_t udp_payload_bytes,
                std::span<std::byte, grh_bytes> out) {
  if (is_ipv4(headers)) {
    const auto unspecified = out.first(grh_bytes - sizeof(Ipv4));
    std::fill(unspecified.begin(), unspecified.end(), std::byte{0});
    std::span<std::byte> rest = out.last(sizeof(Ipv4));
    put(ipv4_of(headers, udp_payload_bytes), rest);
  } else {
    std::span<std::byte> rest = out;
    put(ipv6_of(headers, udp_payload_bytes), rest);
  }
}

}  // namespace tulle::wire
