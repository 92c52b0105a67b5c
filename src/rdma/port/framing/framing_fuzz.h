#pragma once

// Parts that the fuzzers of all framings share.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/script_fuzz.h"
#include "rdma/port/framing/framing.h"

namespace tulle::port {

using Bytes = std::vector<std::byte>;

// An input that begins with this byte is a route and a payload (check_route).
inline constexpr std::uint8_t route_choice = 'R';

// Returns the bytes of a frame.
inline Bytes written(const Framing& framing, const wire::Path& path, const wire::Packet& packet,
                     std::span<const std::byte> payload) {
  FrameBytes frame;
  framing.encode(path, packet, std::array{payload}, frame);
  Bytes bytes(frame.head.begin(), frame.head.begin() + frame.head_bytes);
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  bytes.insert(bytes.end(), frame.tail.begin(), frame.tail.begin() + frame.tail_bytes);
  return bytes;
}

// A packet on any route must arrive as it was sent. A program chooses the route's fields.
inline void check_route(const Framing& framing, base::Script script) {
  Route route;
  for (Gid* gid : {&route.source_gid, &route.destination.gid}) {
    // The MAC address is a part of a link-local address, and IPv4's have their own prefix.
    const std::uint8_t kind = script.byte();
    for (std::uint8_t& each : gid->bytes) each = script.byte();
    if (kind % 4 == 1) *gid = Gid::from_ipv4(script.word());
    if (kind % 4 == 2) {
      for (const auto& [at, value] : {std::pair{0, 0xFE}, {1, 0x80}, {11, 0xFF}, {12, 0xFE}}) {
        gid->bytes[at] = static_cast<std::uint8_t>(value);
      }
    }
    if (kind % 4 == 3) gid->bytes[0] = 0xFF;
  }
  if (route.source_gid.is_ipv4_mapped() != route.destination.gid.is_ipv4_mapped()) return;
  route.source_lid = Lid(script.half());
  route.destination.lid = Lid(script.half());
  route.flow_entropy = script.half();
  route.service_level = script.byte() % 16;
  route.traffic_class = script.byte();
  route.hop_limit = script.byte();
  route.flow_label = script.word() % (1u << 20);
  wire::Path path;
  framing.set_path(route, path);

  const Bytes sent = script.bytes(4096);
  wire::Packet packet;
  packet.opcode = wire::opcode(wire::TransportClass::rc, wire::Operation::send_only);
  packet.pad_count = static_cast<std::uint8_t>(-sent.size() % 4);
  const Bytes bytes = written(framing, path, packet, sent);
  Arrival arrival{.path = path};
  wire::Packet received;
  std::span<const std::byte> payload;
  TULLE_CHECK(framing.decode(bytes, arrival, received, payload) == Verdict::ok);
  TULLE_CHECK(received == packet);
  TULLE_CHECK(std::ranges::equal(payload, sent));

  const bool has_global = wire::has_global_route(path);
  TULLE_CHECK(wire::traffic_class_of(path) == (has_global ? route.traffic_class : 0));
  TULLE_CHECK(!has_global || wire::source_of(path).gid == route.source_gid);
  TULLE_CHECK(!has_global || wire::destination_of(path).gid == route.destination.gid);
  TULLE_CHECK(!wire::is_ipv4(path) || route.source_gid.is_ipv4_mapped());
  std::array<std::byte, wire::grh_bytes> grh;
  wire::encode_grh(path, sent.size(), grh);
  wire::clear_ecn(path);
  TULLE_CHECK(!wire::is_marked(path) && (wire::traffic_class_of(path) & wire::ecn_mask) == 0);
}

}  // namespace tulle::port
