#pragma once

// Multicast (IBTA 10.5): packets for a group go to all queue pairs attached to it. Only UD queue
// pairs and multicast GIDs are allowed. The driver makes the port receive the group's packets. An
// attached queue pair is busy.

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "rdma/transport/queue_pair.h"
#include "rdma/verbs/types.h"
#include "rdma/wire/packet.h"
#include "rdma/wire/path.h"

namespace tulle::device {

// IBTA 5.3.2 and 9.6.1.3: all attached queue pairs.
inline constexpr QpNumber multicast_qp{0xFF'FFFF};

class MulticastGroups {
 public:
  // Attaching twice has no effect.
  verbs::VerbsStatus attach(transport::QueuePair& qp, const Gid& group);
  verbs::VerbsStatus detach(transport::QueuePair& qp, const Gid& group);
  void detach_all(const transport::QueuePair& qp);
  bool has(const Gid& group) const { return by_address_.contains(group); }
  bool is_attached(const transport::QueuePair& qp) const;
  // Returns the queue pairs attached to a group, in the order in which they were.
  std::span<transport::QueuePair* const> attached(const Gid& group) const;

  struct Delivery {
    bool has_group = false;             // some queue pair is attached
    std::uint64_t pkey_violations = 0;  // copies for queue pairs of another partition
  };
  // Delivers a packet for a group that has come in by a port.
  Delivery deliver(Time now, const wire::Packet& packet, transport::Payload payload,
                   const wire::Path& path, std::uint8_t port) const;

 private:
  // The groups are ordered, so that all runs deliver in the same order.
  std::map<Gid, std::vector<transport::QueuePair*>> by_address_;
};

}  // namespace tulle::device
