#pragma once

// Counts the packets of a link at its ports. The counters of data have words of four bytes, from
// the LRH to the VCRC (IBTA 16.1.3.5). They count in bytes here.

#include <cstdint>

#include "management/performance/agent.h"
#include "rdma/port/frame.h"
#include "rdma/wire/packet.h"
#include "rdma/wire/vcrc.h"

namespace tulle::fabric {

inline std::uint64_t link_bytes_of(const port::Frame& frame) {
  return frame.payload_bytes + wire::icrc_bytes + wire::vcrc_bytes;
}

inline void count_sent(management::performance::Counters& counters, const port::Frame& frame) {
  ++counters.packets_sent;
  counters.bytes_sent += link_bytes_of(frame);
}

inline void count_received(management::performance::Counters& counters, const port::Frame& frame) {
  ++counters.packets_received;
  counters.bytes_received += link_bytes_of(frame);
}

}  // namespace tulle::fabric
