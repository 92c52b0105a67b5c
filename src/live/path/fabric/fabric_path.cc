#include "live/path/fabric/fabric_path.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>
#include <variant>

#include "fabric/subnet_traffic.h"
#include "live/message/device_info.h"
#include "live/path/memory/packet_bytes.h"
#include "rdma/port/framing/infiniband.h"
#include "rdma/wire/smp.h"

namespace tulle::live {
namespace {

std::size_t packet_bytes(const device::Datagram& datagram) {
  return port::link_header_bytes(std::get<wire::LocalPath>(datagram.path)) +
         transport_bytes(datagram);
}

}  // namespace

const port::Settings& FabricPath::port_settings() {
  static const port::Settings settings;  // whose lanes can be stopped
  return settings;
}

FabricPath::FabricPath(FabricRings rings, device::Adapter& adapter)
    : rings_(std::move(rings)), adapter_(adapter) {
  rings_.fall_asleep();
}

// --- sending ---

bool FabricPath::resume(Time now) {
  if (full_lanes_ != 0) resume_lanes(now);
  return true;  // a full lane holds up no other
}

// Only the lane of a datagram that was pulled can have too little room, if it is stalled.
Link::Offer FabricPath::offer(device::Datagram& datagram, Time now) {
  const auto* const path = std::get_if<wire::LocalPath>(&datagram.path);
  if (path == nullptr) return Offer::declined;
  const std::uint32_t lane = port::default_lanes[path->local.service_level] % FabricRings::lanes;
  const std::size_t bytes = packet_bytes(datagram);
  std::byte* const room = rings_.reserve(bytes, lane);
  if (room == nullptr || !encode(datagram, room)) {
    ++counters_.dropped;
    return Offer::taken;
  }
  publish(bytes, lane);
  if (!has_room(lane)) stop_full(now, lane);
  return Offer::taken;
}

Link::Flushed FabricPath::flush(Time now) {
  rings_.ring_if_asleep();
  if (full_lanes_ == 0) return Flushed::all;
  // The reader may have made room before it could see that this end waits.
  if (!is_polled_) rings_.wait_for_room();
  return resume_lanes(now) ? Flushed::more : Flushed::all;
}

// Returns true if the lane has room for any packet.
bool FabricPath::has_room(std::uint32_t lane) {
  return rings_.reserve(fabric::SubnetTraffic::packet_bytes_max, lane) != nullptr;
}

void FabricPath::stop_full(Time now, std::uint32_t lane) {
  if (lanes_[lane].is_stalled) return;
  ++counters_.delayed;
  full_lanes_ |= 1u << lane;
  lanes_[lane].full_since = now;
  look_again_ = now + look_again_after;
  const port::Pause stop{static_cast<std::uint8_t>(1u << lane), 0};
  adapter_.port().handle_control(now, port::Control::of(stop));
}

// Resumes lanes that have room again, or that have waited for too long. Returns true if there were
// such.
bool FabricPath::resume_lanes(Time now) {
  std::uint32_t resumed = 0;
  look_again_ = now + look_again_after;
  for (std::uint32_t left = full_lanes_; left != 0; left &= left - 1) {
    const auto lane = static_cast<std::uint32_t>(std::countr_zero(left));
    Lane& of = lanes_[lane];
    const bool is_free = has_room(lane);
    const bool is_overdue = !of.is_stalled && now >= of.full_since + patience;
    if (is_free) full_lanes_ &= ~(1u << lane);
    if (is_free || is_overdue) resumed |= 1u << lane;
    of.is_stalled = !is_free && (of.is_stalled || is_overdue);
  }
  if (resumed == 0) return false;
  const port::Pause go{0, static_cast<std::uint8_t>(resumed)};
  adapter_.port().handle_control(now, port::Control::of(go));
  return true;
}

// Returns false if the payload is gone.
bool FabricPath::encode(const device::Datagram& datagram, std::byte* room) {
  const auto& path = std::get<wire::LocalPath>(datagram.path);
  const std::span<std::byte> headers(room, port::link_header_bytes(path));
  return encode_transport(
      datagram, room + port::encode_link_headers(path, transport_bytes(datagram), headers));
}

void FabricPath::publish(std::size_t bytes, std::uint32_t lane) {
  rings_.publish(bytes, lane);
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
  // A polling thread checked for room by itself.
  if (full_lanes_ != 0) rings_.wait_for_room();
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

void FabricPath::count(DriverCounters& counters) {
  counters.memory_packets_sent = counters_.sent;
  counters.memory_packets_received = counters_.received;
  counters.memory_packets_dropped = counters_.dropped + counters_.refused;
  counters.memory_delays = counters_.delayed;
}

void FabricPath::lose_network(DeviceInfo& device, int) {
  device.infiniband->state = static_cast<std::uint8_t>(wire::PortState::down);
  device.infiniband->physical_state = static_cast<std::uint8_t>(wire::PhysicalState::polling);
  device.port_active = false;
}

void FabricPath::rebase(Time by) {
  tulle::rebase(by, look_again_);
  for (Lane& lane : lanes_) tulle::rebase(by, lane.full_since);
}

}  // namespace tulle::live
