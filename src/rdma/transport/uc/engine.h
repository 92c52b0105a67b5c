#pragma once

// The unreliable connection (IBTA 9.8): SEND and WRITE without acknowledgement. A request is done
// when its last packet has left. The receiver drops a message from which a packet is missing.

#include <cstdint>

#include "base/ids.h"
#include "rdma/transport/inbound_message.h"
#include "rdma/transport/send_queue.h"
#include "rdma/transport/transport.h"
#include "rdma/transport/unreliable_engine.h"

namespace tulle::transport::uc {

extern const Transport transport;

class Engine final : public UnreliableEngine {
 public:
  void start_receiving(QueuePair& qp) override;
  bool drained(const QueuePair&) const override { return sent_packets_ == 0; }
  void stop_sending(QueuePair&) override { sent_packets_ = 0; }
  void reset(QueuePair& qp) override;
  bool release_receive(QueuePair&, std::uint64_t& wr_id) override {
    return inbound_.release_receive(wr_id);
  }

  Agenda handle_packet(Time now, QueuePair& qp, const wire::Packet& packet, Payload payload,
                       const wire::Path& path) override;

 private:
  bool pull_packet(QueuePair& qp, OutgoingPacket& out) override;
  bool execute_local(QueuePair& qp, const SendWqe& wqe);
  void handle_request(QueuePair& qp, const wire::Packet& packet, Payload payload);

  Psn expected_;
  std::uint32_t sent_packets_ = 0;  // packets sent of the request at the head of the send queue
  InboundMessage inbound_;
};

}  // namespace tulle::transport::uc
