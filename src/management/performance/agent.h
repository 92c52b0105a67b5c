#pragma once

// The performance management agent of a port (IBTA 16.1), which `perfquery` asks. It counts nothing
// itself; the caller supplies the counters.

#include <cstdint>
#include <span>

#include "management/answer.h"

namespace tulle::management::performance {

// Monotonic counters of one port.
struct Counters {
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t packets_sent = 0;
  std::uint64_t packets_received = 0;
  std::uint64_t receive_errors = 0;     // packets with an error in them
  std::uint64_t transmit_discards = 0;  // packets that the port should have sent and did not
  std::uint64_t link_downed = 0;        // times that the port has lost its link
};

// Returns true if the answer needs counters. Otherwise answer() may be given empty ones.
bool needs_counters(Request request);

// Writes the answer of a node with one port, whose counters are those of all programs of the host
// and cannot be set. Returns false if the request gets none. The request must be of class 0x04.
[[nodiscard]] bool answer(Request request, const Counters& counters, Answer answer);
// Does the same for a node with its own counters, by port from 0 on. Port 0 is a switch's
// management port. A Set takes back all counters of the ports that it selects.
[[nodiscard]] bool answer_by_port(Request request, std::span<Counters> by_port, Answer answer);

}  // namespace tulle::management::performance
