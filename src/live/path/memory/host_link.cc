#include "live/path/memory/host_link.h"

namespace tulle::live {

void HostLink::count(DriverCounters& counters) {
  counters.queue_pairs_by_memory = path_->queue_pairs();
  counters.direct_transfers = path_->moved().transfers;
  counters.direct_bytes = path_->moved().bytes;
  const HostPackets::Counters& packets = packets_.counters();
  counters.memory_packets_sent = packets.sent;
  counters.memory_packets_received = packets.received;
  counters.memory_packets_dropped = packets.dropped + packets.refused + packets.recalled;
  counters.memory_delays = packets.delayed;
  counters.doorbells = packets.doorbells;
}

}  // namespace tulle::live
