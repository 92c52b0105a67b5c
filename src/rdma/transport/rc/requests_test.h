#pragma once

// Request packets of a reliable connection, for tests of the responder.

#include <cstdint>

#include "rdma/transport/host_test.h"

namespace tulle::transport::rc {

// Returns a request packet whose PSN lies so far behind the first one. It asks for an
// acknowledgement if it ends its message.
inline wire::Packet request(wire::Operation operation, std::uint32_t psn_offset) {
  auto out = testing::packet(wire::TransportClass::rc, operation, testing::first_psn + psn_offset);
  out.ack_request = wire::info(out.opcode).ends_message();
  return out;
}
// Returns a request packet that names `bytes` of the host's region from `offset`.
inline wire::Packet remote(const testing::Host& host, wire::Operation operation,
                           std::uint32_t psn_offset, std::uint64_t offset, std::uint32_t bytes) {
  auto out = request(operation, psn_offset);
  out.virtual_address = testing::iova + offset;
  out.rkey = host.region.rkey();
  out.dma_length = bytes;
  return out;
}

}  // namespace tulle::transport::rc
