#pragma once

// Immediate data and the invalidate header (IBTA 9.3): the four bytes that may end the headers of a
// message.

#include <cstdint>

#include "base/big_endian.h"
#include "rdma/wire/header.h"

namespace tulle::wire {

// Immediate data are opaque to the transport: the application's bytes, never swapped.
struct ImmDt {
  std::uint8_t bytes[4] = {};
};
static_assert(is_wire_format<ImmDt, 4>);

struct Ieth {
  be32 rkey;
};
static_assert(is_wire_format<Ieth, 4>);

}  // namespace tulle::wire
