#include "rdma/port/framing/infiniband.h"

#include <algorithm>

#include "base/check.h"
#include "rdma/wire/bth.h"
#include "rdma/wire/icrc.h"

namespace tulle::port {
namespace {

// The front of a packet, up to the end of the longest transport header.
constexpr std::size_t front_bytes_max = wire::lrh_bytes + wire::grh_bytes + wire::header_bytes_max;

// Returns the ICRC up to the end of `front`, which begins with the LRH and is no longer than
// front_bytes_max. `bytes` counts the packet's bytes from the LRH to the ICRC.
wire::Icrc icrc_of_front(std::span<const std::byte> front, const wire::LocalPath& path,
                         std::size_t bytes) {
  const std::size_t link_bytes = link_header_bytes(path);
  const auto transport = front.subspan(link_bytes);
  std::array<std::byte, wire::header_bytes_max> masked;
  std::copy(transport.begin(), transport.end(), masked.begin());
  wire::mask_bth(masked);
  // IBTA 7.8.1: behind a GRH, the LRH counts as ones.
  wire::Icrc icrc = path.has_global ? wire::Icrc() : wire::Icrc(front.first<wire::lrh_bytes>());
  if (path.has_global) {
    std::array<std::byte, wire::grh_bytes> masked_grh;
    wire::encode_for_icrc(path.global, bytes - link_bytes, masked_grh);
    icrc.update(masked_grh);
  }
  icrc.update(std::span(masked).first(transport.size()));
  return icrc;
}

std::uint32_t icrc_of(std::span<const std::byte> covered, const wire::LocalPath& path) {
  const std::size_t front_bytes =
      std::min(covered.size(), link_header_bytes(path) + wire::header_bytes_max);
  wire::Icrc icrc =
      icrc_of_front(covered.first(front_bytes), path, covered.size() + wire::icrc_bytes);
  icrc.update(covered.subspan(front_bytes));
  return icrc.value();
}

std::uint16_t vcrc_of(std::span<const std::byte> covered) {
  wire::Vcrc vcrc;
  vcrc.update(covered);
  return vcrc.value();
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

std::size_t encode_link_headers(const wire::LocalPath& path, std::size_t transport_bytes,
                                std::span<std::byte> out) {
  const std::size_t bytes = link_header_bytes(path) + transport_bytes + wire::icrc_bytes;
  TULLE_CHECK(bytes % 4 == 0);  // guaranteed by the pad
  wire::LocalRoute whole = path.local;
  whole.next_header = path.has_global ? wire::LinkNextHeader::grh : wire::LinkNextHeader::bth;
  whole.packet_words = static_cast<std::uint16_t>(bytes / 4);
  wire::encode(whole, out.first<wire::lrh_bytes>());
  if (path.has_global) {
    wire::encode(path.global, transport_bytes + wire::icrc_bytes,
                 out.subspan(wire::lrh_bytes).first<wire::grh_bytes>());
  }
  return link_header_bytes(path);
}

// Makes the checks of IBTA 7.4 in their order.
DecodedLinkHeaders decode_link_headers(std::span<const std::byte> head, std::size_t bytes,
                                       wire::LocalPath& path) {
  using wire::LinkNextHeader;
  constexpr std::size_t least_transport = sizeof(wire::Bth) + wire::icrc_bytes;
  if (head.size() < wire::lrh_bytes || bytes < wire::lrh_bytes + least_transport) return {};
  path.local = wire::decode_lrh(head.first<wire::lrh_bytes>());
  if (path.local.version != 0) return {Verdict::bad_link_header};
  if (std::size_t{path.local.packet_words} * 4 != bytes) return {Verdict::bad_length};
  path.has_global = path.local.next_header == LinkNextHeader::grh;
  if (path.local.next_header == LinkNextHeader::bth) return {Verdict::ok, wire::lrh_bytes};
  if (!path.has_global) return {Verdict::no_transport};
  constexpr std::size_t with_global = wire::lrh_bytes + wire::grh_bytes;
  if (head.size() < with_global || bytes < with_global + least_transport) return {};
  const wire::DecodedGrh grh =
      wire::decode_grh(head.subspan(wire::lrh_bytes).first<wire::grh_bytes>(), path.global);
  if (!grh.ok) return {Verdict::bad_link_header};
  if (grh.bytes != bytes - with_global) return {Verdict::bad_length};
  return {Verdict::ok, with_global};
}

std::array<std::byte, wire::icrc_bytes + wire::vcrc_bytes> checks_of(
    std::span<const std::byte> packet) {
  wire::LocalPath path;
  const auto link = decode_link_headers(packet, packet.size() + wire::icrc_bytes, path);
  TULLE_CHECK(link.verdict == Verdict::ok);
  std::array<std::byte, wire::icrc_bytes + wire::vcrc_bytes> checks;
  const auto icrc = std::span(checks).first<wire::icrc_bytes>();
  wire::put_icrc(icrc_of(packet, path), icrc);
  wire::Vcrc vcrc;
  vcrc.update(packet);
  vcrc.update(icrc);
  wire::put_vcrc(vcrc.value(), std::span(checks).last<wire::vcrc_bytes>());
  return checks;
}

void encode(const wire::LocalPath& path, const wire::Packet& packet, Pieces pieces,
            FrameBytes& frame) {
  TULLE_CHECK(packet.pad_count <= 3);
  const std::size_t payload_bytes = bytes_of(pieces);
  const std::span<std::byte> head(frame.head), tail(frame.tail);
  const std::size_t link_bytes = link_header_bytes(path);
  const std::size_t head_bytes = link_bytes + wire::encode(packet, head.subspan(link_bytes));
  const std::size_t icrc_at = packet.pad_count;
  const std::size_t vcrc_at = icrc_at + wire::icrc_bytes;
  frame.head_bytes = static_cast<std::uint8_t>(head_bytes);
  frame.tail_bytes = static_cast<std::uint8_t>(vcrc_at + wire::vcrc_bytes);
  frame.tail = {};

  const std::size_t bytes = head_bytes + payload_bytes + vcrc_at;
  encode_link_headers(path, bytes - link_bytes - wire::icrc_bytes, head);

  wire::Icrc icrc = icrc_of_front(head.first(head_bytes), path, bytes);
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

Verdict decode(std::span<const std::byte> bytes, wire::LocalPath& path, wire::Packet& packet,
               std::span<const std::byte>& payload) {
  constexpr std::size_t least = wire::lrh_bytes + sizeof(wire::Bth) + wire::icrc_bytes;
  if (bytes.size() < least + wire::vcrc_bytes) return Verdict::truncated;
  // A port discards a packet that was damaged on the link before any other part of it sees it.
  const auto whole = bytes.first(bytes.size() - wire::vcrc_bytes);
  if (vcrc_of(whole) != wire::take_vcrc(bytes.last<wire::vcrc_bytes>())) return Verdict::bad_vcrc;
  const DecodedLinkHeaders link = decode_link_headers(whole, whole.size(), path);
  if (link.verdict != Verdict::ok) return link.verdict;

  const auto covered = whole.first(whole.size() - wire::icrc_bytes);
  const auto icrc = whole.last<wire::icrc_bytes>();
  if (icrc_of(covered, path) != wire::take_icrc(icrc)) return Verdict::bad_icrc;
  return decode_transport(covered.subspan(link.bytes), packet, payload);
}

const Framing infiniband = {
    .name = "InfiniBand",
    .link_layer = LinkLayer::infiniband,
    .overhead = infiniband_overhead,
    .set_path = set_local_path,
    .encode =
        [](const wire::Path& path, const wire::Packet& packet, Pieces pieces, FrameBytes& frame) {
          encode(std::get<wire::LocalPath>(path), packet, pieces, frame);
        },
    .decode =
        [](std::span<const std::byte> bytes, Arrival& arrival, wire::Packet& packet,
           std::span<const std::byte>& payload) {
          return decode(bytes, arrival.path.emplace<wire::LocalPath>(), packet, payload);
        },
};

}  // namespace tulle::port
