#pragma once

// The unreliable connection (IBTA 9.8): SEND and WRITE without acknowledgement. A request is done
// when its last packet has left. The receiver drops a message from which a packet is missing.

#include <cstdint>

#include "base/ids.h"
#include "transport/engine.h"
#include "transport/inbound_message.h"
#include "transport/send_queue.h"
#include "transport/transport.h"

namespace tulle::transport::uc {

extern const Transport transport;

class Engine final : public transport::Engine {
 public:
  void start_receiving(QueuePair& qp) override;
  void start_sending(QueuePair& qp) override;
  bool drained(const QueuePair&) const override { return sent_packets_ == 0; }
  void stop_sending(QueuePair&) override { sent_packets_ = 0; }
  void reset(QueuePair& qp) override;
  bool release_receive(QueuePair& qp, std::uint64_t& wr_id) override;

  Agenda handle_packet(Time now, QueuePair& qp, const wire::Packet& packet, Payload payload,
                       const wire::Path& path) override;
  Agenda pull(Time now, QueuePair& qp, OutgoingPacket& out) override;
  Agenda agenda(const QueuePair& qp) const override;

 private:
  bool pull_packet(QueuePair& qp, OutgoingPacket& out);
  bool execute_local(QueuePair& qp, const SendWqe& wqe);
  void handle_request(QueuePair& qp, const wire::Packet& packet, Payload payload);

  Psn next_psn_;
  Psn expected_;
  std::uint32_t sent_packets_ = 0;  // packets sent of the request at the head of the send queue
  InboundMessage inbound_;
};

}  // namespace tulle::transport::uc
