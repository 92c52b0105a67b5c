#pragma once

// The iWARP transport: RDMAP, DDP and MPA (protocol.h) on a TCP connection of the adapter's own
// (connection.h).

#include "rdma/optional/iwarp/connection.h"
#include "rdma/optional/tcp/connection_engine.h"
#include "rdma/transport/transport.h"

namespace tulle::transport::iwarp {

extern const Transport transport;

class Engine final : public tcp::ConnectionEngine<Connection> {
 public:
  // Returns null unless the queue pair is an iWARP one that has been in RTR.
  static Connection* connection_of(QueuePair& qp) {
    return ConnectionEngine::connection_of(qp, iwarp::transport);
  }

  void start_sending(QueuePair& qp) override { connection_->protocol().start_sending(qp); }
  void stop_sending(QueuePair& qp) override;
  void abort(QueuePair& qp) override;
};

}  // namespace tulle::transport::iwarp
