// For any input, decode must not crash or invent data: encode must write the packets that decode
// accepts.
//
// The first byte of the input chooses the address family, whether the identification is known, and
// whether the ICRC is repaired first, since chance would never find one. The rest is the datagram.
// Inputs that begin with route_choice check a route.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "rdma/port/framing/framing_fuzz.h"
#include "rdma/port/framing/roce_v2.h"
#include "rdma/wire/icrc.h"

namespace tulle::port {
namespace {

wire::IpUdp headers(bool ipv4) {
  wire::IpUdp ip;
  if (ipv4) {
    ip.source = Gid::from_ipv4(0x0A00'0001);
    ip.destination = Gid::from_ipv4(0x0A00'0002);
  } else {
    ip.source.bytes[0] = ip.destination.bytes[0] = 0xFE;
    ip.destination.bytes[15] = 1;
  }
  ip.source_port = 0xC000;
  return ip;
}

void repair_icrc(const wire::IpUdp& ip, Bytes& datagram) {
  if (datagram.size() < 16) return;
  Bytes covered(48 + datagram.size());
  const std::size_t header_bytes = wire::encode_for_icrc(ip, datagram.size(), covered);
  std::copy(datagram.begin(), datagram.end(),
            covered.begin() + static_cast<std::ptrdiff_t>(header_bytes));
  wire::mask_bth(std::span(covered).subspan(header_bytes));
  wire::Icrc icrc;
  icrc.update(std::span(covered).first(header_bytes + datagram.size() - wire::icrc_bytes));
  wire::put_icrc(icrc.value(), std::span(datagram).last<wire::icrc_bytes>());
}

// Returns the meaningful bits of an opcode's headers: those that a packet full of ones sets.
std::array<std::byte, wire::header_bytes_max> meaningful_bits(wire::Opcode opcode) {
  std::array<std::byte, wire::header_bytes_max> ones;
  ones.fill(std::byte{0xFF});
  ones[0] = static_cast<std::byte>(opcode);
  ones[1] = std::byte{0xF0};  // version 0
  wire::Packet packet;
  TULLE_CHECK(wire::decode(ones, packet).status == wire::DecodeStatus::ok);
  std::array<std::byte, wire::header_bytes_max> bits{};
  wire::encode(packet, bits);
  bits[0] = std::byte{0xFF};
  return bits;
}

void check_datagram(const wire::IpUdp& ip, bool identification_known, const Bytes& datagram) {
  wire::Packet packet;
  std::span<const std::byte> payload;
  if (decode(ip, identification_known, datagram, packet, payload) != Verdict::ok) return;

  FrameBytes frame;
  encode(ip, packet, std::array{payload}, frame);
  TULLE_CHECK(frame.head_bytes + payload.size() + frame.tail_bytes == datagram.size());
  TULLE_CHECK(payload.data() == datagram.data() + frame.head_bytes);
  const auto meaningful = meaningful_bits(packet.opcode);
  for (std::size_t i = 0; i < frame.head_bytes; ++i) {
    TULLE_CHECK(frame.head[i] == (datagram[i] & meaningful[i]));
  }

  // The written datagram must decode to the same packet.
  Bytes written(frame.head.begin(), frame.head.begin() + frame.head_bytes);
  written.insert(written.end(), payload.begin(), payload.end());
  written.insert(written.end(), frame.tail.begin(), frame.tail.begin() + frame.tail_bytes);
  wire::Packet again;
  std::span<const std::byte> payload_again;
  TULLE_CHECK(decode(ip, true, written, again, payload_again) == Verdict::ok);
  TULLE_CHECK(again == packet);
  TULLE_CHECK(
      std::equal(payload.begin(), payload.end(), payload_again.begin(), payload_again.end()));
}

}  // namespace
}  // namespace tulle::port

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::uint8_t choice = data[0];
  if (choice == tulle::port::route_choice) {
    tulle::port::check_route(tulle::port::roce_v2, {data + 1, size - 1});
    return 0;
  }
  const auto ip = tulle::port::headers((choice & 1) != 0);
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  tulle::port::Bytes datagram(bytes.begin(), bytes.end());
  if ((choice & 4) != 0) tulle::port::repair_icrc(ip, datagram);
  tulle::port::check_datagram(ip, (choice & 2) != 0, datagram);

  tulle::wire::IpUdp read;
  (void)tulle::wire::decode(bytes, read);
  return 0;
}
