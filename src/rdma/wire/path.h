#pragma once

// The way of a packet from one port to another: what the headers in front of BTH say. There are
// three kinds: IP and UDP (RoCE v2), LRH with an optional GRH (InfiniBand), and Ethernet with a GRH
// (RoCE v1).

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

#include "base/ids.h"
#include "rdma/wire/ethernet.h"
#include "rdma/wire/ip_udp.h"
#include "rdma/wire/lrh.h"

namespace tulle::wire {

// The global route header (IBTA 8.3), decoded.
struct GlobalRoute {
  Gid source;
  Gid destination;
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 64;
  std::uint32_t flow_label = 0;  // 20 bits

  bool operator==(const GlobalRoute&) const = default;
};

// InfiniBand.
struct LocalPath {
  LocalRoute local;
  bool has_global = false;  // false: the packet stays in its subnet and has no GRH
  GlobalRoute global;

  bool operator==(const LocalPath&) const = default;
};

// RoCE v1 (IBTA annex A16).
struct EthernetPath {
  MacAddress source{};
  MacAddress destination{};
  std::uint8_t priority = 0;  // IEEE 802.1Q, 0 to 7
  GlobalRoute global;

  bool operator==(const EthernetPath&) const = default;
};

// Writes a GRH in front of `bytes` bytes.
void encode(const GlobalRoute& route, std::size_t bytes, std::span<std::byte, grh_bytes> out);
// Writes what the ICRC covers of a GRH: traffic class, flow label and hop limit are ones, as they
// may change on the way (IBTA 7.8.1).
void encode_for_icrc(const GlobalRoute& route, std::size_t bytes,
                     std::span<std::byte, grh_bytes> out);
struct DecodedGrh {
  bool ok = false;        // version and next header are those of a GRH (IBTA 8.3)
  std::size_t bytes = 0;  // that follow, up to and with the ICRC
};
// Decodes any 40 bytes. `route` is set if they are a GRH.
DecodedGrh decode_grh(std::span<const std::byte, grh_bytes> in, GlobalRoute& route);

using Path = std::variant<IpUdp, LocalPath, EthernetPath>;

inline PortAddress source_of(const Path& path) {
  if (const auto* ip = std::get_if<IpUdp>(&path)) [[likely]]
    return ip->source;
  if (const auto* local = std::get_if<LocalPath>(&path)) {
    return {local->local.source, local->has_global ? local->global.source : Gid{}};
  }
  return std::get_if<EthernetPath>(&path)->global.source;
}
inline PortAddress destination_of(const Path& path) {
  if (const auto* ip = std::get_if<IpUdp>(&path)) [[likely]]
    return ip->destination;
  if (const auto* local = std::get_if<LocalPath>(&path)) {
    return {local->local.destination, local->has_global ? local->global.destination : Gid{}};
  }
  return std::get_if<EthernetPath>(&path)->global.destination;
}

// DSCP << 2 | ECN. A packet without a GRH has none, which reads as 0.
inline std::uint8_t traffic_class_of(const Path& path) {
  if (const auto* ip = std::get_if<IpUdp>(&path)) [[likely]]
    return ip->traffic_class;
  if (const auto* local = std::get_if<LocalPath>(&path)) {
    return local->has_global ? local->global.traffic_class : std::uint8_t{0};
  }
  return std::get_if<EthernetPath>(&path)->global.traffic_class;
}
// Sets the two bits of ECN to zero where the packet has an IP header or a GRH.
void clear_ecn(Path& path);
// True if a switch marked the packet in its IP header (RFC 3168). InfiniBand marks packets in BTH.
inline bool is_marked(const Path& path) {
  const auto* ip = std::get_if<IpUdp>(&path);
  return ip != nullptr && is_marked(*ip);
}
// True if the headers in front of UDP are IPv4's.
bool is_ipv4(const Path& path);
// True if the packet has a GRH, or an IP header, which takes the GRH's place.
bool has_global_route(const Path& path);

// Writes the 40 bytes that a UD receive buffer begins with (IBTA 11.4.1.2; A17.9.2 for RoCE v2):
// the GRH, or the IP header in its place, or zeros where the packet has neither. `bytes` is what
// follows the headers in front of BTH, up to and with the ICRC.
void encode_grh(const Path& path, std::size_t bytes, std::span<std::byte, grh_bytes> out);

}  // namespace tulle::wire
