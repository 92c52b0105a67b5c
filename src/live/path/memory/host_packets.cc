#include "live/path/memory/host_packets.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace tulle::live {
namespace {

std::size_t transport_bytes(const device::Datagram& datagram) {
  return std::size_t{datagram.bth_and_payload_bytes()} + datagram.packet.pad_count;
}

// Writes BTH to the pad. Returns false if the payload is gone.
bool encode_transport(const device::Datagram& datagram, std::byte* room) {
  return attempt(payload_of(datagram), [&] {
    std::byte* at = room + wire::encode(datagram.packet, {room, wire::header_bytes_max});
    for (const std::span<const std::byte> piece : payload_of(datagram)) {
      std::memcpy(at, piece.data(), piece.size());
      at += piece.size();
    }
    std::memset(at, 0, datagram.packet.pad_count);
  });
}

// What was written before is seen by others before this process reads what follows. ThreadSanitizer
// does not know fences, and warns. It watches one process, and this orders what two see.
void full_fence() {
#pragma GCC diagnostic push
#if defined(__SANITIZE_THREAD__)
#pragma GCC diagnostic ignored "-Wtsan"
#endif
  std::atomic_thread_fence(std::memory_order_seq_cst);
#pragma GCC diagnostic pop
}

}  // namespace

HostPackets::HostPackets(LocalPeers& peers, IsLocal is_local)
    : peers_(peers),
      is_local_(std::move(is_local)),
      memory_(std::make_unique<std::array<Lane, slots>>()),
      lanes_(*memory_),
      kept_(std::make_unique_for_overwrite<std::byte[]>(PacketRing::content_bytes_max)) {
  open_.reserve(slots);
  dirty_.reserve(slots);
}

// --- peers ---

// Peers have come, and perhaps gone.
void HostPackets::follow_changes() {
  changes_seen_ = peers_.changes();
  std::erase_if(open_, [&](std::uint8_t slot) {
    Lane& lane = lanes_[slot];
    lane.peer = peers_.mapped(lane.token);
    if (lane.peer == nullptr) lane = {};
    return lane.peer == nullptr;
  });
  std::erase_if(dirty_, [&](std::uint8_t slot) { return lanes_[slot].peer == nullptr; });
  for (LocalPeer& peer : peers_.places()) {
    Lane& lane = lanes_[peer.slot];
    if (!peer.is_alive() || lane.token == peers_.token_of(peer)) continue;
    if (lane.token == 0) open_.push_back(static_cast<std::uint8_t>(peer.slot));
    open(lane, peer);
  }
}

// Each end names the other's process. The rings are empty before they have names.
void HostPackets::open(Lane& lane, LocalPeer& peer) {
  PeerTable& table = peers_.table();
  PeerTable::Outbox& outbox = table.outboxes[peer.slot];
  PeerTable::Inbox& inbox = table.inboxes[peer.slot];
  outbox.reader.store(0, std::memory_order_seq_cst);
  inbox.writer.store(0, std::memory_order_seq_cst);
  inbox.progress.taken.store(0, std::memory_order_seq_cst);
  lane = {};
  lane.token = peers_.token_of(peer);
  lane.peer = &peer;
  lane.is_mute = !peer.doorbell;
  lane.out = RingWriter(peers_.ring_to(peer.slot), peer.table->inboxes[peers_.own_slot()].progress);
  lane.in = RingReader(peer.ring, inbox.progress);
  inbox.writer.store(peer.table->proof, std::memory_order_seq_cst);
  outbox.reader.store(peer.table->proof, std::memory_order_seq_cst);
}

bool HostPackets::begin_reading(Lane& lane) {
  const PeerTable::Outbox& outbox = lane.peer->table->outboxes[peers_.own_slot()];
  lane.may_read = outbox.reader.load(std::memory_order_acquire) == peers_.table().proof;
  return lane.may_read;
}

