#pragma once

// FLUSH extended transport header (IBTA annex A19): the range that a FLUSH covers (selectivity),
// and the place that its data must have reached (placement).

#include "base/big_endian.h"
#include "rdma/wire/header.h"

namespace tulle::wire {

struct Feth {
  static constexpr unsigned placement_mask = 0x0F;  // bit 0: globally visible, bit 1: persistent
  static constexpr unsigned selectivity_shift = 4;
  static constexpr unsigned selectivity_mask = 0x03;

  be32 bits;  // reserved 26, selectivity 2, placement 4
};
static_assert(is_wire_format<Feth, 4>);

}  // namespace tulle::wire
