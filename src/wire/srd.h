#pragma once

// The headers of the scalable reliable datagram. Amazon has not published its own: these are
// Tulle's, behind opcodes that IBTA leaves to manufacturers (9.2.1, table 38). See
// docs/decisions/009-scalable-reliable-datagram.md.

#include <cstdint>

#include "base/big_endian.h"
#include "wire/header.h"

namespace tulle::wire {

// Of every packet that is acknowledged: whose numbers the PSN is one of, by which path the packet
// goes, and which message it is of.
struct Srdeth {
  be32 context;
  std::uint8_t path = 0;
  be24 source_qp;
  be32 message;
};
static_assert(is_wire_format<Srdeth, 12>);

// Of what needs a receive request.
struct SrdQkeyEth {
  be32 qkey;
};
static_assert(is_wire_format<SrdQkeyEth, 4>);

// Where in its message a payload belongs, and how long that is: so that packets can be placed in
// any order.
struct SrdSegmentEth {
  be32 offset;
  be32 length;
};
static_assert(is_wire_format<SrdSegmentEth, 8>);

// Of an acknowledgement: what it answers, what became of that, for how long it was held before the
// acknowledgement left; and which have come of it and the 63 before (bit i: psn - 63 + i).
struct SrdAckEth {
  be32 context;
  std::uint8_t path = 0;
  be24 psn;
  std::uint8_t syndrome = 0;
  be24 held_ns;
  be64 received;
};
static_assert(is_wire_format<SrdAckEth, 20>);

}  // namespace tulle::wire
