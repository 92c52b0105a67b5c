#pragma once

// A question to subnet administration, and what a search for its records needs.

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/time.h"
#include "management/packet.h"
#include "rdma/wire/sa.h"

namespace tulle::management::administration {

struct Question {
  const Packet& packet;
  wire::MadHeader header;
  wire::AdministrationHeader administration;

  std::uint64_t mask() const { return administration.components; }
  bool wants_table() const { return header.method == wire::method_get_table; }
  template <typename Record>
  Record record() const {
    static_assert(sizeof(Record) <= wire::administration_data_bytes);
    Record out;
    std::memcpy(&out, packet.mad.data() + wire::administration_data_offset, sizeof out);
    return out;
  }
};

// What searches may still read.
struct Budget {
  std::size_t paths = 0;
  std::size_t records = 0;
};

}  // namespace tulle::management::administration
