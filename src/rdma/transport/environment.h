#pragma once

// The queue pairs of one adapter share an environment.

#include <array>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "base/growing_ring.h"
#include "base/id_map.h"
#include "base/ids.h"
#include "rdma/transport/congestion/control.h"
#include "rdma/transport/congestion/infiniband.h"
#include "rdma/transport/congestion/settings.h"
#include "rdma/transport/counters.h"
#include "rdma/transport/direct_path.h"
#include "rdma/transport/recovery.h"
#include "rdma/transport/shared_peers.h"
#include "rdma/transport/srd_settings.h"
#include "rdma/transport/tcp_settings.h"
#include "rdma/transport/transport.h"
#include "rdma/transport/withheld.h"
#include "rdma/verbs/completion_queue.h"
#include "rdma/verbs/memory.h"
#include "rdma/verbs/receive_queue.h"

namespace tulle::transport {

// An asynchronous event of a queue pair, or of a queue that it uses.
struct AsyncEvent {
  verbs::EventType type{};
  QueuePair* qp = nullptr;
  verbs::CompletionQueue* cq = nullptr;
  verbs::SharedReceiveQueue* srq = nullptr;
};

// The queue pairs of one port share this.
struct LocalPort {
  std::vector<Pkey> pkeys = {default_pkey};  // partition keys, by index
  std::span<const Gid> gids;                 // by index
  unsigned lmc = 0;  // InfiniBand: LMC of the port, and of all ports of its subnet
};

struct Environment {
  verbs::KeyTable keys;
  Counters counters;
  GrowingRing<AsyncEvent> events;  // rare: not on the packet path
  congestion::Settings congestion;
  RecoverySettings recovery;
  std::uint64_t completions = 0;       // pushed to any completion queue
  DirectPath* direct = nullptr;        // null: the driver has none
  std::unique_ptr<Withheld> withheld;  // null: payload appears as it arrives
  // Bytes that the link counts for a packet besides its headers from BTH on and its payload: the
  // headers before BTH, the check sequences and the gap to the next packet.
  std::uint32_t link_overhead_bytes = 0;

  // The packets of a reliable connection touch none of the members below.
  congestion::EndpointLimits endpoint_limits;
  // InfiniBand's congestion control by service level; null: the flows are queue pairs.
  std::unique_ptr<std::array<congestion::Injection, 16>> injections;
  const tcp::Settings* tcp = &tcp::default_settings;
  bool iwarp_crc = true;  // RFC 5044 4.4: agreed upon when the connection was set up
  // True if sockets' writes and reads wait until the driver calls Stream::write and read. The ring
  // holds the sockets that wait.
  bool sockets_wait = false;
  struct WaitingSocket {
    QpNumber qp;
    bool asleep = false;  // its application sleeps until then
  };
  GrowingRing<WaitingSocket> waiting_sockets;
  std::vector<LocalPort> ports;  // by number less one
  IdMap<verbs::SharedReceiveQueue> xrc_srqs;
  srd::Settings srd_settings;
  std::unique_ptr<SharedPeers> peers;  // made with the first queue pair that they schedule

  explicit Environment(const RandomSource& keys, std::size_t ports = 1);
  ~Environment();

  // An event that there is no memory for is lost.
  void raise(const AsyncEvent& event) {
    try {
      events.push(event);
    } catch (const std::bad_alloc&) {
    }
  }

  LocalPort& port(std::uint8_t number) { return ports[number - 1u]; }
  // Rebases what the queue pairs share (base/time.h).
  void rebase(Time by);
};

}  // namespace tulle::transport
