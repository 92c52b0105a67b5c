#include "rdma/device/flow_fields.h"

#include <algorithm>
#include <cstring>

#include "rdma/wire/ipv4.h"
#include "rdma/wire/ipv6.h"
#include "rdma/wire/ipv6_extension.h"
#include "rdma/wire/tcp.h"
#include "rdma/wire/tunnels.h"
#include "rdma/wire/udp.h"

namespace tulle::device {
namespace {

using Bytes = std::span<const std::byte>;

// Removes the first header from the remaining bytes. Returns false if they are too short.
template <typename Header>
bool step(Bytes& left, Header& header) {
  if (left.size() < sizeof(Header)) return false;
  header = wire::take<Header>(left);
  return true;
}

struct Ports {
  be16 source;
  be16 destination;
};

void read_ports(Bytes left, FlowHeader header, std::size_t header_bytes, FlowFields& fields) {
  if (left.size() < header_bytes) return;
  Ports ports;
  if (!step(left, ports)) return;
  fields.add(header);
  fields.source_port = ports.source;
  fields.destination_port = ports.destination;
}

void read_vxlan(Bytes left, FlowFields& fields) {
  constexpr std::uint8_t identifier_is_valid = 0x08;
  wire::Vxlan vxlan;
  if (!step(left, vxlan) || (vxlan.flags & identifier_is_valid) == 0) return;
  fields.add(FlowHeader::vxlan);
  fields.tunnel = std::uint32_t{vxlan.identifier};
}

void read_gre(Bytes left, FlowFields& fields) {
  wire::Gre gre;
  if (!step(left, gre)) return;
  fields.add(FlowHeader::gre);
  fields.tunnel_flags = gre.flags;
  fields.tunnel_protocol = gre.protocol;
  be32 word;
  if ((gre.flags & wire::Gre::has_checksum) != 0 && !step(left, word)) return;
  if ((gre.flags & wire::Gre::has_key) != 0 && step(left, word)) fields.tunnel = word;
}

void read_transport(Bytes left, FlowFields& fields) {
  switch (fields.protocol) {
    case wire::ip_protocol_tcp:
      return read_ports(left, FlowHeader::tcp, wire::tcp_header_bytes, fields);
    case wire::ip_protocol_udp:
      read_ports(left, FlowHeader::udp, sizeof(wire::Udp), fields);
      if (fields.has(FlowHeader::udp) && fields.destination_port == wire::vxlan_port) {
        read_vxlan(left.subspan(sizeof(wire::Udp)), fields);
      }
      return;
    case wire::ip_protocol_gre:
      return read_gre(left, fields);
    case wire::ip_protocol_esp: {
      wire::Esp esp;
      if (!step(left, esp)) return;
      fields.add(FlowHeader::esp);
      fields.security_index = esp.security_index;
      fields.security_sequence = esp.sequence;
      return;
    }
    default:
      return;
  }
}

void read_ipv4(Bytes left, FlowFields& fields) {
  constexpr std::uint16_t more_fragments = 0x2000;
  constexpr std::uint16_t offset_mask = 0x1FFF;
  const Bytes packet = left;
  wire::Ipv4 ip;
  if (!step(left, ip)) return;
  const std::size_t header_bytes = std::size_t{ip.version_and_length & 0x0Fu} * 4;
  if (ip.version_and_length >> 4 != 4 || header_bytes < sizeof(wire::Ipv4)) return;
  fields.add(FlowHeader::ipv4);
  std::memcpy(fields.source.data(), &ip.source, sizeof(ip.source));
  std::memcpy(fields.destination.data(), &ip.destination, sizeof(ip.destination));
  fields.protocol = ip.protocol;
  fields.traffic_class = ip.type_of_service;
  fields.hop_limit = ip.time_to_live;
  const std::uint16_t flags = ip.flags_and_offset;
  if ((flags & wire::Ipv4::dont_fragment) != 0) fields.fragment_flags |= FlowFields::dont_fragment;
  if ((flags & more_fragments) != 0) fields.fragment_flags |= FlowFields::more_fragments;
  if ((flags & offset_mask) != 0 || packet.size() < header_bytes) return;
  read_transport(packet.subspan(header_bytes), fields);
}

// Returns false if a header is cut off, or if the rest belongs to a fragment that is not the first.
bool skip_extensions(Bytes& left, std::uint8_t& protocol) {
  while (wire::is_ipv6_extension(protocol)) {
    wire::Ipv6Extension extension;
    if (!step(left, extension)) return false;
    const bool is_later_fragment = protocol == wire::ipv6_fragment && extension.offset >> 3 != 0;
    const std::size_t more =
        protocol == wire::ipv6_fragment ? 0 : std::size_t{extension.length} * 8;
    protocol = extension.next;
    if (is_later_fragment || left.size() < more) return false;
    left = left.subspan(more);
  }
  return true;
}

void read_ipv6(Bytes left, FlowFields& fields) {
  wire::Ipv6 ip;
  if (!step(left, ip)) return;
  const std::uint32_t first = ip.version_class_flow;
  if ((first & wire::Ipv6::version_mask) != wire::Ipv6::version) return;
  fields.add(FlowHeader::ipv6);
  fields.source = ip.source;
  fields.destination = ip.destination;
  fields.traffic_class = static_cast<std::uint8_t>(first >> wire::Ipv6::traffic_class_shift);
  fields.flow_label = first & wire::Ipv6::flow_label_mask;
  fields.hop_limit = ip.hop_limit;
  fields.protocol = ip.next_header;
  if (skip_extensions(left, fields.protocol)) read_transport(left, fields);
}

}  // namespace

FlowFields read_flow_fields(Bytes frame) {
  FlowFields fields;
  wire::Ethernet ethernet;
  if (!step(frame, ethernet)) return fields;
  fields.destination_mac = ethernet.destination;
  fields.source_mac = ethernet.source;
  std::uint16_t type = ethernet.type;
  while (type == wire::ether_type_vlan || type == wire::ether_type_service_vlan) {
    wire::VlanTag tag;
    if (!step(frame, tag)) break;
    if (!fields.has(FlowHeader::vlan)) fields.vlan = tag.control;
    fields.add(FlowHeader::vlan);
    type = tag.type;
  }
  fields.ether_type = type;
  if (type == wire::ether_type_ipv4) read_ipv4(frame, fields);
  if (type == wire::ether_type_ipv6) read_ipv6(frame, fields);
  return fields;
}

bool matches(const FlowFields& frame, const FlowMatch& match) {
  using Words = std::array<std::uint64_t, sizeof(FlowFields) / sizeof(std::uint64_t)>;
  Words have;
  Words value;
  Words mask;
  std::memcpy(have.data(), &frame, sizeof(have));
  std::memcpy(value.data(), &match.value, sizeof(value));
  std::memcpy(mask.data(), &match.mask, sizeof(mask));
  std::uint64_t different = 0;
  for (std::size_t i = 0; i < have.size(); ++i) different |= (have[i] ^ value[i]) & mask[i];
  return different == 0;
}

}  // namespace tulle::device
