#pragma once

// The queue pairs of connected streams, by the peer's address and both ports.

#include <cstdint>
#include <unordered_map>

#include "base/ids.h"
#include "rdma/transport/queue_pair.h"
#include "rdma/wire/tcp.h"

namespace tulle::device {

class StreamTable {
 public:
  // Returns the queue pair that gets a segment from that address, or null if there is none.
  transport::QueuePair* find(const wire::Tcp& header, const Gid& source) const;
  // Connects a queue pair with a peer. Returns false if another connection has the same ports.
  [[nodiscard]] bool connect(transport::QueuePair& qp, QpNumber peer, const Gid& address);
  // Takes that back.
  void undo(const transport::QueuePair& qp, QpNumber peer, const Gid& address);
  // The queue pair ends its connection, if it has one.
  void disconnect(const transport::QueuePair& qp);

 private:
  std::unordered_map<std::uint64_t, transport::QueuePair*> by_key_;
};

}  // namespace tulle::device
