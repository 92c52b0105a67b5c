#include "rdma/wire/lrh.h"

#include "base/check.h"

namespace tulle::wire {

void encode(const LocalRoute& route, std::span<std::byte, lrh_bytes> out) {
  TULLE_CHECK(route.vl < 16 && route.version < 16 && route.service_level < 16);
  TULLE_CHECK(route.packet_words <= Lrh::length_mask);
  Lrh lrh;
  lrh.lane = static_cast<std::uint8_t>(route.vl << Lrh::vl_shift | route.version);
  lrh.service = static_cast<std::uint8_t>(route.service_level << Lrh::service_level_shift |
                                          static_cast<unsigned>(route.next_header));
  lrh.destination = route.destination.value;
  lrh.length = route.packet_words;
  lrh.source = route.source.value;
  std::span<std::byte> rest = out;
  put(lrh, rest);
}

LocalRoute decode_lrh(std::span<const std::byte, lrh_bytes> in) {
  std::span<const std::byte> rest = in;
  const Lrh lrh = take<Lrh>(rest);
  LocalRoute route;
  route.vl = static_cast<std::uint8_t>(lrh.lane >> Lrh::vl_shift);
  route.version = lrh.lane & Lrh::version_mask;
  route.service_level = static_cast<std::uint8_t>(lrh.service >> Lrh::service_level_shift);
  route.next_header = static_cast<LinkNextHeader>(lrh.service & Lrh::next_header_mask);
  route.destination = Lid(lrh.destination);
  route.packet_words = lrh.length & Lrh::length_mask;
  route.source = Lid(lrh.source);
  return route;
}

}  // namespace tulle::wire
