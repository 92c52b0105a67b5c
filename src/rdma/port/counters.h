#pragma once

// The counters of a port since its start. They are monotonic.

#include <cstdint>

namespace tulle::port {

struct Counters {
  std::uint64_t frames = 0;             // sent
  std::uint64_t bytes = 0;              // sent, with all bytes that take time on the link
  std::uint32_t queue_bytes_max = 0;    // longest queue of one class waiting to be sent
  std::uint32_t ingress_bytes_max = 0;  // most bytes of one class that came in and had not left
  std::uint64_t marked = 0;             // frames that no switch had marked before
  std::uint64_t dropped = 0;            // frames without room, on their way to this port
  std::uint64_t pauses = 0;             // stop messages received
  std::int64_t paused_ps = 0;           // time during which some class was stopped
  std::uint64_t damaged = 0;            // frames sent that a bit error destroyed
  std::uint64_t watchdog_trips = 0;
  std::uint64_t watchdog_dropped = 0;  // frames
  std::uint64_t credit_stalls = 0;     // times that all waiting frames lacked credits
  std::uint64_t pkey_dropped_in = 0;   // frames of a partition that may not enter here
  std::uint64_t pkey_dropped_out = 0;  // frames of a partition that may not leave here
  // Frames that were at the head of their queue too long, or arrived while their lane discarded
  // everything.
  std::uint64_t discarded = 0;
  std::uint64_t unmapped = 0;  // frames dropped on their way to this port: no lane for their level
  // Frames lost to a fault: those that waited for or were sent to a link that was down, those that
  // were on the link when it went down, and those that came in here (by a switch's port) and had no
  // route left.
  std::uint64_t lost = 0;
  std::uint64_t lost_bytes = 0;  // bytes of the lost frames, as they take room
  std::uint64_t unrouted = 0;    // lost frames that had no route left
};

}  // namespace tulle::port
