#include "rdma/wire/ddp.h"

#include "base/big_endian.h"
#include "rdma/wire/header.h"

namespace tulle::wire::ddp {
namespace {

struct Control {
  static constexpr unsigned tagged = 0x80;
  static constexpr unsigned last = 0x40;
  static constexpr unsigned reserved_shift = 2;
  static constexpr unsigned reserved_mask = 0x0F;
  static constexpr unsigned version_mask = 0x03;

  std::uint8_t bits = 0;
  std::uint8_t ulp_control = 0;
};

struct Tagged {
  Control control;
  be32 stag;
  be64 offset;
};
static_assert(is_wire_format<Tagged, tagged_header_bytes>);

struct Untagged {
  Control control;
  be32 ulp_word;
  be32 queue;
  be32 sequence;
  be32 offset;
};
static_assert(is_wire_format<Untagged, untagged_header_bytes>);

Control control_of(const Header& header) {
  Control control;
  control.bits = static_cast<std::uint8_t>(
      (header.tagged ? Control::tagged : 0) | (header.last ? Control::last : 0) |
      (header.reserved & Control::reserved_mask) << Control::reserved_shift |
      (header.version & Control::version_mask));
  control.ulp_control = header.ulp_control;
  return control;
}

}  // namespace

void encode(const Header& header, std::span<std::byte> out) {
  if (header.tagged) {
    put(Tagged{control_of(header), header.stag.value, header.tagged_offset}, out);
  } else {
    put(Untagged{control_of(header), header.ulp_word, header.queue, header.sequence,
                 header.message_offset},
        out);
  }
}

bool decode(std::span<const std::byte> segment, Header& header) {
  if (segment.empty()) return false;
  const auto bits = std::to_integer<unsigned>(segment[0]);
  const bool tagged = (bits & Control::tagged) != 0;
  if (segment.size() < (tagged ? tagged_header_bytes : untagged_header_bytes)) return false;
  header = {};
  header.tagged = tagged;
  header.last = (bits & Control::last) != 0;
  header.reserved =
      static_cast<std::uint8_t>(bits >> Control::reserved_shift & Control::reserved_mask);
  header.version = static_cast<std::uint8_t>(bits & Control::version_mask);
  if (tagged) {
    const auto from = take<Tagged>(segment);
    header.ulp_control = from.control.ulp_control;
    header.stag = RemoteKey(from.stag);
    header.tagged_offset = from.offset;
  } else {
    const auto from = take<Untagged>(segment);
    header.ulp_control = from.control.ulp_control;
    header.ulp_word = from.ulp_word;
    header.queue = from.queue;
    header.sequence = from.sequence;
    header.message_offset = from.offset;
  }
  return true;
}

}  // namespace tulle::wire::ddp
