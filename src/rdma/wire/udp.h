#pragma once

// UDP header (RFC 768).

#include <cstdint>

#include "base/big_endian.h"
#include "rdma/wire/header.h"

namespace tulle::wire {

inline constexpr std::uint8_t ip_protocol_udp = 17;

struct Udp {
  be16 source_port;
  be16 destination_port;
  be16 length;  // length of header and payload
  be16 checksum;
};
static_assert(is_wire_format<Udp, 8>);

}  // namespace tulle::wire
