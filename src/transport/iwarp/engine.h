#pragma once

// The iWARP transport: RDMAP, DDP and MPA (protocol.h) on a TCP connection of the adapter's own
// (connection.h).

#include <memory>

#include "transport/engine.h"
#include "transport/iwarp/connection.h"
#include "transport/transport.h"

namespace tulle::transport::iwarp {

extern const Transport transport;

class Engine final : public transport::Engine {
 public:
  // Returns null unless the queue pair is an iWARP one that has been in RTR.
  static Connection* connection_of(QueuePair& qp);

  void start_receiving(QueuePair& qp) override;
  void start_sending(QueuePair& qp) override { connection_->protocol().start_sending(qp); }
  bool drained(const QueuePair& qp) const override;
  void stop_sending(QueuePair& qp) override;
  void abort(QueuePair& qp) override;
  void reset(QueuePair&) override { connection_.reset(); }
  bool release_receive(QueuePair& qp, std::uint64_t& wr_id) override;

  Agenda handle_segment(Time now, QueuePair& qp, const wire::Tcp& header, Payload payload,
                        const wire::Path& path) override;
  Agenda pull(Time now, QueuePair& qp, OutgoingPacket& out) override;
  void handle_deadline(Time now, QueuePair& qp) override;
  Agenda agenda(const QueuePair& qp) const override;

 private:
  std::unique_ptr<Connection> connection_;  // null until the queue pair is in RTR
};

}  // namespace tulle::transport::iwarp
