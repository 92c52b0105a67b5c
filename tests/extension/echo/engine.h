#pragma once

// A toy transport, added from outside src/: an unreliable echo. A SEND goes to the peer as one
// packet. The peer sends the payload back, where it completes a receive request of the sender.
// Nothing is sent again. The packets are UC's SEND Only, and SEND Only with Immediate for the echo.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "rdma/transport/engine.h"
#include "rdma/transport/transport.h"

namespace tulle::echo {

extern const transport::Transport transport;

class Engine final : public transport::Engine {
 public:
  void reset(transport::QueuePair&) override { echoes_.clear(); }
  transport::Agenda handle_packet(Time now, transport::QueuePair& qp, const wire::Packet& packet,
                                  transport::Payload payload, const wire::Path& path) override;
  transport::Agenda pull(Time now, transport::QueuePair& qp,
                         transport::OutgoingPacket& out) override;
  transport::Agenda agenda(const transport::QueuePair& qp) const override;

 private:
  using Bytes = std::vector<std::byte>;

  bool pull_echo(const transport::QueuePair& qp, transport::OutgoingPacket& out);
  bool pull_request(transport::QueuePair& qp, transport::OutgoingPacket& out);
  void take_echo(transport::QueuePair& qp, transport::Payload payload);

  std::deque<Bytes> echoes_;  // to be sent
  Bytes sending_;             // of the echo that was pulled last
};

}  // namespace tulle::echo
