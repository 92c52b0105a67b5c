#pragma once

#include <cstdint>

namespace tulle::live {

// Counters of the driver and its links, besides those of the adapter.
struct DriverCounters {
  std::uint64_t send_calls = 0;
  std::uint64_t send_delays = 0;     // times a socket was full and datagrams waited
  std::uint64_t send_errors = 0;     // datagrams that the kernel refused
  std::uint64_t receive_calls = 0;   // receive calls that brought datagrams
  std::uint64_t kernel_drops = 0;    // datagrams for which the receiving socket had no room
  std::uint64_t unsealed_drops = 0;  // datagrams that no key of this host had sealed, or repeated
  std::uint64_t queue_pairs_by_memory = 0;  // those whose peer is a process of this host
  std::uint64_t direct_transfers = 0;  // WRITEs and READs that took the direct path on one host
  std::uint64_t direct_bytes = 0;
  // These count for the whole process, whatever device a region belongs to
  // (SharedRegions::Counters).
  std::uint64_t shared_files = 0;
  std::uint64_t shared_bytes = 0;
  std::uint64_t unshared_kind_of_memory = 0;
  std::uint64_t unshared_because_of_devices = 0;
  std::uint64_t unshared_because_of_threads = 0;
  std::uint64_t unshared_registered_before = 0;
  std::uint64_t unshared_for_want_of_room = 0;
  std::uint64_t memory_packets_sent = 0;  // packets that went by memory to processes of the host
  std::uint64_t memory_packets_received = 0;
  std::uint64_t memory_packets_dropped = 0;  // those that were lost on the way, or made no sense
  std::uint64_t memory_delays = 0;           // times a ring was full and a packet waited
  std::uint64_t doorbells = 0;               // times a sleeping process was told of packets
  std::uint64_t faults_dropped = 0;
  std::uint64_t faults_duplicated = 0;
  std::uint64_t faults_corrupted = 0;
  std::uint64_t faults_reordered = 0;
};

}  // namespace tulle::live
