// For any input, decode must not crash or invent data: encode must write the packets that decode
// accepts.
//
// The first byte of the input says whether both CRCs are repaired first, since chance would never
// find them. The rest is the packet. Inputs that begin with route_choice check a route.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "rdma/port/framing/framing_fuzz.h"
#include "rdma/port/framing/infiniband.h"
#include "rdma/wire/icrc.h"

namespace tulle::port {
namespace {

void repair_crcs(Bytes& bytes) {
  constexpr std::size_t crc_bytes = wire::icrc_bytes + wire::vcrc_bytes;
  if (bytes.size() < wire::lrh_bytes + 12 + crc_bytes) return;
  const std::span<std::byte> all(bytes);
  const std::size_t covered = bytes.size() - crc_bytes;
  Bytes masked(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(covered));
  const std::span<std::byte> front(masked);
  wire::Icrc icrc;
  const bool has_global = (bytes[1] & std::byte{3}) == std::byte{3};
  if (has_global && covered >= wire::lrh_bytes + wire::grh_bytes + 12) {
    // IBTA 7.8.1: traffic class, flow label and hop limit count as ones, and the LRH does.
    masked[8] |= std::byte{0x0F};
    masked[9] = masked[10] = masked[11] = masked[15] = std::byte{0xFF};
    wire::mask_bth(front.subspan(wire::lrh_bytes + wire::grh_bytes));
  } else {
    wire::mask_bth(front.subspan(wire::lrh_bytes));
    icrc = wire::Icrc(std::span<const std::byte>(masked).first<wire::lrh_bytes>());
  }
  icrc.update(front.subspan(wire::lrh_bytes));
  wire::put_icrc(icrc.value(), all.subspan(covered).first<wire::icrc_bytes>());
  wire::Vcrc vcrc;
  vcrc.update(all.first(covered + wire::icrc_bytes));
  wire::put_vcrc(vcrc.value(), all.last<wire::vcrc_bytes>());
}

void check_packet(const Bytes& bytes) {
  wire::LocalPath path;
  wire::Packet packet;
  std::span<const std::byte> payload;
  if (decode(bytes, path, packet, payload) != Verdict::ok) return;

  FrameBytes frame;
  encode(path, packet, std::array{payload}, frame);
  TULLE_CHECK(payload.data() == bytes.data() + frame.head_bytes);
  Bytes written(frame.head.begin(), frame.head.begin() + frame.head_bytes);
  written.insert(written.end(), payload.begin(), payload.end());
  written.insert(written.end(), frame.tail.begin(), frame.tail.begin() + frame.tail_bytes);
  TULLE_CHECK(written.size() == bytes.size());

  wire::LocalPath path_again;
  wire::Packet packet_again;
  std::span<const std::byte> payload_again;
  TULLE_CHECK(decode(written, path_again, packet_again, payload_again) == Verdict::ok);
  TULLE_CHECK(path_again.local == path.local);
  TULLE_CHECK(path_again.has_global == path.has_global);
  TULLE_CHECK(!path.has_global || path_again.global == path.global);
  TULLE_CHECK(packet_again == packet);
  TULLE_CHECK(
      std::equal(payload.begin(), payload.end(), payload_again.begin(), payload_again.end()));
}

}  // namespace
}  // namespace tulle::port

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  if (data[0] == tulle::port::route_choice) {
    tulle::port::check_route(tulle::port::infiniband, {data + 1, size - 1});
    return 0;
  }
  const auto rest = std::as_bytes(std::span(data, size)).subspan(1);
  tulle::port::Bytes bytes(rest.begin(), rest.end());
  if ((data[0] & 1) != 0) tulle::port::repair_crcs(bytes);
  tulle::port::check_packet(bytes);
  return 0;
}
