#pragma once

// Where congestion begins, on InfiniBand (IBTA annex A10): a lane of a port whose queue is longer
// than a threshold is congested, and marks what it sends (FECN). But on credits a queue grows just
// as well where the next switch takes nothing: such a port is a victim of congestion, not its root,
// and what it sends is to blame for nothing. The annex tells the two by whether the port has
// credits; ports of the victim mask mark all the same, which is meant for those that an adapter
// holds back, as adapters mark nothing.

#include <cstdint>

#include "base/random.h"

namespace tulle::fabric {

// What a congestion control manager writes into a switch (SwitchCongestionSetting, A10.4.3.6).
struct CongestionSettings {
  static constexpr std::uint8_t threshold_max = 15;
  enum class VictimMask : std::uint8_t { none, hosts, all };

  bool enabled = false;
  std::uint8_t threshold = 15;       // 0: marks nothing, 1: late, 15: early
  std::uint16_t marking_rate = 10;   // the mean number of packets between two that are marked
  std::uint32_t packet_bytes = 512;  // shorter ones are not marked
  VictimMask victim_mask = VictimMask::hosts;

  // The threshold as a queue's length. The annex has it fall evenly from 1 to 15 and leaves bytes
  // to the switch; here it is so many sixteenths of a lane's buffer.
  std::uint32_t queue_bytes(std::uint32_t lane_buffer_bytes) const {
    return lane_buffer_bytes / 16 * (16u - threshold);
  }
};

// One lane of a port, as it sends.
class LaneCongestion {
 public:
  // Before a frame leaves behind which, with it, `queue_bytes` wait: whether it is to be marked.
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
  // It has left.
  void sent(std::uint32_t bytes) {
    sent_since_ = sent_since_ > UINT32_MAX - bytes ? UINT32_MAX : sent_since_ + bytes;
  }
  // A frame waits and there are no credits for it.
  void lacks_credits() { sent_since_ = 0; }

  // Credits come in portions, and with each a victim too has some for a moment. It is one until it
  // has sent as much in a row as its neighbour's lane holds: then something leaves that lane as
  // fast.
  bool is_victim(std::uint32_t lane_buffer_bytes) const { return sent_since_ < lane_buffer_bytes; }

 private:
  std::uint32_t sent_since_ = UINT32_MAX;  // bytes, since it lacked credits
};

}  // namespace tulle::fabric
