#pragma once

// Reads what follows the common header of a subnet management packet.

#include "management/answer.h"
#include "rdma/wire/smp.h"

namespace tulle::management::subnet {

inline wire::SubnetHeader subnet_header_of(Request packet) {
  wire::SubnetHeader header;
  std::memcpy(&header, packet.data() + wire::subnet_header_offset, sizeof header);
  return header;
}

}  // namespace tulle::management::subnet
