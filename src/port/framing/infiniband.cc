#include "port/framing/infiniband.h"

#include <algorithm>

#include "base/check.h"
#include "wire/bth.h"
#include "wire/icrc.h"

namespace tulle::port {
namespace {

// Returns the ICRC up to the end of `head`, which begins with the LRH and is at most as long as a
// frame's.
wire::Icrc icrc_of_headers(std::span<const std::byte> head) {
  std::array<std::byte, wire::header_bytes_max> masked;
  const auto transport = head.subspan(wire::lrh_bytes);
  std::copy(transport.begin(), transport.end(), masked.begin());
  wire::mask_bth(masked);
  wire::Icrc icrc(head.first<wire::lrh_bytes>());
  icrc.update(std::span(masked).first(transport.size()));
  return icrc;
}

std::uint32_t icrc_of(std::span<const std::byte> covered) {
  const std::size_t head_bytes = std::min(covered.size(), wire::lrh_bytes + wire::header_bytes_max);
  wire::Icrc icrc = icrc_of_headers(covered.first(head_bytes));
  icrc.update(covered.subspan(head_bytes));
  return icrc.value();
}

std::uint16_t vcrc_of(std::span<const std::byte> covered) {
  wire::Vcrc vcrc;
  vcrc.update(covered);
  return vcrc.value();
}

// Makes the checks of IBTA 7.4 in their order. A port discards these packets before any other part
// of it sees them.
Verdict check_link(std::span<const std::byte> bytes, const wire::LocalRoute& route) {
  const auto covered = bytes.first(bytes.size() - wire::vcrc_bytes);
  if (vcrc_of(covered) != wire::take_vcrc(bytes.last<wire::vcrc_bytes>())) {
    return Verdict::bad_vcrc;
  }
  if (route.version != 0) return Verdict::bad_link_header;
  if (std::size_t{route.packet_words} * 4 != covered.size()) return Verdict::bad_length;
  if (route.next_header != wire::LinkNextHeader::bth) return Verdict::no_transport;
  return Verdict::ok;
}

void set_local_path(const Route& route, wire::Path& path) {
  auto& local = path.emplace<wire::LocalPath>();
  local.local.service_level = route.service_level;
  local.local.source = route.source_lid;
  local.local.destination = route.destination.lid;
  local.has_global = route.destination.gid != Gid{};
  if (!local.has_global) return;
  local.global = {route.source_gid, route.destination.gid, route.traffic_class, route.hop_limit,
                  route.flow_label};
}

}  // namespace

void encode(const wire::LocalRoute& route, const wire::Packet& packet, Pieces pieces,
            FrameBytes& frame) {
  TULLE_CHECK(packet.pad_count <= 3);
  const std::size_t payload_bytes = bytes_of(pieces);
  const std::span<std::byte> head(frame.head), tail(frame.tail);
  const std::size_t head_bytes =
      wire::lrh_bytes + wire::encode(packet, head.subspan(wire::lrh_bytes));
  const std::size_t icrc_at = packet.pad_count;
  const std::size_t vcrc_at = icrc_at + wire::icrc_bytes;
  frame.head_bytes = static_cast<std::uint8_t>(head_bytes);
  frame.tail_bytes = static_cast<std::uint8_t>(vcrc_at + wire::vcrc_bytes);
  frame.tail = {};

  const std::size_t bytes = head_bytes + payload_bytes + vcrc_at;
  TULLE_CHECK(bytes % 4 == 0);  // guaranteed by the pad
  wire::LocalRoute whole = route;
  whole.next_header = wire::LinkNextHeader::bth;
  whole.packet_words = static_cast<std::uint16_t>(bytes / 4);
  wire::encode(whole, head.first<wire::lrh_bytes>());

  wire::Icrc icrc = icrc_of_headers(head.first(head_bytes));
  wire::Vcrc vcrc;
  vcrc.update(head.first(head_bytes));
  for (const auto& piece : pieces) {
    icrc.update(piece);
    vcrc.update(piece);
  }
  icrc.update(tail.first(icrc_at));
  wire::put_icrc(icrc.value(), tail.subspan(icrc_at).first<wire::icrc_bytes>());
  vcrc.update(tail.first(vcrc_at));
  wire::put_vcrc(vcrc.value(), tail.subspan(vcrc_at).first<wire::vcrc_bytes>());
}

Verdict decode(std::span<const std::byte> bytes, wire::LocalRoute& route, wire::Packet& packet,
               std::span<const std::byte>& payload) {
  constexpr std::size_t least = wire::lrh_bytes + sizeof(wire::Bth) + wire::icrc_bytes;
  if (bytes.size() < least + wire::vcrc_bytes) return Verdict::truncated;
  route = wire::decode_lrh(bytes.first<wire::lrh_bytes>());
  const Verdict link = check_link(bytes, route);
  if (link != Verdict::ok) return link;

  const auto covered = bytes.first(bytes.size() - wire::icrc_bytes - wire::vcrc_bytes);
  const auto icrc = bytes.subspan(covered.size()).first<wire::icrc_bytes>();
  if (icrc_of(covered) != wire::take_icrc(icrc)) return Verdict::bad_icrc;

  const auto transport = covered.subspan(wire::lrh_bytes);
  return decode_transport(transport, packet, payload);
}

const Framing infiniband = {
    .name = "InfiniBand",
    .link_layer = LinkLayer::infiniband,
    .overhead = infiniband_overhead,
    .set_path = set_local_path,
    .encode =
        [](const wire::Path& path, const wire::Packet& packet, Pieces pieces, FrameBytes& frame) {
          encode(std::get<wire::LocalPath>(path).local, packet, pieces, frame);
        },
    .decode =
        [](std::span<const std::byte> bytes, Arrival& arrival, wire::Packet& packet,
           std::span<const std::byte>& payload) {
          return decode(bytes, arrival.path.emplace<wire::LocalPath>().local, packet, payload);
        },
};

}  // namespace tulle::port
