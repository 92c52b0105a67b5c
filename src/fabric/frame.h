#pragma once

// A frame on its way through a fabric. What a switch acts on stands in front; the transport's
// headers are carried as the bytes that they are, and a payload only as its length (its bytes,
// where a simulation carries them, lie elsewhere).

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/check.h"
#include "base/prefetch.h"
#include "wire/ip_udp.h"
#include "wire/packet.h"

namespace tulle::fabric {

// What a frame's header bytes are.
enum class FrameHeaders : std::uint8_t { bth, tcp };

using FrameRef = std::uint32_t;  // a frame's place in its pool
inline constexpr FrameRef no_frame = 0xFFFF'FFFF;

inline constexpr std::uint32_t classes = 8;  // PFC priorities (IEEE 802.1Q), or virtual lanes

// One cache line: a frame is touched by every switch on its way,
// and no two by one of them in a row.
struct alignas(64) Frame {
  static constexpr std::size_t header_bytes_max = 40;  // BTH and AtomicETH, no XRC yet; TCP and
                                                       // two blocks of SACK

  FrameRef next = no_frame;       // behind it in a queue
  std::uint32_t source : 24 = 0;  // hosts: no more than 10.0.0.0/8 has addresses
  std::uint32_t path : 7 = 0;     // InfiniBand: which of the destination's 2^LMC LIDs
  std::uint32_t damaged : 1 = 0;  // by bit errors on the link that it is on
  std::uint32_t destination : 24 = 0;
  std::uint32_t via : 8 = 0;       // a dragonfly's group that it goes to first, from 1; 0: none
  std::uint16_t buffer_bytes = 0;  // what takes room in a switch
  std::uint16_t payload_bytes = 0;
  std::uint16_t source_port = 0;       // UDP
  std::uint16_t in_port = 0;           // by which it came into the switch that holds it
  std::uint8_t gap_bytes : 5 = 0;      // what takes time on a link beside buffer_bytes
  std::uint8_t in_class : 3 = 0;       // that it had when it came into the switch that holds it
  std::uint8_t service_class : 4 = 0;  // on a link: its priority, or virtual lane
  std::uint8_t service_level : 4 = 0;  // InfiniBand's, end to end
  std::uint8_t traffic_class = 0;      // DSCP << 2 | ECN
  std::uint8_t header_bytes : 6 = 0;
  std::uint8_t headers : 2 = 0;  // FrameHeaders
  std::array<std::byte, header_bytes_max> header;

  bool is_tcp() const { return headers == static_cast<std::uint8_t>(FrameHeaders::tcp); }
  std::uint32_t link_bytes() const { return std::uint32_t{buffer_bytes} + gap_bytes; }
  // Of what equal-cost paths are chosen by: the addresses and ports of its flow.
  std::uint32_t flow_hash() const {
    std::uint64_t h = std::uint64_t{source} << 32 | destination;
    h = (h ^ std::uint64_t{source_port} << 24) * 0x9E37'79B9'7F4A'7C15;
    return static_cast<std::uint32_t>(h >> 32);
  }
};
static_assert(sizeof(Frame) == 64);

using wire::ecn_capable;
using wire::ecn_congestion_experienced;
using wire::ecn_mask;

// Frames in use and free ones, in blocks that never move: memory is taken only when more frames are
// in the fabric than ever before.
class FramePool {
 public:
  Frame& operator[](FrameRef ref) { return blocks_[ref / block_frames][ref % block_frames]; }

  const Frame& operator[](FrameRef ref) const {
    return blocks_[ref / block_frames][ref % block_frames];
  }

  void prefetch(FrameRef ref) { tulle::prefetch(&(*this)[ref]); }

  FrameRef take() {
    if (free_ == no_frame) grow();
    const FrameRef ref = free_;
    free_ = (*this)[ref].next;
    ++in_use_;
    return ref;
  }
  void give(FrameRef ref) {
    (*this)[ref].next = free_;
    free_ = ref;
    --in_use_;
  }
  std::uint32_t in_use() const { return in_use_; }
  std::uint32_t capacity() const {
    return static_cast<std::uint32_t>(blocks_.size()) * block_frames;
  }

 private:
  static constexpr std::uint32_t block_frames = 4'096;

  void grow() {
    const std::uint32_t first = capacity();
    blocks_.push_back(std::make_unique<Frame[]>(block_frames));
    for (std::uint32_t i = block_frames; i-- > 0;) {
      blocks_.back()[i].next = free_;
      free_ = first + i;
    }
  }

  std::vector<std::unique_ptr<Frame[]>> blocks_;
  FrameRef free_ = no_frame;
  std::uint32_t in_use_ = 0;
};

}  // namespace tulle::fabric
