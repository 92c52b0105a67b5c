#include "live/path/memory/host_packets.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "live/clock.h"
#include "live/process_state.h"
#include "os/cancellation.h"

namespace tulle::live {
namespace {

// The packets of long messages are no shorter, but the last.
constexpr std::size_t measured_bytes_min = 1'024;
// A message that takes longer has been interrupted, or never ends.
constexpr std::int64_t coming_nanoseconds_max = 10'000'000;

// Returns the queue pair that a packet is for. The bytes begin with its BTH (IBTA 9.2).
QpNumber destination_of(std::span<const std::byte> head) {
  const auto at = [&](std::size_t i) { return std::to_integer<std::uint32_t>(head[i]); };
  return QpNumber{at(5) << 16 | at(6) << 8 | at(7)};
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
  tell_way(lane);
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
  if (const auto* ip = std::get_if<wire::IpUdp>(&datagram.path)) {
    path = {ip->source,
            ip->destination,
            ip->flow_label,
            datagram.flow_entropy,
            ip->traffic_class,
            ip->hop_limit,
            0};
  } else if (const auto* ethernet = std::get_if<wire::EthernetPath>(&datagram.path)) {
    const wire::GlobalRoute& grh = ethernet->global;
    path = {grh.source, grh.destination, grh.flow_label, 0, grh.traffic_class, grh.hop_limit, 1};
  } else {
    return nullptr;
  }
  const bool is_known = lane.has_sent_path && path.destination == lane.sent_path.destination &&
                        path.is_roce_v1 == lane.sent_path.is_roce_v1;
  return is_known || is_local_(path.destination, path.is_roce_v1 == 1) ? &lane : nullptr;
}

HostPackets::Offer HostPackets::offer(device::Datagram& datagram, Time now) {
  meet_peers();
  RingPath path;
  Lane* const lane = lane_for(datagram, path);
  if (lane == nullptr) return Offer::declined;
  const bool tells_path = !lane->has_sent_path || path != lane->sent_path;
  const Form form = form_of(*lane, datagram, tells_path);
  if (form.content_bytes > PacketRing::content_bytes_max) return Offer::declined;
  std::byte* const room = lane->out.reserve(form.content_bytes);
  if (room == nullptr) {
    // The reader may have made room before it could see that this process waits.
    const bool is_kept = !lane->is_stalled && keep(*lane, datagram, path, now);
    if (is_kept) return resume(now) ? Offer::taken : Offer::kept;
    ++counters_.dropped;
    return Offer::taken;
  }
  lane->is_stalled = false;
  if (!encode(form, datagram, path, room)) {
    ++counters_.dropped;
    return Offer::taken;
  }
  publish(*lane, path, form);
  return Offer::taken;
}

HostPackets::Form HostPackets::form_of(const Lane& lane, const device::Datagram& datagram,
                                       bool tells_path) const {
  const PeerTable::Inbox& inbox = lane.peer->table->inboxes[peers_.own_slot()];
  Form form;
  form.has_path = tells_path;
  form.packet_bytes = transport_bytes(datagram);
  form.has_reference = datagram.lasting_bytes >= reference_bytes_min &&
                       datagram.piece_count <= PayloadReference::pieces_max &&
                       inbox.reads_memory.load(std::memory_order_relaxed) == 1;
  form.content_bytes = tells_path ? sizeof(RingPath) : 0;
  form.content_bytes += form.has_reference ? PayloadReference::encoded_bytes(datagram.piece_count) +
                                                 wire::header_bytes(datagram.packet.opcode)
                                           : form.packet_bytes;
  return form;
}

// Writes the content of a record. Returns false if the payload is gone.
bool HostPackets::encode(const Form& form, const device::Datagram& datagram, const RingPath& path,
                         std::byte* room) const {
  if (form.has_path) {
    std::memcpy(room, &path, sizeof path);
    room += sizeof path;
  }
  if (!form.has_reference) return encode_transport(datagram, room);
  const PayloadReference reference(payload_of(datagram), datagram.lasting_for, peers_.table());
  reference.encode(room);
  room += PayloadReference::encoded_bytes(datagram.piece_count);
  wire::encode(datagram.packet, {room, wire::header_bytes_max});
  return true;
}

void HostPackets::publish(Lane& lane, const RingPath& path, const Form& form) {
  lane.out.publish(form.content_bytes, (form.has_path ? PacketRing::has_path : 0) |
                                           (form.has_reference ? PacketRing::has_reference : 0));
  lane.has_sent_path = true;
  lane.sent_path = path;
  ++counters_.sent;
  if (form.has_reference) ++counters_.referred;
  if (!std::exchange(lane.is_dirty, true)) {
    dirty_.push_back(static_cast<std::uint8_t>(lane.peer->slot));
  }
  lane.unrung_bytes += form.packet_bytes;
  if (lane.unrung_bytes >= early_ring_bytes) ring_if_asleep(lane);
}

// Returns false if the payload is gone.
bool HostPackets::keep(Lane& lane, const device::Datagram& datagram, const RingPath& path,
                       Time now) {
  const Form form = form_of(lane, datagram, true);
  if (!encode(form, datagram, path, kept_.get())) return false;
  ++counters_.delayed;
  kept_form_ = form;
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

bool HostPackets::is_waited_for(const Lane& lane, Time now) {
  if (now < lane.full_since + patience) return true;
  return now < lane.full_since + slow_patience && !is_stopped(lane.peer->pid);
}

bool HostPackets::resume(Time now) {
  if (!has_kept()) return true;
  meet_peers();
  Lane& lane = lanes_[kept_for_];
  std::byte* const room = may_write(lane) ? lane.out.reserve(kept_form_.content_bytes) : nullptr;
  if (room != nullptr) {
    RingPath path;
    std::memcpy(room, kept_.get(), kept_form_.content_bytes);
    std::memcpy(&path, kept_.get(), sizeof path);
    publish(lane, path, kept_form_);
  } else {
    if (may_write(lane) && is_waited_for(lane, now)) {
      look_again_ = now + look_again_after;
      return false;
    }
    lane.is_stalled = lane.token != 0;
    ++counters_.dropped;
  }
  set_waits(kept_for_, false);
  kept_form_ = {};
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
  const CancellationOff cancellation_off;
  const ssize_t sent =
      send(lane.peer->doorbell.get(), &ring, sizeof ring, MSG_DONTWAIT | MSG_NOSIGNAL);
  // A bell that is full has been rung. One that cannot be rung serves nobody.
  if (sent < 0 && errno != EAGAIN) lane.is_mute = true;
}

// --- receiving ---

void HostPackets::ask_to_be_rung() { bump_sleeps(2); }

// Takes that many packets at most. Returns how many it took.
int HostPackets::take_all(device::Adapter& adapter, Time now, int packets) {
  meet_peers();
  int taken = 0;
  for (const std::uint8_t slot : open_) {
    Lane& lane = lanes_[slot];
    if (!lane.may_read && !begin_reading(lane)) continue;
    const int before = taken;
    std::size_t untold_bytes = 0;
    while (taken < packets) {
      const auto record = lane.in.take();
      if (!record) break;
      ++taken;
      const std::size_t bytes = PacketRing::record_bytes(record->content.size());
      lane.read_bytes += bytes;
      untold_bytes += bytes;
      handle(lane, *record, adapter, now);
      // The writer fills what has been read while this process reads the rest.
      if (untold_bytes >= told_bytes) {
        lane.in.tell();
        untold_bytes = 0;
      }
    }
    if (taken == before) continue;
    if (!run_.is_empty()) finish_run(lane, adapter, now);
    lane.in.tell();
    if (lane.read_bytes >= room_bytes) tell_of_room(lane);
  }
  return taken;
}

void HostPackets::handle(Lane& lane, const RingReader::Record& record, device::Adapter& adapter,
                         Time now) {
  std::span<const std::byte> bytes = record.content;
  if (!run_.is_empty() && (record.has_path || !record.has_reference)) {
    finish_run(lane, adapter, now);
  }
  if (record.has_path) take_path(lane, bytes);
  if (!is_from_here(lane)) return;
  if (record.has_reference) return handle_reference(lane, bytes, adapter, now);
  // A frame without headers would be taken for one that the adapter is to decode itself.
  if (bytes.empty()) {
    ++counters_.refused;
    return;
  }
  std::array<std::byte, wire::header_bytes_max> head;
  const std::size_t head_bytes = std::min(bytes.size(), head.size());
  std::memcpy(head.data(), bytes.data(), head_bytes);
  ++counters_.received;
  port::Arrival arrival{lane.received_path, true, {head.data(), head_bytes}};
  const bool is_long = bytes.size() >= measured_bytes_min;
  const wire::Position position =
      is_long ? wire::info(static_cast<wire::Opcode>(head[0])).position : wire::Position::only;
  if (position == wire::Position::first) begin_message(lane, destination_of(head));
  try {
    adapter.handle_frame(now, arrival, bytes);
  } catch (const std::bad_alloc&) {
    // There is no memory to handle the packet: it is lost, as on a network.
  }
  if (!is_long) return;
  lane.coming.bytes += bytes.size();
  if (position == wire::Position::last) {
    end_message(lane, PayloadWay::Way::ring, destination_of(head));
  }
}

void HostPackets::handle_reference(Lane& lane, std::span<const std::byte> bytes,
                                   device::Adapter& adapter, Time now) {
  PayloadReference reference;
  wire::Packet packet;
  bool is_known = reference.take(bytes);
  if (is_known) {
    std::array<std::byte, wire::header_bytes_max> head;
    const std::size_t head_bytes = std::min(bytes.size(), head.size());
    std::memcpy(head.data(), bytes.data(), head_bytes);
    const wire::Decoded decoded = wire::decode({head.data(), head_bytes}, packet);
    is_known = decoded.status == wire::DecodeStatus::ok && decoded.header_bytes == head_bytes;
  }
  if (!is_known) {
    ++counters_.refused;
    return;
  }
  if (!run_.takes(packet, reference)) finish_run(lane, adapter, now);
  const wire::OpcodeInfo& info = wire::info(packet.opcode);
  if (info.position == wire::Position::first) begin_message(lane, packet.destination_qp);
  run_.add(packet, reference);
  lane.coming.bytes += reference.payload_bytes();
  if (info.position == wire::Position::last) {
    finish_run(lane, adapter, now);
    end_message(lane, PayloadWay::Way::memory, packet.destination_qp);
  }
}

void HostPackets::finish_run(Lane& lane, device::Adapter& adapter, Time now) {
  const PayloadRun::Result result = run_.finish(*lane.peer, lane.received_path, adapter, now);
  counters_.received += result.handled;
  counters_.recalled += result.dropped;
  // The writer sends them again, and then with their payloads.
  if (result.is_refused) {
    lane.way.note_refusal();
    tell_way(lane);
  }
}

// Measures how long a message of several packets takes from its first packet to its last. Of
// several at once, one is measured. A process that sleeps would measure how long it sleeps.
void HostPackets::begin_message(Lane& lane, QpNumber qp) {
  if (!is_polled_) return;
  const std::int64_t now = DriverClock::system();
  const bool is_measuring = lane.coming.began != 0 && lane.coming.qp != qp &&
                            now < lane.coming.began + coming_nanoseconds_max;
  if (!is_measuring) lane.coming = {now, qp, 0};
}

void HostPackets::end_message(Lane& lane, PayloadWay::Way way, QpNumber qp) {
  if (lane.coming.began == 0 || lane.coming.qp != qp) return;
  const Lane::Coming message = std::exchange(lane.coming, {});
  if (message.bytes < reference_bytes_min) return;
  const PayloadWay::Way before = lane.way.wanted();
  lane.way.note(way, message.bytes, Time::nanoseconds(DriverClock::system() - message.began));
  if (lane.way.wanted() != before) tell_way(lane);
}

// Tells the peer how the payloads of long messages shall come. A process that sleeps wants them
// in the ring: while it wakes and copies, the peer copies too.
void HostPackets::tell_way(Lane& lane) {
  const bool by_memory =
      lane.peer->is_reachable && is_polled_ && lane.way.wanted() == PayloadWay::Way::memory;
  peers_.table().inboxes[lane.peer->slot].reads_memory.store(by_memory ? 1 : 0,
                                                             std::memory_order_relaxed);
}

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
  if (path.is_roce_v1 == 1) {
    lane.received_path =
        wire::EthernetPath{.global = {path.source, path.destination, path.traffic_class,
                                      path.hop_limit, path.flow_label}};
    if (!is_from_here(lane)) ++counters_.refused;
    return;
  }
  auto& ip = lane.received_path.emplace<wire::IpUdp>();
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
    const wire::Path& path = lane.received_path;
    const bool is_roce_v1 = std::holds_alternative<wire::EthernetPath>(path);
    lane.is_from_here = is_local_(wire::source_of(path).gid, is_roce_v1) &&
                        is_local_(wire::destination_of(path).gid, is_roce_v1);
  }
  return lane.is_from_here;
}

void HostPackets::bump_sleeps(std::uint32_t by) {
  peers_.table().sleeps.fetch_add(by, std::memory_order_seq_cst);
}

void HostPackets::set_polled(bool is_polled) {
  if (is_polled_ == is_polled) return;
  meet_peers();
  is_polled_ = is_polled;
  bump_sleeps(1);
  for (const std::uint8_t slot : open_) {
    lanes_[slot].coming = {};
    tell_way(lanes_[slot]);
  }
}

void HostPackets::rebase(Time by) {
  tulle::rebase(by, look_again_);
  for (const std::uint8_t slot : open_) tulle::rebase(by, lanes_[slot].full_since);
}

}  // namespace tulle::live
