#pragma once

// XRC extended transport header (IBTA annex A14): the shared receive queue that an XRC request
// addresses.

#include <cstdint>

#include "base/big_endian.h"
#include "rdma/wire/header.h"

namespace tulle::wire {

struct Xrceth {
  std::uint8_t reserved = 0;
  be24 srq;
};
static_assert(is_wire_format<Xrceth, 4>);

}  // namespace tulle::wire
