#pragma once

// Detects where congestion begins on InfiniBand (IBTA annex A10). A lane of a port whose queue is
// longer than a threshold is congested, and marks the packets that it sends (FECN). Under credit
// flow control, however, a queue also grows where the next switch accepts nothing. Such a port is a
// victim of congestion and not its root, and the flows through it are not to blame. The annex tells
// the two apart by whether the port has credits. Ports in the victim mask mark packets even as
// victims. This is meant for ports that an adapter holds back, because adapters mark nothing.

#include <cstdint>

#include "base/random.h"

namespace tulle::port {

// Settings that a congestion control manager writes into a switch (SwitchCongestionSetting,
// A10.4.3.6).
struct CongestionSettings {
  static constexpr std::uint8_t threshold_max = 15;
  enum class VictimMask : std::uint8_t { none, hosts, all };

  bool enabled = false;
  std::uint8_t threshold = 15;       // 0: never mark, 1: mark late, 15: mark early
  std::uint16_t marking_rate = 10;   // mean number of packets between two marked ones
  std::uint32_t packet_bytes = 512;  // shorter packets are not marked
  VictimMask victim_mask = VictimMask::hosts;

  // Returns the threshold as a queue length. The annex lets it fall evenly from 1 to 15 and leaves
  // the number of bytes to the switch. Here it is 16 - threshold sixteenths of a lane's buffer.
  std::uint32_t queue_bytes(std::uint32_t lane_buffer_bytes) const {
    return lane_buffer_bytes / 16 * (16u - threshold);
  }
};

// The sending side of one lane of a port.
class LaneCongestion {
 public:
  // Returns true if a frame that is about to leave must be marked. `queue_bytes` is the length of
  // the queue including that frame.
  bool marks(const CongestionSettings& settings, std::uint32_t lane_buffer_bytes,
             bool is_in_victim_mask, std::uint32_t queue_bytes, std::uint32_t frame_bytes,
             Random& random) const {
    if (settings.threshold == 0 || queue_bytes <= settings.queue_bytes(lane_buffer_bytes)) {
      return false;
    }
    if (frame_bytes < settings.packet_bytes) return false;
    if (!is_in_victim_mask && is_victim(lane_buffer_bytes)) return false;
    return random.below(std::uint64_t{settings.marking_rate} + 1) == 0;
  }
  // Records that the frame has left.
  void sent(std::uint32_t bytes) {
    sent_since_ = sent_since_ > UINT32_MAX - bytes ? UINT32_MAX : sent_since_ + bytes;
  }
  // Records that a frame waits for credits.
  void lacks_credits() { sent_since_ = 0; }

  // Returns true if the lane is a victim of congestion. Credits come in portions, and each portion
  // gives even a victim some credits for a moment. A lane therefore counts as a victim until it has
  // sent, without lacking credits, as many bytes as its neighbour's lane buffer holds. By then,
  // packets leave that buffer as fast as they enter it.
  bool is_victim(std::uint32_t lane_buffer_bytes) const { return sent_since_ < lane_buffer_bytes; }

 private:
  std::uint32_t sent_since_ = UINT32_MAX;  // bytes sent since the lane last lacked credits
};

}  // namespace tulle::port
