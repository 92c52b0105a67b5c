#pragma once

// Base transport header (IBTA 9.2): the front of every transport packet.

#include <cstdint>

#include "base/big_endian.h"
#include "wire/header.h"

namespace tulle::wire {

struct Bth {
  static constexpr unsigned solicited_event = 0x80;  // in `flags`
  static constexpr unsigned migration_state = 0x40;
  static constexpr unsigned pad_count_shift = 4;
  static constexpr unsigned pad_count_mask = 0x03;
  static constexpr unsigned version_mask = 0x0F;
  static constexpr unsigned fecn = 0x80;  // in `congestion`
  static constexpr unsigned becn = 0x40;
  static constexpr unsigned ack_request = 0x80;  // in `acknowledge`

  std::uint8_t opcode = 0;
  std::uint8_t flags = 0;  // solicited event 1, migration state 1, pad count 2, version 4
  be16 pkey;
  std::uint8_t congestion = 0;  // FECN 1, BECN 1, reserved 6: the byte that the ICRC does not cover
  be24 destination_qp;
  std::uint8_t acknowledge = 0;  // acknowledge request 1, reserved 7
  be24 psn;
};
static_assert(is_wire_format<Bth, 12>);

}  // namespace tulle::wire
