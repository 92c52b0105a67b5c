#pragma once

// Headers of tag matching: the first bytes of a SEND's payload, as libibverbs defines them
// (tm_types.h: ibv_tmh, ibv_rvh; rdma-core's Documentation/tag_matching.md has the picture).

#include <array>
#include <cstdint>

#include "base/big_endian.h"
#include "rdma/wire/header.h"

namespace tulle::wire {

enum class TagOperation : std::uint8_t { no_tag = 0, rendezvous = 1, finished = 2, eager = 3 };

struct TagHeader {
  std::uint8_t operation = 0;
  std::array<std::uint8_t, 3> reserved{};
  be32 context;  // set by the application; an answer echoes it
  be64 tag;
};
static_assert(is_wire_format<TagHeader, 16>);

// Follows the TagHeader in a rendezvous request: the place from which the receiver reads the
// message.
struct RendezvousHeader {
  be64 virtual_address;
  be32 rkey;
  be32 length;  // bytes
};
static_assert(is_wire_format<RendezvousHeader, 16>);

}  // namespace tulle::wire
