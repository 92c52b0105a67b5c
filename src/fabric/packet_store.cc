#include "fabric/packet_store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "rdma/port/framing/infiniband.h"
#include "rdma/wire/bth.h"
#include "rdma/wire/packet.h"

namespace tulle::fabric {

using port::FrameRef;

namespace {

// A short packet takes so much room, too. Otherwise, a few programs could fill the place for all
// packets with short ones.
constexpr std::size_t least_room_bytes = 512;

}  // namespace

bool PacketStore::has_place(std::uint32_t host) const {
  constexpr std::uint32_t always = 16;
  if (frames_.in_use() >= packets_max) return under_way_[host] < always;
  return under_way_[host] < packets_of_host_max || host == elsewhere();
}

FrameRef PacketStore::take_in(std::span<const std::byte> packet, std::uint32_t host) {
  const FrameRef ref = frames_.take();
  port::Frame& frame = frames_[ref];
  frame = {};
  frame.source = host & 0xFF'FFFF;
  ++under_way_[host];
  frame.payload_bytes = static_cast<std::uint16_t>(packet.size());
  frame.buffer_bytes =
      static_cast<std::uint16_t>(std::max(packet.size() + wire::icrc_bytes, least_room_bytes));
  std::ranges::copy(packet, packets_.of(ref));  // there may be none
  return ref;
}

FrameRef PacketStore::copy(FrameRef ref) {
  const FrameRef copy = frames_.take();
  frames_[copy] = frames_[ref];
  ++under_way_[frames_[copy].source];
  std::memcpy(packets_.of(copy), packets_.of(ref), frames_[ref].payload_bytes);
  return copy;
}

void PacketStore::give(FrameRef ref) {
  --under_way_[frames_[ref].source];
  frames_.give(ref);
}

std::uint64_t PacketStore::give_all(FrameRef first) {
  std::uint64_t frames = 0;
  for (FrameRef ref = first; ref != port::no_frame; ++frames) {
    give(std::exchange(ref, frames_[ref].next));
  }
  return frames;
}

bool PacketStore::read_headers(FrameRef ref, wire::LocalPath& path) {
  const std::span<const std::byte> packet = bytes_of(ref);
  const auto link = port::decode_link_headers(packet, packet.size() + wire::icrc_bytes, path);
  const Lid to = path.local.destination;
  if (link.verdict != port::Verdict::ok || to == Lid(wire::permissive_lid) || to == Lid(0)) {
    return false;
  }
  port::Frame& frame = frames_[ref];
  frame.destination = to.value;
  frame.service_level = path.local.service_level & 0xF;
  // Switches read the P_Key, and hosts the destination's queue pair.
  frame.header_bytes = sizeof(wire::Bth) & 0x3F;
  std::memcpy(frame.header.data(), packet.data() + link.bytes, sizeof(wire::Bth));
  return true;
}

}  // namespace tulle::fabric
