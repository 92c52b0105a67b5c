#pragma once

// The settings of the scalable reliable datagram in one adapter.
// docs/decisions/009-scalable-reliable-datagram.md says which values the paper gives (Shalev et
// al., "A Cloud-Optimized Transport Protocol for Elastic and Scalable HPC", IEEE Micro 40(6), 2020)
// and which are chosen here.

#include <cstdint>

#include "base/time.h"

namespace tulle::transport::srd {

inline constexpr std::uint32_t paths_max = 256;  // a path's number has 8 bits on the wire
// The numbers that a peer's packets may have from the first missing one on. A power of two.
inline constexpr std::uint32_t window_packets = 2'048;

struct Settings {
  std::uint32_t paths = 64;  // paths in use between two adapters; 1 to paths_max
  // The longest SEND, in bytes. 0 means as much as fits into a packet, as with EFA. WRITEs are cut
  // into packets in any case.
  std::uint32_t send_bytes_max = 0;
  // Adapters that share a GID differ in their queue pair numbers, in the bits above this many.
  unsigned queue_pair_bits = 24;
  std::int64_t line_bits_per_second = 100'000'000'000;
  // Packets in flight to a peer before anything is known of the network in between.
  std::uint32_t initial_packets = 16;
  // The delay that queues may add to the round trip. Zero means as much as the shortest round trip.
  Time target_delay = Time::zero();
  // A packet times out after the longest of recent round trips, a quarter of it, and this margin.
  Time timeout_margin = Time::microseconds(1);
  Time timeout_first = Time::microseconds(500);  // before any round trip was measured
  // A peer is gone if it sends nothing for this long while packets wait for its answer.
  Time give_up = Time::seconds(1);
  // The time between attempts when the receiver was not ready. It doubles each time, up to
  // rnr_longest.
  Time rnr_first = Time::microseconds(10);
  Time rnr_longest = Time::milliseconds(1);
  std::uint64_t seed = 0;  // seed for the random choice of paths
};

}  // namespace tulle::transport::srd
