#include "rdma/port/framing/roce_v1.h"

#include <algorithm>

#include "base/check.h"
#include "rdma/wire/bth.h"
#include "rdma/wire/header.h"
#include "rdma/wire/icrc.h"

namespace tulle::port {
namespace {

constexpr unsigned priority_shift = 13;  // in a tag's control field (IEEE 802.1Q clause 9.6)

void set_ethernet_path(const Route& route, wire::Path& path) {
  auto& ethernet = path.emplace<wire::EthernetPath>();
  ethernet.source = mac_of(route.source_gid);
  ethernet.destination = mac_of(route.destination.gid);
  ethernet.priority = route.service_level & 7;
  ethernet.global = {route.source_gid, route.destination.gid, route.traffic_class, route.hop_limit,
                     route.flow_label};
}

// Returns the ICRC of a packet whose headers from BTH on are `head`, up to its end.
wire::Icrc icrc_of_headers(const wire::GlobalRoute& route, std::size_t bytes,
                           std::span<const std::byte> head) {
  std::array<std::byte, wire::grh_bytes + wire::header_bytes_max> masked;
  wire::encode_for_icrc(route, bytes, std::span(masked).first<wire::grh_bytes>());
  std::copy(head.begin(), head.end(), masked.begin() + wire::grh_bytes);
  wire::mask_bth(std::span(masked).subspan(wire::grh_bytes, head.size()));
  wire::Icrc icrc;
  icrc.update(std::span(masked).first(wire::grh_bytes + head.size()));
  return icrc;
}

void encode(const wire::Path& to, const wire::Packet& packet, Pieces pieces, FrameBytes& frame) {
  TULLE_CHECK(packet.pad_count <= 3);
  const auto& path = std::get<wire::EthernetPath>(to);
  const bool is_tagged = path.priority != 0;
  std::span<std::byte> rest(frame.head);
  wire::Ethernet ethernet{path.destination, path.source, {}};
  ethernet.type = is_tagged ? wire::ether_type_vlan : wire::ether_type_roce;
  wire::put(ethernet, rest);
  if (is_tagged) {
    wire::VlanTag tag;
    tag.control = static_cast<std::uint16_t>(path.priority << priority_shift);
    tag.type = wire::ether_type_roce;
    wire::put(tag, rest);
  }
  const std::size_t transport_bytes = wire::encode(packet, rest.subspan(wire::grh_bytes));
  frame.tail_bytes = static_cast<std::uint8_t>(packet.pad_count + wire::icrc_bytes);
  frame.tail = {};
  const std::size_t bytes = transport_bytes + bytes_of(pieces) + frame.tail_bytes;
  wire::encode(path.global, bytes, rest.first<wire::grh_bytes>());
  const auto transport = rest.subspan(wire::grh_bytes, transport_bytes);
  frame.head_bytes =
      static_cast<std::uint8_t>(transport.data() + transport.size() - frame.head.data());

  const std::span<std::byte> tail(frame.tail);
  wire::Icrc icrc = icrc_of_headers(path.global, bytes, transport);
  for (const auto& piece : pieces) icrc.update(piece);
  icrc.update(tail.first(packet.pad_count));
  wire::put_icrc(icrc.value(), tail.subspan(packet.pad_count).first<wire::icrc_bytes>());
}

// Takes Ethernet's header and the tag off, and says whether a GRH follows.
Verdict take_ethernet(std::span<const std::byte>& bytes, wire::EthernetPath& path) {
  if (bytes.size() < sizeof(wire::Ethernet)) return Verdict::truncated;
  const auto ethernet = wire::take<wire::Ethernet>(bytes);
  path.source = ethernet.source;
  path.destination = ethernet.destination;
  std::uint16_t type = ethernet.type;
  if (type == wire::ether_type_vlan) {
    if (bytes.size() < sizeof(wire::VlanTag)) return Verdict::truncated;
    const auto tag = wire::take<wire::VlanTag>(bytes);
    path.priority = static_cast<std::uint8_t>(tag.control >> priority_shift);
    type = tag.type;
  }
  return type == wire::ether_type_roce ? Verdict::ok : Verdict::no_transport;
}

Verdict decode(std::span<const std::byte> bytes, Arrival& arrival, wire::Packet& packet,
               std::span<const std::byte>& payload) {
  auto& path = arrival.path.emplace<wire::EthernetPath>();
  const Verdict outer = take_ethernet(bytes, path);
  if (outer != Verdict::ok) return outer;
  if (bytes.size() < wire::grh_bytes + sizeof(wire::Bth) + wire::icrc_bytes) {
    return Verdict::truncated;
  }
  const wire::DecodedGrh grh = wire::decode_grh(bytes.first<wire::grh_bytes>(), path.global);
  if (!grh.ok) return Verdict::bad_link_header;
  bytes = bytes.subspan(wire::grh_bytes);
  // Ethernet pads short frames, so that more may follow than the GRH counts.
  if (grh.bytes > bytes.size() || grh.bytes < sizeof(wire::Bth) + wire::icrc_bytes) {
    return Verdict::bad_length;
  }
  bytes = bytes.first(grh.bytes);
  const auto covered = bytes.first(bytes.size() - wire::icrc_bytes);
  const std::size_t head_bytes = std::min(covered.size(), wire::header_bytes_max);
  wire::Icrc icrc = icrc_of_headers(path.global, bytes.size(), covered.first(head_bytes));
  icrc.update(covered.subspan(head_bytes));
  if (icrc.value() != wire::take_icrc(bytes.last<wire::icrc_bytes>())) return Verdict::bad_icrc;
  return decode_transport(covered, packet, payload);
}

}  // namespace

wire::MacAddress mac_of(const Gid& gid) {
  const auto& b = gid.bytes;
  if (gid.is_multicast() && gid.is_ipv4_mapped()) {
    return {0x01, 0x00, 0x5E, static_cast<std::uint8_t>(b[13] & 0x7F), b[14], b[15]};
  }
  if (gid.is_multicast()) return {0x33, 0x33, b[12], b[13], b[14], b[15]};
  const bool has_mac = b[0] == 0xFE && b[1] == 0x80 && b[11] == 0xFF && b[12] == 0xFE;
  if (!has_mac) return {};
  const auto first = static_cast<std::uint8_t>(b[8] ^ 2);  // the interface ID inverts this bit
  return {first, b[9], b[10], b[13], b[14], b[15]};
}

const Framing roce_v1 = {
    .name = "RoCE v1",
    .link_layer = LinkLayer::ethernet,
    .overhead = roce_v1_overhead,
    .set_path = set_ethernet_path,
    .encode = encode,
    .decode = decode,
};

}  // namespace tulle::port
