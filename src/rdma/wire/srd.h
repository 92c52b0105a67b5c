#pragma once

// The headers of the scalable reliable datagram. Amazon has not published its own. These are
// Tulle's, behind opcodes that IBTA leaves to manufacturers (9.2.1, table 38). See
// docs/decisions/009-scalable-reliable-datagram.md.

#include <cstdint>

#include "base/big_endian.h"
#include "rdma/wire/header.h"

namespace tulle::wire {

// Present in every packet that is acknowledged. It names the context that numbers the packets (the
// PSN is one of its numbers), the path that the packet takes, and the message that the packet
// belongs to.
struct Srdeth {
  be32 context;
  std::uint8_t path = 0;
  be24 source_qp;
  be32 message;
};
static_assert(is_wire_format<Srdeth, 12>);

// Present in packets of messages that need a receive work request.
struct SrdQkeyEth {
  be32 qkey;
};
static_assert(is_wire_format<SrdQkeyEth, 4>);

// The payload's place in its message, and the length of the message, so that the receiver can place
// packets in any order.
struct SrdSegmentEth {
  be32 offset;
  be32 length;
};
static_assert(is_wire_format<SrdSegmentEth, 8>);

// Present in an acknowledgement. It names the packet that it answers, its outcome (syndrome), and
// the time for which the receiver held it before acknowledging. It also tells which packets have
// come of that one and the 63 before it (bit i: psn - 63 + i).
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
