#include "fabric/machines/tunnel_format.h"

#include <algorithm>

#include "base/check.h"
#include "rdma/port/framing/infiniband.h"
#include "rdma/wire/icrc.h"
#include "rdma/wire/opcode.h"
#include "rdma/wire/packet.h"

namespace tulle::fabric {
namespace {

constexpr std::uint8_t management_lane = 15;
constexpr wire::Opcode datagram =
    wire::opcode(wire::TransportClass::ud, wire::Operation::send_only);
constexpr unsigned lane_shift = 4;

}  // namespace

std::uint32_t digest_of(const Topology& topology, std::span<const std::uint32_t> machines) {
  wire::Icrc crc;
  const auto add = [&crc](std::uint64_t value) {
    const be64 bytes = value;
    crc.update(std::as_bytes(std::span(&bytes, 1)));
  };
  add(TunnelHeader::right_version);
  add(topology.hosts);
  add(topology.switches);
  for (const Link& link : topology.links) {
    add(std::uint64_t{link.a} << 32 | link.b);
    add(std::uint64_t{link.a_port} << 16 | link.b_port);
    add(static_cast<std::uint64_t>(link.bits_per_second));
  }
  for (const std::uint32_t machine : machines) add(machine);
  return crc.value();
}

PortRecord record_of(const Subnet::PortReport& report) {
  PortRecord record;
  record.node = report.node;
  record.port = report.port;
  record.is_willing = report.end.is_willing ? 1 : 0;
  record.attempt = report.end.attempt;
  record.heard = report.end.heard;
  record.info = report.info;
  return record;
}

Subnet::PortReport report_of(const PortRecord& record) {
  return {record.node,
          record.port,
          {record.attempt, record.heard, record.is_willing != 0},
          record.info};
}

std::array<std::byte, management_packet_bytes> encode(const management::Packet& packet) {
  wire::LocalPath path;
  path.local.vl = packet.is_subnet_management() ? management_lane : 0;
  path.local.service_level = packet.service_level;
  path.local.source = packet.source;
  path.local.destination = packet.destination;
  wire::Packet transport;
  transport.opcode = datagram;
  transport.pkey = packet.pkey;
  transport.destination_qp = packet.destination_qp;
  transport.source_qp = packet.source_qp;
  transport.qkey = packet.qkey;
  const std::span<const std::byte> mad(packet.mad);
  port::FrameBytes frame;
  port::encode(path, transport, std::span(&mad, 1), frame);
  std::array<std::byte, management_packet_bytes> out;
  TULLE_CHECK(frame.head_bytes + mad.size() + frame.tail_bytes == out.size());
  const auto mad_at = std::copy_n(frame.head.begin(), frame.head_bytes, out.begin());
  const auto tail_at = std::copy(mad.begin(), mad.end(), mad_at);
  std::copy_n(frame.tail.begin(), frame.tail_bytes, tail_at);
  return out;
}

std::optional<management::Packet> decode_management(std::span<const std::byte> bytes) {
  wire::LocalPath path;
  wire::Packet transport;
  std::span<const std::byte> payload;
  if (port::decode(bytes, path, transport, payload) != port::Verdict::ok) return std::nullopt;
  management::Packet packet;
  if (transport.opcode != datagram || payload.size() != packet.mad.size()) return std::nullopt;
  packet.source = path.local.source;
  packet.destination = path.local.destination;
  packet.service_level = path.local.service_level;
  packet.pkey = transport.pkey;
  packet.destination_qp = transport.destination_qp;
  packet.source_qp = transport.source_qp;
  packet.qkey = transport.qkey;
  std::copy(payload.begin(), payload.end(), packet.mad.begin());
  return packet;
}

void append_packet(std::span<const std::byte> packet, std::uint8_t lane,
                   std::vector<std::byte>& out) {
  const std::size_t at = out.size();
  out.insert(out.end(), packet.begin(), packet.end());
  // The lane of this link is in the upper half of the first byte (IBTA 7.7.1).
  out[at] = (out[at] & std::byte{0x0F}) | static_cast<std::byte>(lane << lane_shift);
  const auto checks = port::checks_of(std::span(out).subspan(at));
  out.insert(out.end(), checks.begin(), checks.end());
}

std::optional<DecodedPacket> decode_packet(std::span<const std::byte> bytes) {
  wire::LocalPath path;
  wire::Packet transport;
  std::span<const std::byte> payload;
  if (port::decode(bytes, path, transport, payload) != port::Verdict::ok) return std::nullopt;
  return DecodedPacket{bytes.first(bytes.size() - wire::icrc_bytes - wire::vcrc_bytes),
                       path.local.vl};
}

}  // namespace tulle::fabric
