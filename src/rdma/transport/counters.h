#pragma once

#include <cstdint>

namespace tulle::transport {

// Counters of all queue pairs of one adapter. Their names follow the counters that Linux's drivers
// show under hw_counters.
struct Counters {
  std::uint64_t retransmitted_packets = 0;
  std::uint64_t ack_timeouts = 0;
  std::uint64_t sequence_naks_sent = 0;
  std::uint64_t sequence_naks_received = 0;
  std::uint64_t implied_naks = 0;
  std::uint64_t rnr_naks_sent = 0;
  std::uint64_t rnr_naks_received = 0;
  std::uint64_t duplicate_requests = 0;
  std::uint64_t remote_errors_sent = 0;  // NAKs for invalid requests, access and operation
  std::uint64_t remote_errors_received = 0;
  std::uint64_t direct_transfers = 0;  // WRITEs and READs that needed no packets
  std::uint64_t direct_bytes = 0;
  std::uint64_t fast_recoveries = 0;  // TCP: losses found by acknowledgements
  std::uint64_t tail_probes = 0;      // TCP: RFC 8985 7
  // Packets that no queue pair could use: wrong state, key, transport or order.
  std::uint64_t dropped_packets = 0;
  // UD and raw packets: messages without a receive request that is long enough. UC: all messages
  // that were dropped.
  std::uint64_t dropped_messages = 0;
};

}  // namespace tulle::transport