bool HostPackets::may_write(Lane& lane) {
  if (lane.token == 0 || lane.is_mute || !lane.peer->is_alive()) return false;
  if (peers_.table().open.load(std::memory_order_relaxed) == 0 ||
      lane.peer->table->open.load(std::memory_order_relaxed) == 0) {
    return false;
  }
  if (lane.may_write) return true;
  const PeerTable::Inbox& inbox = lane.peer->table->inboxes[peers_.own_slot()];
  lane.may_write = inbox.writer.load(std::memory_order_acquire) == peers_.table().proof;
  return lane.may_write;
}

// --- sending ---

// Returns the lane that takes the datagram, and the datagram's path; or null if UDP serves.
HostPackets::Lane* HostPackets::lane_for(const device::Datagram& datagram, RingPath& path) {
  Lane& lane = lanes_[slot_of(datagram.packet.destination_qp)];
  if (datagram.headers != device::Datagram::Headers::bth || !may_write(lane)) return nullptr;
  const auto* ip = std::get_if<wire::IpUdp>(&datagram.path);
  if (ip == nullptr) return nullptr;
  path = {ip->source,        ip->destination, ip->flow_label, datagram.flow_entropy,
          ip->traffic_class, ip->hop_limit};
  const bool is_known = lane.has_sent_path && path.destination == lane.sent_path.destination;
  return is_known || is_local_(path.destination) ? &lane : nullptr;
}

HostPackets::Offer HostPackets::offer(device::Datagram& datagram, Time now) {
  meet_peers();
  RingPath path;
  Lane* const lane = lane_for(datagram, path);
  if (lane == nullptr) return Offer::declined;
  const bool tells_path = !lane->has_sent_path || path != lane->sent_path;
  const std::size_t path_bytes = tells_path ? sizeof path : 0;
  const std::size_t content_bytes = path_bytes + transport_bytes(datagram);
  if (content_bytes > PacketRing::content_bytes_max) return Offer::declined;
  std::byte* const room = lane->out.reserve(content_bytes);
  if (room == nullptr) {
    // The reader may have made room before it could see that this process waits.
    const bool is_kept = !lane->is_stalled && keep(*lane, datagram, path, now);
    if (is_kept) return resume(now) ? Offer::taken : Offer::kept;
    ++counters_.dropped;
    return Offer::taken;
  }
  lane->is_stalled = false;
  if (tells_path) std::memcpy(room, &path, sizeof path);
  if (!encode_transport(datagram, room + path_bytes)) {
    ++counters_.dropped;
    return Offer::taken;
  }
  publish(*lane, path, content_bytes, tells_path ? PacketRing::has_path : 0);
  return Offer::taken;
}

void HostPackets::publish(Lane& lane, const RingPath& path, std::size_t content_bytes,
                          std::uint32_t marks) {
  lane.out.publish(content_bytes, marks);
  lane.has_sent_path = true;
  lane.sent_path = path;
  ++counters_.sent;
  if (!std::exchange(lane.is_dirty, true)) {
    dirty_.push_back(static_cast<std::uint8_t>(lane.peer->slot));
  }
  lane.unrung_bytes += content_bytes;
  if (lane.unrung_bytes >= early_ring_bytes) ring_if_asleep(lane);
}

// Returns false if the payload is gone.
bool HostPackets::keep(Lane& lane, const device::Datagram& datagram, const RingPath& path,
                       Time now) {
  std::memcpy(kept_.get(), &path, sizeof path);
  if (!encode_transport(datagram, kept_.get() + sizeof path)) return false;
  ++counters_.delayed;
  kept_bytes_ = sizeof path + transport_bytes(datagram);
  kept_for_ = lane.peer->slot;
  lane.full_since = now;
  set_waits(kept_for_, true);
  return true;
}

void HostPackets::set_waits(std::uint32_t slot, bool waits) {
  std::atomic<std::uint32_t>& count = peers_.table().outboxes[slot].waits;
  const std::uint32_t before = count.load(std::memory_order_relaxed);
  if ((before % 2 != 0) != waits) count.store(before + 1, std::memory_order_seq_cst);
}

