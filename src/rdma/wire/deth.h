#pragma once

// Datagram extended transport header (IBTA 9.3): the queue pair that sent a UD packet, and the key
// that admits it.

#include <cstdint>

#include "base/big_endian.h"
#include "rdma/wire/header.h"

namespace tulle::wire {

struct Deth {
  be32 qkey;
  std::uint8_t reserved = 0;
  be24 source_qp;
};
static_assert(is_wire_format<Deth, 8>);

}  // namespace tulle::wire
