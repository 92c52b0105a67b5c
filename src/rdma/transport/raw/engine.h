#pragma once

// Raw packets: whole Ethernet frames without their check sequence, one for each request. Linux
// defines them (IB_QPT_RAW_PACKET), not IBTA. A receive work queue uses the same engine and does
// not send.

#include <cstdint>

#include "rdma/transport/engine.h"
#include "rdma/transport/transport.h"
#include "rdma/wire/ethernet.h"

namespace tulle::transport::raw {

inline constexpr std::uint32_t frame_bytes_min = sizeof(wire::Ethernet);

extern const Transport transport;
extern const Transport receive_transport;

// Frames do not pass through handle_packet and pull. The driver exchanges them with the adapter's
// RawPackets, which calls the functions of this class.
class Engine final : public transport::Engine {
 public:
  static Engine& of(QueuePair& qp);

  // Fills in the payload of the next frame to send, of at most `frame_bytes_max`. Returns false if
  // there is none now. The request stays in the queue until sent() says that the frame has left. A
  // frame that cannot be sent completes in error, after those before it have been sent.
  bool pull_frame(QueuePair& qp, std::uint32_t frame_bytes_max, OutgoingPacket& out);
  // The first `count` of the frames that were pulled have left; the others are pulled again.
  void sent(QueuePair& qp, std::uint32_t count);
  // A flow rule steered a frame here. A frame that does not fit, or finds no receive request, is
  // dropped.
  void receive(QueuePair& qp, Payload frame);

  void reset(QueuePair&) override { pulled_ = 0; }
  Agenda pull(Time, QueuePair& qp, OutgoingPacket&) override { return agenda(qp); }
  Agenda agenda(const QueuePair& qp) const override;

 private:
  std::uint32_t pulled_ = 0;  // requests at the front of the send queue whose frames were pulled
};

}  // namespace tulle::transport::raw
