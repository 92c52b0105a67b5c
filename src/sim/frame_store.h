#pragma once

// The frames of a part, and their contents: made from the datagrams of a sending adapter, and
// decoded where they arrive. If the simulation carries bytes, each frame has room for its payload.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/ids.h"
#include "base/time.h"
#include "rdma/device/adapter.h"
#include "rdma/port/frame.h"
#include "rdma/port/framing/overhead.h"
#include "rdma/port/payloads.h"
#include "rdma/wire/packet.h"
#include "rdma/wire/path.h"
#include "sim/nodes.h"

namespace tulle::sim {

class FrameStore {
 public:
  // The nodes must outlive it.
  explicit FrameStore(const Nodes& nodes);

  port::FramePool& pool() { return pool_; }
  const port::FramePool& pool() const { return pool_; }
  port::Frame& operator[](port::FrameRef ref) { return pool_[ref]; }
  void give(port::FrameRef ref) { pool_.give(ref); }

  // Returns a new frame with the datagram that a host sends.
  port::FrameRef make(std::uint32_t host, const device::Datagram& datagram);
  // Hands the packet of a frame to an adapter. The frame stays in use.
  void hand_over(Time now, device::Adapter& adapter, port::FrameRef ref);
  // Returns the queue pair that gets the packet, or the port of a segment of TCP.
  QpNumber receiver_of(const port::Frame& frame) const;
  // Returns the payload, or as much of it as has bytes.
  transport::Payload payload_of(port::FrameRef ref);

  // Returns the bytes of memory that each frame has for its payload. 0 means that all are ghosts.
  std::size_t payload_room() const { return payloads_ == nullptr ? 0 : payloads_->bytes_each(); }
  // Returns that memory.
  std::span<std::byte> payload_memory(port::FrameRef ref) {
    if (payloads_ == nullptr) return {};
    return {payloads_->of(ref), payloads_->bytes_each()};
  }

 private:
  void label(port::Frame& frame, std::uint32_t host, const device::Datagram& datagram) const;
  void measure(port::Frame& frame, const port::Overhead& around, std::uint32_t inner_bytes,
               std::uint32_t payload_bytes) const;
  void hold_segment(port::FrameRef frame, const device::Datagram& datagram);
  void carry_payload(port::FrameRef frame, const device::Datagram& datagram);
  void carry_front(port::FrameRef frame, const device::Datagram& datagram);
  void hand_over_segment(Time now, device::Adapter& adapter, port::FrameRef ref);
  wire::Path path_of(const port::Frame& frame) const;

  const NetworkSettings& settings_;
  bool carries_fronts_;
  port::FramePool pool_;
  std::unique_ptr<port::Payloads> payloads_;  // null: ghosts
  wire::Packet handed_over_;                  // a member because decoding clears it
};

}  // namespace tulle::sim
