#pragma once

// The packets that are under way in a subnet, as frames with their bytes, and the place that each
// host has for its own. A packet is the bytes from its LRH to its pad.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "rdma/port/frame.h"
#include "rdma/port/payloads.h"
#include "rdma/wire/path.h"

namespace tulle::fabric {

class PacketStore {
 public:
  // The longest packet: LRH 8, GRH 40, the longest headers behind them 44, payload 4,096, pad 3.
  static constexpr std::uint32_t packet_bytes_max = 8 + 40 + 44 + 4'096 + 3;
  // No packets are taken in while so many are under way, or so many of the programs of one host.
  static constexpr std::uint32_t packets_max = 16'384;
  static constexpr std::uint32_t packets_of_host_max = packets_max / 4;

  explicit PacketStore(std::uint32_t hosts) : under_way_(hosts + 1) {}

  // Returns the number that represents the hosts of other machines.
  std::uint32_t elsewhere() const { return static_cast<std::uint32_t>(under_way_.size() - 1); }
  // Returns true if a packet of a host may be under way, too. Programs of one host cannot have the
  // place of all, and a host that has little under way has place even if there is none.
  bool has_place(std::uint32_t host) const;

  // Copies a packet's bytes into a frame.
  port::FrameRef take_in(std::span<const std::byte> packet, std::uint32_t host);
  // Returns another frame with the same contents.
  port::FrameRef copy(port::FrameRef ref);
  void give(port::FrameRef ref);
  // Gives the frames of a list. Returns how many there are.
  std::uint64_t give_all(port::FrameRef first);
  // Fills in what switches read besides the lane, from the packet's bytes. Returns false if they
  // are no packet that can have a destination.
  bool read_headers(port::FrameRef ref, wire::LocalPath& path);

  port::Frame& operator[](port::FrameRef ref) { return frames_[ref]; }
  std::span<const std::byte> bytes_of(port::FrameRef ref) {
    return {packets_.of(ref), frames_[ref].payload_bytes};
  }
  // What is given back to the pool itself keeps its place in its host's share.
  port::FramePool& frames() { return frames_; }

 private:
  port::FramePool frames_;
  port::Payloads packets_{packet_bytes_max};
  std::vector<std::uint32_t> under_way_;  // by host of the sender (Frame::source), and elsewhere
};

}  // namespace tulle::fabric
