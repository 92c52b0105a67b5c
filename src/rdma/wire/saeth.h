#pragma once

// Selective acknowledge extended transport header: the one packet that a NACK of selective repeat
// names beyond its cumulative acknowledgement. The header is Tulle's own, not IBTA's:
// docs/decisions/006-selective-repeat.md.

#include <cstdint>

#include "base/big_endian.h"
#include "rdma/wire/header.h"

namespace tulle::wire {

struct Saeth {
  std::uint8_t reserved = 0;
  be24 psn;
};
static_assert(is_wire_format<Saeth, 4>);

}  // namespace tulle::wire
