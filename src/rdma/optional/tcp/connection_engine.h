#pragma once

// The engine of a transport over TCP. A connection, made when the queue pair enters RTR, does the
// work; until then the queue pair has nothing to send and can use no segment.

#include <memory>

#include "rdma/transport/engine.h"
#include "rdma/transport/queue_pair.h"
#include "rdma/transport/transport.h"

namespace tulle::transport::tcp {

template <typename ConnectionType>
class ConnectionEngine : public transport::Engine {
 public:
  void start_receiving(QueuePair& qp) override {
    connection_ = std::make_unique<ConnectionType>(qp);
  }
  bool drained(const QueuePair&) const final {
    return connection_ == nullptr || connection_->drained();
  }
  void reset(QueuePair&) final { connection_.reset(); }
  bool release_receive(QueuePair&, std::uint64_t& wr_id) final {
    return connection_ != nullptr && connection_->release_receive(wr_id);
  }

  Agenda handle_segment(Time now, QueuePair& qp, const wire::Tcp& header, Payload payload,
                        const wire::Path& path) final {
    if (connection_ == nullptr) return drop(qp);
    connection_->handle_segment(now, qp, header, payload, wire::is_marked(path));
    return agenda(qp);
  }
  Agenda pull(Time now, QueuePair& qp, OutgoingPacket& out) final {
    return pulled(qp, connection_ != nullptr && connection_->pull_packet(now, qp, out));
  }
  void handle_deadline(Time now, QueuePair& qp) final {
    if (connection_ != nullptr) connection_->handle_deadline(now, qp);
  }
  Agenda agenda(const QueuePair& qp) const final {
    if (connection_ == nullptr) return {};
    return {.answers = connection_->has_answers(),
            .work = connection_->has_work(qp),
            .deadline = connection_->next_deadline(qp)};
  }
  void rebase(Time by) final {
    if (connection_ != nullptr) connection_->rebase(by);
  }

 protected:
  // Returns null unless the queue pair is one of this transport and has been in RTR.
  static ConnectionType* connection_of(QueuePair& qp, const Transport& transport) {
    if (&qp.transport != &transport) return nullptr;
    return static_cast<ConnectionEngine&>(qp.engine()).connection_.get();
  }

  std::unique_ptr<ConnectionType> connection_;  // null until the queue pair is in RTR
};

}  // namespace tulle::transport::tcp
