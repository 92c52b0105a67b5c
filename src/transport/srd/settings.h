#pragma once

// The scalable reliable datagram's settings, of one adapter. What the paper gives (Shalev et al.,
// "A Cloud-Optimized Transport Protocol for Elastic and Scalable HPC", IEEE Micro 40(6), 2020) and
// what is chosen here, docs/decisions/009-scalable-reliable-datagram.md tells apart.

#include <cstdint>

#include "base/time.h"

namespace tulle::transport::srd {

inline constexpr std::uint32_t paths_max = 256;  // what a path's number on the wire has room for
// Numbers that a peer's packets may have beyond the first that is missing: a power of two.
inline constexpr std::uint32_t window_packets = 2'048;

struct Settings {
  std::uint32_t paths = 64;  // at a time, between two adapters; 1 to paths_max
  // The longest SEND, in bytes; 0: what fits into a packet, as EFA has it. WRITEs are cut up
  // anyway.
  std::uint32_t send_bytes_max = 0;
  // Adapters that share a GID differ in their queue pairs' numbers, above so many bits.
  unsigned queue_pair_bits = 24;
  std::int64_t line_bits_per_second = 100'000'000'000;
  // In flight to a peer before anything is known of the way there.
  std::uint32_t initial_packets = 16;
  // What queues on the way may add to the round trip; zero: as much as the
  // shortest round trip.
  Time target_delay = Time::zero();
  // Added to the longest of recent round trips: what is not acknowledged by then is missed.
  Time timeout_margin = Time::microseconds(1);
  Time timeout_first = Time::microseconds(500);  // before any round trip was measured
  // A peer that has said nothing for so long, while something waits for its answer, is gone.
  Time give_up = Time::seconds(1);
  // Between attempts when the receiver was not ready: twice as long each time, up to the second.
  Time rnr_first = Time::microseconds(10);
  Time rnr_longest = Time::milliseconds(1);
  std::uint64_t seed = 0;  // of what is drawn: which paths
};

}  // namespace tulle::transport::srd
