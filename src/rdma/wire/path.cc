#include "rdma/wire/path.h"

#include <algorithm>

#include "rdma/wire/ipv6.h"

namespace tulle::wire {
namespace {

constexpr std::uint8_t next_header_bth = 0x1B;  // IBTA 8.3.3

Ipv6 grh_of(const GlobalRoute& route, std::size_t bytes) {
  Ipv6 grh;
  grh.version_class_flow = Ipv6::version |
                           std::uint32_t{route.traffic_class} << Ipv6::traffic_class_shift |
                           (route.flow_label & Ipv6::flow_label_mask);
  grh.payload_length = static_cast<std::uint16_t>(bytes);
  grh.next_header = next_header_bth;
  grh.hop_limit = route.hop_limit;
  grh.source = route.source.bytes;
  grh.destination = route.destination.bytes;
  return grh;
}

}  // namespace

void encode(const GlobalRoute& route, std::size_t bytes, std::span<std::byte, grh_bytes> out) {
  std::span<std::byte> rest = out;
  put(grh_of(route, bytes), rest);
}

void encode_for_icrc(const GlobalRoute& route, std::size_t bytes,
                     std::span<std::byte, grh_bytes> out) {
  Ipv6 grh = grh_of(route, bytes);
  grh.version_class_flow = Ipv6::version | ~Ipv6::version_mask;
  grh.hop_limit = 0xFF;
  std::span<std::byte> rest = out;
  put(grh, rest);
}

DecodedGrh decode_grh(std::span<const std::byte, grh_bytes> in, GlobalRoute& route) {
  std::span<const std::byte> rest = in;
  const auto grh = take<Ipv6>(rest);
  const std::uint32_t first = grh.version_class_flow;
  if ((first & Ipv6::version_mask) != Ipv6::version || grh.next_header != next_header_bth) {
    return {};
  }
  route.traffic_class = static_cast<std::uint8_t>(first >> Ipv6::traffic_class_shift);
  route.flow_label = first & Ipv6::flow_label_mask;
  route.hop_limit = grh.hop_limit;
  route.source.bytes = grh.source;
  route.destination.bytes = grh.destination;
  return {true, grh.payload_length};
}

void clear_ecn(Path& path) {
  const auto clear = [](std::uint8_t& traffic_class) {
    traffic_class = static_cast<std::uint8_t>(traffic_class & ~ecn_mask);
  };
  if (auto* ip = std::get_if<IpUdp>(&path)) return clear(ip->traffic_class);
  if (auto* ethernet = std::get_if<EthernetPath>(&path)) {
    return clear(ethernet->global.traffic_class);
  }
  clear(std::get<LocalPath>(path).global.traffic_class);
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
    return encode(ethernet->global, bytes, out);
  }
  const auto& local = std::get<LocalPath>(path);
  if (local.has_global) return encode(local.global, bytes, out);
  std::fill(out.begin(), out.end(), std::byte{0});
}

}  // namespace tulle::wire
