#include "rdma/port/framing/roce_v2.h"

#include <algorithm>

#include "base/check.h"
#include "rdma/wire/bth.h"
#include "rdma/wire/icrc.h"

namespace tulle::port {
namespace {

constexpr std::size_t ip_udp_bytes_max = wire::ipv6_header_bytes + wire::udp_header_bytes;

// Returns the ICRC up to the end of `head`, which begins with the BTH and is at most
// header_bytes_max long. The headers are gathered first, since one CRC over a hundred bytes costs
// less than three.
wire::Icrc icrc_of_headers(const wire::IpUdp& ip, std::size_t udp_payload_bytes,
                           std::span<const std::byte> head) {
  std::array<std::byte, ip_udp_bytes_max + wire::header_bytes_max> bytes;
  const std::size_t ip_bytes = wire::encode_for_icrc(ip, udp_payload_bytes, bytes);
  std::copy(head.begin(), head.end(), bytes.begin() + ip_bytes);
  wire::mask_bth(std::span(bytes).subspan(ip_bytes, head.size()));
  wire::Icrc icrc;
  icrc.update(std::span(bytes).first(ip_bytes + head.size()));
  return icrc;
}

std::uint32_t icrc_of(const wire::IpUdp& ip, std::size_t udp_payload_bytes,
                      std::span<const std::byte> covered) {
  const std::size_t head_bytes = std::min(covered.size(), wire::header_bytes_max);
  wire::Icrc icrc = icrc_of_headers(ip, udp_payload_bytes, covered.first(head_bytes));
  icrc.update(covered.subspan(head_bytes));
  return icrc.value();
}

// Returns true if the difference between the received and the computed ICRC can come from an
// identification other than the one guessed in `ip`. IBTA A17.4.5 requires DF to be set, so a
// difference that needs DF clear is treated as damage. This halves the damage that slips through,
// and lets no single flipped bit pass.
bool is_explained(std::uint32_t difference, const wire::IpUdp& ip, std::size_t covered_bytes) {
  if (!wire::is_ipv4(ip)) return false;
  const std::size_t bytes_after = wire::ipv4_udp_bytes_after_fragment_offset + covered_bytes;
  const auto explanation = wire::explain_identification(difference, bytes_after);
  return explanation.has_value() && explanation->dont_fragment;
}

// Groups are exempt, because programs also name an IPv4 group by the GID ff0e::ffff:a.b.c.d that
// RoCE v1 has for it.
bool is_of_one_family(const Gid& source, const Gid& destination) {
  return destination.is_multicast() || source.is_ipv4_mapped() == destination.is_ipv4_mapped();
}

void set_ip_path(const Route& route, wire::Path& path) {
  auto& ip = path.emplace<wire::IpUdp>();
  ip.source = route.source_gid;
  ip.destination = route.destination.gid;
  ip.traffic_class = route.traffic_class;
  ip.hop_limit = route.hop_limit;
  ip.flow_label = route.flow_label;
  ip.source_port = route.flow_entropy;
}

}  // namespace

std::uint16_t source_port(QpNumber local, QpNumber remote) { return source_port(0, local, remote); }

std::uint16_t source_port(std::uint32_t flow_label, QpNumber local, QpNumber remote) {
  constexpr std::uint32_t flow_label_mask = 0xF'FFFF;
  std::uint32_t label = flow_label & flow_label_mask;
  if (label == 0) {
    std::uint64_t product = std::uint64_t{local.value} * remote.value;
    product ^= product >> 20;
    product ^= product >> 40;
    label = static_cast<std::uint32_t>(product & flow_label_mask);
  }
  // Fourteen bits are free above 0xC000. The label's upper six bits are folded into them.
  return static_cast<std::uint16_t>(((label & 0x3FFF) ^ (label >> 14)) | 0xC000);
}

void encode(const wire::IpUdp& ip, const wire::Packet& packet, Pieces pieces, FrameBytes& frame) {
  TULLE_CHECK(packet.pad_count <= 3);
  const std::size_t payload_bytes = bytes_of(pieces);

  const std::size_t head_bytes = wire::encode(packet, frame.head);
  frame.head_bytes = static_cast<std::uint8_t>(head_bytes);
  frame.tail_bytes = static_cast<std::uint8_t>(packet.pad_count + wire::icrc_bytes);
  frame.tail = {};

  const std::size_t udp_payload_bytes = head_bytes + payload_bytes + frame.tail_bytes;
  const std::span<std::byte> tail(frame.tail);
  wire::Icrc icrc = icrc_of_headers(ip, udp_payload_bytes, std::span(frame.head).first(head_bytes));
  for (const auto& piece : pieces) icrc.update(piece);
  icrc.update(tail.first(packet.pad_count));
  wire::put_icrc(icrc.value(), tail.subspan(packet.pad_count).first<wire::icrc_bytes>());
}

Verdict decode(const wire::IpUdp& ip, bool identification_known,
               std::span<const std::byte> datagram, wire::Packet& packet,
               std::span<const std::byte>& payload) {
  if (datagram.size() < sizeof(wire::Bth) + wire::icrc_bytes) return Verdict::truncated;

  // IBTA 9.6: bytes are not read before the ICRC has vouched for them, so it comes before all other
  // checks.
  const auto covered = datagram.first(datagram.size() - wire::icrc_bytes);
  const std::uint32_t received = wire::take_icrc(datagram.last<wire::icrc_bytes>());
  const std::uint32_t difference = received ^ icrc_of(ip, datagram.size(), covered);
  if (difference != 0 && (identification_known || !is_explained(difference, ip, covered.size()))) {
    return Verdict::bad_icrc;
  }

  return decode_transport(covered, packet, payload);
}

const Framing roce_v2 = {
    .name = "RoCE v2",
    .link_layer = LinkLayer::ethernet,
    .overhead = roce_v2_overhead,
    .is_pair = is_of_one_family,
    .set_path = set_ip_path,
    .encode = [](const wire::Path& path, const wire::Packet& packet, Pieces pieces,
                 FrameBytes& frame) { encode(std::get<wire::IpUdp>(path), packet, pieces, frame); },
    .decode =
        [](std::span<const std::byte> bytes, Arrival& arrival, wire::Packet& packet,
           std::span<const std::byte>& payload) {
          return decode(std::get<wire::IpUdp>(arrival.path), arrival.is_identification_known, bytes,
                        packet, payload);
        },
};

}  // namespace tulle::port
