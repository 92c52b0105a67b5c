#pragma once

// A transport as the rest of the adapter sees it: one row of properties, and how its queue pairs
// are made. A transport's folder defines its row in engine.h; transports.cc lists the rows, one
// line each. Code outside a transport's folder asks the row and never compares queue pair types.

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "rdma/verbs/qp_state.h"
#include "rdma/verbs/types.h"

namespace tulle::transport {

class QueuePair;
struct Environment;
struct QueuePairInit;

// Where a queue pair takes its receive requests from.
enum class Receives : std::uint8_t {
  from_any_queue,    // its own receive queue or a shared one
  from_own_queue,    // its own receive queue alone
  from_named_queue,  // XRC: the shared receive queue that each arriving request names, whose
                     // protection domain and completion queue replace the queue pair's
  nothing,
};

// An adapter finds the queue pair that a packet is for in one of these ways.
enum class FoundBy : std::uint8_t {
  qp_number,   // BTH's destination
  tcp_ports,   // the peer's address and both ports (Transport::ports)
  flow_rules,  // the application's (rdma/device/raw_packets.h)
};

// The part that decides when a queue pair sends next.
enum class ScheduledBy : std::uint8_t {
  adapter,  // queue pairs take turns
  peers,    // SRD: requests wait in the contexts of their peers, and those contexts take turns
  frames,   // raw packets: the driver pulls whole frames
};

// The ports of a connection over TCP.
struct StreamPorts {
  std::uint16_t local = 0;
  std::uint16_t peer = 0;
};

struct Transport {
  verbs::QpType type;
  std::string_view name;  // the field's, in capitals
  verbs::Ladder ladder;
  verbs::SendOperations sends = {};  // IBTA table 76; none: the queue pair has no send queue
  // The status that posting any other operation returns.
  verbs::VerbsStatus refusal = verbs::VerbsStatus::invalid_argument;
  Receives receives = Receives::from_any_queue;
  FoundBy found_by = FoundBy::qp_number;
  // The ports between two queue pairs that are found by them.
  StreamPorts (*ports)(QpNumber local, QpNumber peer) = nullptr;
  ScheduledBy scheduled_by = ScheduledBy::adapter;
  // Each request names its destination by an address handle; else the queue pair has one peer.
  bool is_datagram = false;
  // A datagram transport finds a handle of another domain when it processes the request (IBTA
  // 11.6.2), and not when the request is posted.
  bool finds_foreign_handles_late = false;
  // It may be attached to multicast groups (IBTA 10.5).
  bool takes_multicast = false;
  // Shared receive queues of tag matching may be used.
  bool matches_tags = false;
  // Peers of the same host may move the data without packets (direct_path.h).
  bool has_direct_path = false;
  // A packet that was marked in the network is answered with a notification to its sender.
  bool notifies_congestion = false;
  // Requests complete in any order.
  bool completes_in_any_order = false;

  std::unique_ptr<QueuePair> (*make)(const Transport&, QpNumber, const QueuePairInit&,
                                     Environment&) = nullptr;

  // True if a queue pair may use any port of its adapter. Queue pairs that something else than the
  // adapter schedules use the first.
  constexpr bool has_any_port() const { return scheduled_by == ScheduledBy::adapter; }
  // True if a queue pair may have its own receive queue.
  constexpr bool has_receive_queue() const {
    return receives == Receives::from_any_queue || receives == Receives::from_own_queue;
  }
};

// The transports of an adapter, by queue pair type.
class TransportTable {
 public:
  // IBTA's transports and raw packets. rdma/optional/transports.h has more.
  static const TransportTable& standard();

  TransportTable(std::initializer_list<const Transport*> rows);
  // The row must outlive the table, and its type must be new to it.
  void add(const Transport& row);
  // Returns null if no transport has this type.
  const Transport* find(verbs::QpType type) const;
  std::span<const Transport* const> rows() const { return rows_; }

 private:
  std::vector<const Transport*> rows_;
};

}  // namespace tulle::transport
