#pragma once

// The transport of queue pairs that are TCP sockets (stream.h): a Stream for each connection.

#include "rdma/optional/tcp/connection_engine.h"
#include "rdma/optional/tcp/stream.h"
#include "rdma/transport/transport.h"

namespace tulle::transport::tcp {

extern const Transport transport;

class Engine final : public ConnectionEngine<Stream> {
 public:
  // Returns null unless the queue pair is a connected socket.
  static Stream* stream_of(QueuePair& qp) { return connection_of(qp, tcp::transport); }

  void start_receiving(QueuePair& qp) override;
  void send_posted(QueuePair& qp) override { connection_->posted(qp); }
  void receive_posted(QueuePair& qp, const verbs::ReceiveRequest& request) override;
};

}  // namespace tulle::transport::tcp
