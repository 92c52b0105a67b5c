#pragma once

// Congestion notification packet of RoCE v2 (IBTA A17.9.3): sixteen reserved bytes behind the BTH,
// which are sent as zero.

#include <cstdint>

#include "rdma/wire/header.h"

namespace tulle::wire {

struct CnpReserved {
  std::uint8_t bytes[16] = {};
};
static_assert(is_wire_format<CnpReserved, 16>);

}  // namespace tulle::wire
