#pragma once

// Acknowledge extended transport header (IBTA 9.3, 9.7.5.1): the syndrome says ACK, RNR NAK or NAK.

#include <cstdint>

#include "base/big_endian.h"
#include "rdma/wire/header.h"

namespace tulle::wire {

struct Aeth {
  std::uint8_t syndrome = 0;  // reserved 1, kind 2, value 5
  be24 msn;
};
static_assert(is_wire_format<Aeth, 4>);

}  // namespace tulle::wire
