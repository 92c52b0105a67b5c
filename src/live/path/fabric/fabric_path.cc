#include "live/path/fabric/fabric_path.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <variant>

#include "live/path/memory/packet_bytes.h"
#include "port/framing/infiniband.h"

namespace tulle::live {
namespace {

std::size_t packet_bytes(const device::Datagram& datagram) {
  return port::link_header_bytes(std::get<wire::LocalPath>(datagram.path)) +
         transport_bytes(datagram);
}

}  // namespace

FabricPath::FabricPath(FabricRings rings)
    : rings_(std::move(rings)),
      kept_(std::make_unique_for_overwrite<std::byte[]>(PacketRing::content_bytes_max)) {
  rings_.fall_asleep();
}

// --- sending ---

void FabricPath::transmit(device::Adapter& adapter, Time now) {
  has_more_ = false;
  if (!resume(now)) return;
  for (int i = 0; i < packets_max; ++i) {
    if (!adapter.pull_datagram(now, datagram_)) return rings_.ring_if_asleep();
    if (send(now) == Sent::kept) return rings_.ring_if_asleep();
  }
  rings_.ring_if_asleep();
  has_more_ = true;
}

// Sends the datagram that was pulled, or keeps it until there is room.
FabricPath::Sent FabricPath::send(Time now) {
  const std::size_t bytes = packet_bytes(datagram_);
  std::byte* room = rings_.reserve(bytes, !is_polled_);
  if (room != nullptr) {
    is_stalled_ = false;
    if (encode(room)) {
      publish(bytes);
    } else {
      ++counters_.dropped;
    }
    return Sent::done;
  }
  if (is_stalled_ || !encode(kept_.get())) {
    ++counters_.dropped;
    return Sent::done;
  }
  ++counters_.delayed;
  kept_bytes_ = bytes;
  full_since_ = now;
  look_again_ = now + look_again_after;
  return Sent::kept;
}

// Sends the packet that was kept. Returns false while there is no room.
bool FabricPath::resume(Time now) {
  if (kept_bytes_ == 0) return true;
  std::byte* room = rings_.reserve(kept_bytes_, !is_polled_);
  if (room != nullptr) {
    std::memcpy(room, kept_.get(), kept_bytes_);
    publish(kept_bytes_);
  } else {
    look_again_ = now + look_again_after;
    if (now < full_since_ + patience) return false;
    is_stalled_ = true;
    ++counters_.dropped;
  }
  kept_bytes_ = 0;
  return true;
}

// Returns false if the payload is gone.
bool FabricPath::encode(std::byte* room) const {
  const auto& path = std::get<wire::LocalPath>(datagram_.path);
  const std::span<std::byte> headers(room, port::link_header_bytes(path));
  return encode_transport(
      datagram_, room + port::encode_link_headers(path, transport_bytes(datagram_), headers));
}

void FabricPath::publish(std::size_t bytes) {
  rings_.publish(bytes);
  ++counters_.sent;
  unrung_bytes_ += bytes;
  if (unrung_bytes_ < early_ring_bytes) return;
  rings_.ring_if_asleep();
  unrung_bytes_ = 0;
}

// --- receiving ---

void FabricPath::set_polled(bool is_polled) {
  if (std::exchange(is_polled_, is_polled) == is_polled) return;
  if (is_polled) return rings_.stay_awake();
  rings_.fall_asleep();
  // Whoever polled looked for room by itself.
  if (kept_bytes_ > 0) static_cast<void>(rings_.reserve(kept_bytes_, true));
}

void FabricPath::ask_to_be_rung() { rings_.fall_asleep(); }

// Takes that many packets at most. Returns how many it took.
int FabricPath::take_all(device::Adapter& adapter, Time now, int packets) {
  int taken = 0;
  std::size_t untold_bytes = 0;
  while (taken < packets) {
    const auto record = rings_.in().take();
    if (!record) break;
    ++taken;
    untold_bytes += PacketRing::record_bytes(record->content.size());
    handle(record->content, adapter, now);
    // The fabric fills what has been read while this process reads the rest.
    if (untold_bytes < told_bytes) continue;
    rings_.tell();
    untold_bytes = 0;
  }
  if (taken > 0) rings_.tell();
  return taken;
}

// The bytes may change while they are read. The headers are read from a copy.
void FabricPath::handle(std::span<const std::byte> packet, device::Adapter& adapter, Time now) {
  constexpr std::size_t head_bytes_max = wire::lrh_bytes + wire::grh_bytes + wire::header_bytes_max;
  std::array<std::byte, head_bytes_max> copy;
  const std::size_t head_bytes = std::min(packet.size(), head_bytes_max);
  std::memcpy(copy.data(), packet.data(), head_bytes);
  const std::span<const std::byte> head(copy.data(), head_bytes);
  port::Arrival arrival;
  auto& path = arrival.path.emplace<wire::LocalPath>();
  const auto link = port::decode_link_headers(head, packet.size() + wire::icrc_bytes, path);
  if (link.verdict != port::Verdict::ok) {
    ++counters_.refused;
    return;
  }
  ++counters_.received;
  arrival.head = head.subspan(link.bytes);
  if (arrival.head.size() > wire::header_bytes_max) {
    arrival.head = arrival.head.first(wire::header_bytes_max);
  }
  adapter.handle_frame(now, arrival, packet.subspan(link.bytes));
}

void FabricPath::rebase(Time by) { tulle::rebase(by, full_since_, look_again_); }

}  // namespace tulle::live
