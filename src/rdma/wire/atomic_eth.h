#pragma once

// Atomic extended transport header, and atomic acknowledge extended transport header (IBTA 9.3).

#include "base/big_endian.h"
#include "rdma/wire/header.h"

namespace tulle::wire {

struct AtomicEth {
  be64 virtual_address;
  be32 rkey;
  be64 swap_or_add;
  be64 compare;
};
static_assert(is_wire_format<AtomicEth, 28>);

struct AtomicAckEth {
  be64 original;
};
static_assert(is_wire_format<AtomicAckEth, 8>);

}  // namespace tulle::wire
