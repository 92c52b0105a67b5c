#pragma once

// Base transport header (IBTA 9.2): the front of every transport packet. It is three words, each of
// which is read and written at once.

#include <cstdint>

#include "base/big_endian.h"
#include "rdma/wire/header.h"

namespace tulle::wire {

struct Bth {
  static constexpr unsigned opcode_shift = 24;  // in `opcode_and_pkey`
  static constexpr std::uint32_t solicited_event = 0x0080'0000;
  static constexpr std::uint32_t migration_state = 0x0040'0000;
  static constexpr unsigned pad_count_shift = 20;
  static constexpr std::uint32_t pad_count_mask = 0x03;
  static constexpr std::uint32_t version_mask = 0x000F'0000;
  static constexpr std::uint32_t fecn = 0x8000'0000;  // in `congestion_and_qp`
  static constexpr std::uint32_t becn = 0x4000'0000;
  static constexpr std::uint32_t qp_mask = 0x00FF'FFFF;
  static constexpr std::uint32_t ack_request = 0x8000'0000;  // in `acknowledge_and_psn`

  be32 opcode_and_pkey;  // opcode 8, solicited event 1, migration state 1, pad count 2, version 4,
                         // P_Key 16
  be32 congestion_and_qp;    // FECN 1, BECN 1, reserved 6: the byte that the ICRC does not cover;
                             // destination queue pair 24
  be32 acknowledge_and_psn;  // acknowledge request 1, reserved 7, PSN 24

  std::uint32_t destination_qp() const { return congestion_and_qp & qp_mask; }
};
static_assert(is_wire_format<Bth, 12>);

}  // namespace tulle::wire
