#pragma once

// Headers of tag matching: the first bytes of a SEND's payload, as libibverbs has them (tm_types.h:
// ibv_tmh, ibv_rvh; the picture is in rdma-core's Documentation/tag_matching.md).

#include <array>
#include <cstdint>

#include "base/big_endian.h"
#include "wire/header.h"

namespace tulle::wire {

enum class TagOperation : std::uint8_t { no_tag = 0, rendezvous = 1, finished = 2, eager = 3 };

struct TagHeader {
  std::uint8_t operation = 0;
  std::array<std::uint8_t, 3> reserved{};
  be32 context;  // the application's; an answer brings it back
  be64 tag;
};
static_assert(is_wire_format<TagHeader, 16>);

// Behind it in a rendezvous' request: where the message is to be read.
struct RendezvousHeader {
  be64 virtual_address;
  be32 rkey;
  be32 length;  // bytes
};
static_assert(is_wire_format<RendezvousHeader, 16>);

}  // namespace tulle::wire
