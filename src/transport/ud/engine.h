#pragma once

// The unreliable datagram (IBTA 9.8.3): one message, one packet; each with an address, a queue pair
// and a Q_Key of its own. The receiver's buffer begins with 40 bytes of GRH.

#include "base/ids.h"
#include "transport/packet_io.h"
#include "transport/send_queue.h"
#include "wire/ip_udp.h"
#include "wire/packet.h"

namespace tulle::transport {
class QueuePair;
}

namespace tulle::transport::ud {

class Engine {
 public:
  void start_sending(const QueuePair& qp);
  void reset() { *this = {}; }

  bool pull_packet(QueuePair& qp, OutgoingPacket& out);
  void handle_request(QueuePair& qp, const wire::Packet& packet, Payload payload,
                      const wire::IpUdp& ip);
  // Whose packet found congestion; and who is to be told.
  void remember_marked(const wire::Packet& packet, const wire::IpUdp& ip);
  void address_marked(OutgoingPacket& out) const;

 private:
  Psn next_psn_;
  verbs::AddressVector path_;  // of the packet that was pulled last: its request is gone by then
  verbs::AddressVector marked_from_;
  QpNumber marked_qp_;
};

}  // namespace tulle::transport::ud
