#pragma once

// The performance management agent of a port (IBTA 16.1): what `perfquery` asks. It counts nothing
// itself; who calls says what has been counted.

#include <cstdint>

#include "management/answer.h"

namespace tulle::management::performance {

// Of one port, monotonic.
struct Counters {
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t packets_sent = 0;
  std::uint64_t packets_received = 0;
  std::uint64_t receive_errors = 0;     // packets with an error in them
  std::uint64_t transmit_discards = 0;  // packets that the port was to send and did not
};

// Whether the agent has anything to say without counters; if not, `answer` may be given none.
bool needs_counters(Request request);

// False: this is none that is answered. It is of class 0x04.
[[nodiscard]] bool answer(Request request, const Counters& counters, Answer answer);

}  // namespace tulle::management::performance
