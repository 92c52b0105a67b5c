#pragma once

// The sending half that UC and UD share (IBTA 9.8). A request is done when its last packet has
// left.

#include "base/ids.h"
#include "rdma/transport/engine.h"

namespace tulle::transport {

class UnreliableEngine : public Engine {
 public:
  void start_sending(QueuePair& qp) final;
  Agenda pull(Time now, QueuePair& qp, OutgoingPacket& out) final;
  Agenda agenda(const QueuePair& qp) const final;

 protected:
  // Fills in the next packet. Returns false if the send queue has none that may be sent now, or if
  // its request has failed.
  virtual bool pull_packet(QueuePair& qp, OutgoingPacket& out) = 0;

  Psn next_psn_;
};

}  // namespace tulle::transport
