#pragma once

// Local route header (IBTA 7.7): the front of every packet on an InfiniBand link. Switches forward
// by it.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/big_endian.h"
#include "base/ids.h"
#include "rdma/wire/header.h"

namespace tulle::wire {

struct Lrh {
  static constexpr unsigned vl_shift = 4;  // in `lane`
  static constexpr unsigned version_mask = 0x0F;
  static constexpr unsigned service_level_shift = 4;  // in `service`
  static constexpr unsigned next_header_mask = 0x03;
  static constexpr std::uint16_t length_mask = 0x07FF;  // in `length`

  std::uint8_t lane = 0;     // VL 4, LVer 4
  std::uint8_t service = 0;  // SL 4, reserved 2, LNH 2
  be16 destination;
  be16 length;  // reserved 5, packet length 11
  be16 source;
};
inline constexpr std::size_t lrh_bytes = 8;
static_assert(is_wire_format<Lrh, lrh_bytes>);

// Kinds of header that follow the LRH (IBTA 7.7.5).
enum class LinkNextHeader : std::uint8_t { raw = 0, ipv6 = 1, bth = 2, grh = 3 };

// An LRH, decoded.
struct LocalRoute {
  std::uint8_t vl = 0;             // virtual lane, 0 to 15; may change from link to link
  std::uint8_t version = 0;        // link version; 0 is the only one (IBTA 7.7.2)
  std::uint8_t service_level = 0;  // 0 to 15
  LinkNextHeader next_header = LinkNextHeader::bth;
  Lid destination;
  Lid source;
  std::uint16_t packet_words = 0;  // words of four bytes from the LRH to the ICRC, without the VCRC

  bool operator==(const LocalRoute&) const = default;
};

// LIDs from 1 on are ports, those behind unicast_lid_max are multicast groups, and the permissive
// one is whichever port the packet reaches (IBTA 4.1.3).
inline constexpr std::uint16_t unicast_lid_max = 0xBFFF;
inline constexpr std::uint16_t permissive_lid = 0xFFFF;

void encode(const LocalRoute& route, std::span<std::byte, lrh_bytes> out);
// Decodes any eight bytes. Reserved bits are ignored.
LocalRoute decode_lrh(std::span<const std::byte, lrh_bytes> in);

}  // namespace tulle::wire
