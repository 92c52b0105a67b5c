#pragma once

// The unreliable datagram (IBTA 9.8.3). Each message is one packet, and each request names a
// destination address, queue pair and Q_Key. The receiver's buffer begins with 40 bytes of GRH.

#include "base/ids.h"
#include "rdma/transport/transport.h"
#include "rdma/transport/unreliable_engine.h"

namespace tulle::transport::ud {

extern const Transport transport;

class Engine final : public UnreliableEngine {
 public:
  void reset(QueuePair& qp) override;

  Agenda handle_packet(Time now, QueuePair& qp, const wire::Packet& packet, Payload payload,
                       const wire::Path& path) override;
  bool handle_mark(const wire::Packet& packet, const wire::Path& path) override;
  void address_notification(OutgoingPacket& out) const override;

 private:
  bool pull_packet(QueuePair& qp, OutgoingPacket& out) override;
  void handle_send(QueuePair& qp, const wire::Packet& packet, Payload payload,
                   const wire::Path& path);

  // Path of the packet that was pulled last. Its request has left the send queue by then.
  verbs::AddressVector path_;
  // The sender of the latest marked packet.
  verbs::AddressVector marked_from_;
  QpNumber marked_qp_;
};

}  // namespace tulle::transport::ud
