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
InfinibandVerdict check_link(std::span<const std::byte> bytes, const wire::LocalRoute& route) {
  const auto covered = bytes.first(bytes.size() - wire::vcrc_bytes);
  if (vcrc_of(covered) != wire::take_vcrc(bytes.last<wire::vcrc_bytes>())) {
    return InfinibandVerdict::bad_vcrc;
  }
  if (route.version != 0) return InfinibandVerdict::bad_link_version;
  if (std::size_t{route.packet_words} * 4 != covered.size()) return InfinibandVerdict::bad_length;
  if (route.next_header != wire::LinkNextHeader::bth) return InfinibandVerdict::no_transport;
  return InfinibandVerdict::ok;
}

InfinibandVerdict infiniband_verdict_of(wire::DecodeStatus status) {
  switch (status) {
    case wire::DecodeStatus::ok:
      return InfinibandVerdict::ok;
    case wire::DecodeStatus::truncated:
      return InfinibandVerdict::truncated;
    case wire::DecodeStatus::unknown_opcode:
      return InfinibandVerdict::unknown_opcode;
    case wire::DecodeStatus::bad_version:
      return InfinibandVerdict::bad_transport_version;
  }
  return InfinibandVerdict::truncated;
}

}  // namespace

void encode(const wire::LocalRoute& route, const wire::Packet& packet,
            std::span<const std::span<const std::byte>> pieces, InfinibandFrame& frame) {
  TULLE_CHECK(packet.pad_count <= 3);
  std::size_t payload_bytes = 0;
  for (const auto& piece : pieces) payload_bytes += piece.size();
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

InfinibandVerdict decode(std::span<const std::byte> bytes, wire::LocalRoute& route,
                         wire::Packet& packet, std::span<const std::byte>& payload) {
  constexpr std::size_t least = wire::lrh_bytes + sizeof(wire::Bth) + wire::icrc_bytes;
  if (bytes.size() < least + wire::vcrc_bytes) return InfinibandVerdict::truncated;
  route = wire::decode_lrh(bytes.first<wire::lrh_bytes>());
  const InfinibandVerdict link = check_link(bytes, route);
  if (link != InfinibandVerdict::ok) return link;

  const auto covered = bytes.first(bytes.size() - wire::icrc_bytes - wire::vcrc_bytes);
  const auto icrc = bytes.subspan(covered.size()).first<wire::icrc_bytes>();
  if (icrc_of(covered) != wire::take_icrc(icrc)) return InfinibandVerdict::bad_icrc;

  const auto transport = covered.subspan(wire::lrh_bytes);
  const wire::Decoded headers = wire::decode(transport, packet);
  if (headers.status != wire::DecodeStatus::ok) return infiniband_verdict_of(headers.status);
  const auto rest = transport.subspan(headers.header_bytes);
  if (rest.size() < packet.pad_count) return InfinibandVerdict::truncated;
  payload = rest.first(rest.size() - packet.pad_count);
  return InfinibandVerdict::ok;
}

}  // namespace tulle::port
