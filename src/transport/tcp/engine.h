#pragma once

// The transport of queue pairs that are TCP sockets (stream.h): a Stream for each connection.

#include <memory>

#include "transport/engine.h"
#include "transport/tcp/stream.h"
#include "transport/transport.h"

namespace tulle::transport::tcp {

extern const Transport transport;

class Engine final : public transport::Engine {
 public:
  // Returns null unless the queue pair is a connected socket.
  static Stream* stream_of(QueuePair& qp);

  void start_receiving(QueuePair& qp) override;
  bool drained(const QueuePair&) const override { return stream_ == nullptr || stream_->drained(); }
  void reset(QueuePair&) override { stream_.reset(); }
  void send_posted(QueuePair& qp) override { stream_->posted(qp); }
  void receive_posted(QueuePair& qp, const verbs::ReceiveRequest& request) override;
  bool release_receive(QueuePair& qp, std::uint64_t& wr_id) override;

  Agenda handle_segment(Time now, QueuePair& qp, const wire::Tcp& header, Payload payload,
                        const wire::Path& path) override;
  Agenda pull(Time now, QueuePair& qp, OutgoingPacket& out) override;
  void handle_deadline(Time now, QueuePair& qp) override;
  Agenda agenda(const QueuePair& qp) const override;

 private:
  std::unique_ptr<Stream> stream_;  // null until the queue pair is in RTR
};

}  // namespace tulle::transport::tcp
