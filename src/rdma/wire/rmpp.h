#pragma once

// The header of the reliable multi-packet transaction protocol (IBTA 13.6.2), behind the common
// header of the management classes that have it.

#include <cstddef>
#include <cstdint>

#include "base/big_endian.h"
#include "rdma/wire/header.h"
#include "rdma/wire/mad.h"

namespace tulle::wire {

struct RmppHeader {
  static constexpr std::uint8_t current_version = 1;
  static constexpr std::uint8_t active = 1;  // in `response_time_and_flags`
  static constexpr std::uint8_t first = 2;
  static constexpr std::uint8_t last = 4;

  std::uint8_t version = 0;
  std::uint8_t type = 0;                     // RmppType
  std::uint8_t response_time_and_flags = 0;  // response time 5, flags 3
  std::uint8_t status = 0;
  be32 segment;
  be32 length_or_window;  // DATA: payload length; ACK: last segment that may be sent
};
static_assert(is_wire_format<RmppHeader, 12>);
inline constexpr std::size_t rmpp_header_offset = 24;

enum class RmppType : std::uint8_t { none = 0, data = 1, ack = 2, stop = 3, abort = 4 };

// Payload of a segment: all behind the RMPP header (IBTA 13.6.3.1). The header of the class is a
// part of it, and repeats in each segment.
inline constexpr std::size_t rmpp_payload_bytes = mad_bytes - rmpp_header_offset - 12;

inline constexpr std::uint8_t subnet_administration_class = 0x03;

// Returns true for the classes of vendors that carry an OUI (IBTA 16.5.1).
constexpr bool has_oui(std::uint8_t management_class) {
  return management_class >= 0x30 && management_class <= 0x4F;
}

// Returns where a class's own data begin, or 0 for a class without this protocol (IBTA 15.2.1.1,
// 16.5.1; device administration and BIS have their data where subnet administration has them).
constexpr std::size_t rmpp_data_offset(std::uint8_t management_class) {
  if (management_class == subnet_administration_class) return 56;
  return has_oui(management_class) ? 40 : 0;
}

}  // namespace tulle::wire