bool HostPackets::resume(Time now) {
  if (kept_bytes_ == 0) return true;
  meet_peers();
  Lane& lane = lanes_[kept_for_];
  std::byte* const room = may_write(lane) ? lane.out.reserve(kept_bytes_) : nullptr;
  if (room != nullptr) {
    RingPath path;
    std::memcpy(room, kept_.get(), kept_bytes_);
    std::memcpy(&path, kept_.get(), sizeof path);
    publish(lane, path, kept_bytes_, PacketRing::has_path);
  } else {
    if (may_write(lane) && now < lane.full_since + patience) return false;
    lane.is_stalled = lane.token != 0;
    ++counters_.dropped;
  }
  set_waits(kept_for_, false);
  kept_bytes_ = 0;
  return true;
}

void HostPackets::ring_doorbells() {
  if (dirty_.empty()) return;
  meet_peers();
  for (const std::uint8_t slot : dirty_) {
    lanes_[slot].is_dirty = false;
    ring_if_asleep(lanes_[slot]);
  }
  dirty_.clear();
}

void HostPackets::ring_if_asleep(Lane& lane) {
  lane.unrung_bytes = 0;
  // A peer that has not seen the records by now shows that it sleeps.
  full_fence();
  const std::uint32_t sleeps = lane.peer->table->sleeps.load(std::memory_order_seq_cst);
  if (sleeps % 2 == 0 || sleeps == lane.rung) return;
  lane.rung = sleeps;
  ring(lane);
}

void HostPackets::ring(Lane& lane) {
  ++counters_.doorbells;
  constexpr char ring = 1;
  const ssize_t sent =
      send(lane.peer->doorbell.get(), &ring, sizeof ring, MSG_DONTWAIT | MSG_NOSIGNAL);
  // A bell that is full has been rung. One that cannot be rung serves nobody.
  if (sent < 0 && errno != EAGAIN) lane.is_mute = true;
}

// --- receiving ---

// A peer that sleeps, and whose ring to this process was full, must be told of the room that there
// is now.
void HostPackets::tell_of_room(Lane& lane) {
  lane.read_bytes = 0;
  full_fence();
  const std::uint32_t waits = lane.peer->table->outboxes[peers_.own_slot()].waits.load();
  const bool is_asleep = lane.peer->table->sleeps.load(std::memory_order_relaxed) % 2 != 0;
  if (waits % 2 == 0 || waits == lane.told_room || !is_asleep || lane.is_mute) return;
  lane.told_room = waits;
  ring(lane);
}

// Reads the path at the front of a record.
void HostPackets::take_path(Lane& lane, std::span<const std::byte>& bytes) {
  RingPath path;
  lane.is_from_here = false;
  lane.has_received_path = bytes.size() >= sizeof path;
  if (!lane.has_received_path) {
    ++counters_.refused;
    return;
  }
  std::memcpy(&path, bytes.data(), sizeof path);
  bytes = bytes.subspan(sizeof path);
  wire::IpUdp& ip = lane.received_path;
  ip = {};
  ip.source = path.source;
  ip.destination = path.destination;
  ip.flow_label = path.flow_label;
  ip.source_port = path.source_port;
  ip.traffic_class = path.traffic_class;
  ip.hop_limit = path.hop_limit;
  if (!is_from_here(lane)) ++counters_.refused;
}

// A path is told once. The peer may have learned of an address before this process did, so a path
// that was refused is looked at again.
bool HostPackets::is_from_here(Lane& lane) const {
  if (!lane.is_from_here && lane.has_received_path) {
    lane.is_from_here =
        is_local_(lane.received_path.source) && is_local_(lane.received_path.destination);
  }
  return lane.is_from_here;
}

void HostPackets::bump_sleeps(std::uint32_t by) {
  peers_.table().sleeps.fetch_add(by, std::memory_order_seq_cst);
}

void HostPackets::set_polled(bool is_polled) {
  if (is_polled_ == is_polled) return;
  is_polled_ = is_polled;
  bump_sleeps(1);
}

void HostPackets::rebase(Time by) {
  for (const std::uint8_t slot : open_) tulle::rebase(by, lanes_[slot].full_since);
}

}  // namespace tulle::live
