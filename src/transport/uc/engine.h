#pragma once

// The unreliable connection (IBTA 9.8): SEND and WRITE without acknowledgement. A request is done
// when its last packet has left; a message with a hole is dropped whole.

#include <cstdint>

#include "base/ids.h"
#include "transport/inbound_message.h"
#include "transport/packet_io.h"
#include "transport/send_queue.h"
#include "wire/packet.h"

namespace tulle::transport {
class QueuePair;
}

namespace tulle::transport::uc {

class Engine {
 public:
  void start_receiving(const QueuePair& qp);
  void start_sending(const QueuePair& qp);
  void reset() { *this = {}; }
  void reset_sending() { sent_packets_ = 0; }

  bool pull_packet(QueuePair& qp, OutgoingPacket& out);
  void handle_request(QueuePair& qp, const wire::Packet& packet, Payload payload);
  bool drained() const { return sent_packets_ == 0; }
  InboundMessage& inbound() { return inbound_; }

 private:
  bool execute_local(QueuePair& qp, const SendWqe& wqe);

  Psn next_psn_;
  Psn expected_;
  std::uint32_t sent_packets_ = 0;  // of the request at the head
  InboundMessage inbound_;
};

}  // namespace tulle::transport::uc
