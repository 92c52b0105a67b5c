#pragma once

// Raw packets: whole Ethernet frames, one a request, as they go to and come from the wire without
// the check sequence. Not IBTA's but Linux's (IB_QPT_RAW_PACKET). A receive work queue is of this
// kind too, one that does not send.

#include <cstdint>

#include "transport/packet_io.h"
#include "wire/ethernet.h"

namespace tulle::transport {
class QueuePair;
}

namespace tulle::transport::raw {

inline constexpr std::uint32_t frame_bytes_min = sizeof(wire::Ethernet);

class Engine {
 public:
  // Fills in the payload of the next frame to send, of `frame_bytes_max` at most; false: there is
  // none now. Its request stays until it was sent. One that cannot be sent completes in error, when
  // those before it have been sent.
  bool pull_frame(QueuePair& qp, std::uint32_t frame_bytes_max, OutgoingPacket& out);
  // Of the frames that were pulled the first `count` have left, and the others are to be pulled
  // again.
  void sent(QueuePair& qp, std::uint32_t count);
  // A frame that is steered here. One that does not fit, or finds no receive request, is dropped.
  void receive(QueuePair& qp, Payload frame);
  void reset() { pulled_ = 0; }

 private:
  std::uint32_t pulled_ = 0;  // requests at the front of the send queue
};

}  // namespace tulle::transport::raw
