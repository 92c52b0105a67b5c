#include "wire/path.h"

#include <algorithm>

#include "wire/ipv6.h"

namespace tulle::wire {
namespace {

constexpr std::uint8_t next_header_bth = 0x1B;  // IBTA 8.3.3

void put_grh(const GlobalRoute& route, std::size_t bytes, std::span<std::byte, grh_bytes> out) {
  Ipv6 grh;
  grh.version_class_flow = Ipv6::version |
                           std::uint32_t{route.traffic_class} << Ipv6::traffic_class_shift |
                           (route.flow_label & Ipv6::flow_label_mask);
  grh.payload_length = static_cast<std::uint16_t>(bytes);
  grh.next_header = next_header_bth;
  grh.hop_limit = route.hop_limit;
  grh.source = route.source.bytes;
  grh.destination = route.destination.bytes;
  std::span<std::byte> rest = out;
  put(grh, rest);
}

}  // namespace

PortAddress source_of(const Path& path) {
  if (const auto* ip = std::get_if<IpUdp>(&path)) [[likely]]
    return ip->source;
  if (const auto* local = std::get_if<LocalPath>(&path)) {
    return {local->local.source, local->has_global ? local->global.source : Gid{}};
  }
  return std::get<EthernetPath>(path).global.source;
}

PortAddress destination_of(const Path& path) {
  if (const auto* ip = std::get_if<IpUdp>(&path)) [[likely]]
    return ip->destination;
  if (const auto* local = std::get_if<LocalPath>(&path)) {
    return {local->local.destination, local->has_global ? local->global.destination : Gid{}};
  }
  return std::get<EthernetPath>(path).global.destination;
}

std::uint8_t traffic_class_of(const Path& path) {
  if (const auto* ip = std::get_if<IpUdp>(&path)) return ip->traffic_class;
  if (const auto* ethernet = std::get_if<EthernetPath>(&path))
    return ethernet->global.traffic_class;
  const auto& local = std::get<LocalPath>(path);
  return local.has_global ? local.global.traffic_class : std::uint8_t{0};
}

bool is_marked(const Path& path) {
  const auto* ip = std::get_if<IpUdp>(&path);
  return ip != nullptr && is_marked(*ip);
}

bool is_ipv4(const Path& path) {
  const auto* ip = std::get_if<IpUdp>(&path);
  return ip != nullptr && is_ipv4(*ip);
}

bool has_global_route(const Path& path) {
  const auto* local = std::get_if<LocalPath>(&path);
  return local == nullptr || local->has_global;
}

void encode_grh(const Path& path, std::size_t bytes, std::span<std::byte, grh_bytes> out) {
  if (const auto* ip = std::get_if<IpUdp>(&path)) return encode_grh(*ip, bytes, out);
  if (const auto* ethernet = std::get_if<EthernetPath>(&path)) {
    return put_grh(ethernet->global, bytes, out);
  }
  const auto& local = std::get<LocalPath>(path);
  if (local.has_global) return put_grh(local.global, bytes, out);
  std::fill(out.begin(), out.end(), std::byte{0});
}

}  // namespace tulle::wire
