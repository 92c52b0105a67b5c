// For any frame, decode must not crash or invent data: encode must write the packets that decode
// accepts.
//
// The first byte of the input says whether the ICRC is repaired first, since chance would never
// find it. The rest is the frame. Inputs that begin with route_choice check a route.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "rdma/port/framing/framing_fuzz.h"
#include "rdma/port/framing/roce_v1.h"
#include "rdma/wire/icrc.h"

namespace tulle::port {
namespace {

// Makes the four bytes that the GRH counts last the ICRC of those before them.
void repair_icrc(Bytes& bytes) {
  const std::size_t tag = bytes.size() > 13 && bytes[12] == std::byte{0x81} ? 4 : 0;
  const std::size_t grh_at = sizeof(wire::Ethernet) + tag;
  if (bytes.size() < grh_at + wire::grh_bytes + 12 + wire::icrc_bytes) return;
  wire::GlobalRoute route;
  const std::span<std::byte> all(bytes);
  const auto grh = wire::decode_grh(all.subspan(grh_at).first<wire::grh_bytes>(), route);
  const std::size_t room = bytes.size() - grh_at - wire::grh_bytes;
  if (!grh.ok || grh.bytes < 12 + wire::icrc_bytes || grh.bytes > room) return;
  Bytes masked(wire::grh_bytes);
  wire::encode_for_icrc(route, grh.bytes, std::span(masked).first<wire::grh_bytes>());
  const auto transport = all.subspan(grh_at + wire::grh_bytes, grh.bytes - wire::icrc_bytes);
  masked.insert(masked.end(), transport.begin(), transport.end());
  wire::mask_bth(std::span(masked).subspan(wire::grh_bytes));
  wire::Icrc icrc;
  icrc.update(masked);
  wire::put_icrc(
      icrc.value(),
      all.subspan(grh_at + wire::grh_bytes + transport.size()).first<wire::icrc_bytes>());
}

void check_frame(const Bytes& bytes) {
  Arrival arrival;
  wire::Packet packet;
  std::span<const std::byte> payload;
  if (roce_v1.decode(bytes, arrival, packet, payload) != Verdict::ok) return;
  const Bytes again = written(roce_v1, arrival.path, packet, payload);
  TULLE_CHECK(again.size() <= bytes.size() + sizeof(wire::VlanTag));
  Arrival arrival_again;
  wire::Packet packet_again;
  std::span<const std::byte> payload_again;
  TULLE_CHECK(roce_v1.decode(again, arrival_again, packet_again, payload_again) == Verdict::ok);
  TULLE_CHECK(arrival_again.path == arrival.path);
  TULLE_CHECK(packet_again == packet);
  TULLE_CHECK(
      std::equal(payload.begin(), payload.end(), payload_again.begin(), payload_again.end()));
}

}  // namespace
}  // namespace tulle::port

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  if (data[0] == tulle::port::route_choice) {
    tulle::port::check_route(tulle::port::roce_v1, {data + 1, size - 1});
    return 0;
  }
  const auto rest = std::as_bytes(std::span(data, size)).subspan(1);
  tulle::port::Bytes bytes(rest.begin(), rest.end());
  if ((data[0] & 1) != 0) tulle::port::repair_icrc(bytes);
  tulle::port::check_frame(bytes);
  return 0;
}
