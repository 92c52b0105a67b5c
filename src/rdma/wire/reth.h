#pragma once

// RDMA extended transport header (IBTA 9.3): the memory that a WRITE or a READ request addresses.

#include "base/big_endian.h"
#include "rdma/wire/header.h"

namespace tulle::wire {

struct Reth {
  be64 virtual_address;
  be32 rkey;
  be32 dma_length;  // length of the whole message
};
static_assert(is_wire_format<Reth, 16>);

}  // namespace tulle::wire
