#pragma once

// The questions that an interface asks of subnet administration.

#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "rdma/wire/sa.h"

namespace tulle::ipoib {

struct Question {
  enum class Kind : std::uint8_t {
    path,   // Get of a PathRecord
    join,   // Set of an MCMemberRecord
    leave,  // Delete of an MCMemberRecord, of which no answer is awaited
  };
  Kind kind = Kind::path;
  std::uint32_t number = 0;  // by which the answer is known
  std::uint64_t components = 0;
  std::variant<wire::PathRecord, wire::MemberRecord> record;
};

// A packet that waits, from the IPoIB header on.
using WaitingPacket = std::vector<std::byte>;
using WaitingPackets = std::vector<WaitingPacket>;

}  // namespace tulle::ipoib
