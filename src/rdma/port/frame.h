#pragma once

// A frame on its way through a fabric. The fields that a switch acts on come first. The transport's
// headers are carried as bytes. A payload is carried only as its length; if a simulation has its
// bytes, they are stored elsewhere.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/check.h"
#include "base/prefetch.h"
#include "rdma/wire/ip_udp.h"
#include "rdma/wire/packet.h"

namespace tulle::port {

// The format of a frame's header bytes.
enum class FrameHeaders : std::uint8_t { bth, tcp };

using FrameRef = std::uint32_t;  // index of a frame in its pool
inline constexpr FrameRef no_frame = 0xFFFF'FFFF;

inline constexpr std::uint32_t classes = 8;  // PFC priorities (IEEE 802.1Q), or virtual lanes

// Returns the hash of a flow's addresses and ports by which equal-cost paths are chosen. Source and
// destination are hosts.
constexpr std::uint32_t flow_hash(std::uint32_t source, std::uint32_t destination,
                                  std::uint16_t source_port) {
  std::uint64_t h = std::uint64_t{source} << 32 | destination;
  h = (h ^ std::uint64_t{source_port} << 24) * 0x9E37'79B9'7F4A'7C15;
  return static_cast<std::uint32_t>(h >> 32);
}

// A frame occupies one cache line. Every switch on its path touches it, and no switch touches two
// frames in a row.
struct alignas(64) Frame {
  // Room for BTH and AtomicETH (there is no XRC header yet), or TCP and two blocks of SACK.
  static constexpr std::size_t header_bytes_max = 40;

  FrameRef next = no_frame;       // the frame behind this one in a queue
  std::uint32_t source : 24 = 0;  // a host; 24 bits, as 10.0.0.0/8 has no more addresses
  std::uint32_t path : 7 = 0;     // InfiniBand: selects one of the destination's 2^LMC LIDs
  std::uint32_t damaged : 1 = 0;  // set by bit errors on the current link
  std::uint32_t destination : 24 = 0;
  std::uint32_t via : 8 = 0;       // dragonfly: number of the group to visit first, from 1; 0: none
  std::uint16_t buffer_bytes = 0;  // bytes that the frame occupies in a switch
  std::uint16_t payload_bytes = 0;
  std::uint16_t source_port = 0;       // UDP
  std::uint16_t in_port = 0;           // port by which the frame entered the current switch
  std::uint8_t gap_bytes : 5 = 0;      // bytes that take time on a link in addition to buffer_bytes
  std::uint8_t in_class : 3 = 0;       // class of the frame when it entered the current switch
  std::uint8_t service_class : 4 = 0;  // on a link: its priority or virtual lane
  std::uint8_t service_level : 4 = 0;  // InfiniBand's service level, end to end
  std::uint8_t traffic_class = 0;      // DSCP << 2 | ECN
  std::uint8_t header_bytes : 6 = 0;
  std::uint8_t headers : 2 = 0;  // FrameHeaders
  std::array<std::byte, header_bytes_max> header;

  bool is_tcp() const { return headers == static_cast<std::uint8_t>(FrameHeaders::tcp); }
  std::uint32_t link_bytes() const { return std::uint32_t{buffer_bytes} + gap_bytes; }
  // Returns the hash of the flow's addresses and ports by which equal-cost paths are chosen.
  std::uint32_t flow_hash() const { return port::flow_hash(source, destination, source_port); }
};
static_assert(sizeof(Frame) == 64);

using wire::ecn_capable;
using wire::ecn_congestion_experienced;
using wire::ecn_mask;

// Holds the frames in use and the free ones, in blocks that never move. Memory is allocated only
// when more frames are in the fabric than ever before.
class FramePool {
 public:
  Frame& operator[](FrameRef ref) { return blocks_[ref / block_frames][ref % block_frames]; }

  const Frame& operator[](FrameRef ref) const {
    return blocks_[ref / block_frames][ref % block_frames];
  }

  void prefetch(FrameRef ref) { tulle::prefetch(&(*this)[ref]); }

  FrameRef take() {
    if (free_.empty()) grow();
    const FrameRef ref = free_.back();
    free_.pop_back();
    return ref;
  }
  void give(FrameRef ref) { free_.push_back(ref); }
  // Prefetches the frame that take() will return so many calls ahead of the next one.
  void prefetch_free(std::size_t ahead) {
    if (ahead < free_.size()) prefetch(free_[free_.size() - 1 - ahead]);
  }
  std::uint32_t in_use() const { return capacity() - static_cast<std::uint32_t>(free_.size()); }
  std::uint32_t capacity() const {
    return static_cast<std::uint32_t>(blocks_.size()) * block_frames;
  }

 private:
  static constexpr std::uint32_t block_frames = 4'096;

  void grow() {
    const std::uint32_t first = capacity();
    blocks_.push_back(std::make_unique<Frame[]>(block_frames));
    if (free_.capacity() < capacity()) free_.reserve(2 * std::size_t{capacity()});
    for (std::uint32_t i = block_frames; i-- > 0;) free_.push_back(first + i);
  }

  std::vector<std::unique_ptr<Frame[]>> blocks_;
  std::vector<FrameRef> free_;  // the last one is taken next
};

}  // namespace tulle::port
