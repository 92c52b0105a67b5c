#pragma once

// Packets between processes of one host by memory: what would go to a local peer's UDP socket goes
// into this process's ring to it (live/path/memory/packet_ring.h). The packets are those of UDP
// without a check sequence, and queue pairs do not know which way their packets go. So order,
// errors, limits and counters are the same.
//
// A process that polls looks at its peers' rings. One that sleeps is told by its doorbell, a
// socket, once for all that comes until it has looked (PeerTable::sleeps). A sleeper whose ring was
// full is told in the same way that it has room again (PeerTable::Outbox::waits).
//
// The rings are used while the direct path is open at both ends: a capture, say, closes it. What
// was written before is still read.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/guarded_access.h"
#include "base/ids.h"
#include "base/time.h"
#include "device/adapter.h"
#include "live/path/memory/local_peers.h"
#include "live/path/memory/packet_ring.h"
#include "live/slots.h"
#include "wire/ip_udp.h"

namespace tulle::live {

inline MemoryPieces payload_of(const device::Datagram& datagram) {
  return {datagram.pieces.data(), datagram.piece_count};
}

class HostPackets {
 public:
  using IsLocal = std::function<bool(const Gid& gid)>;
  HostPackets(LocalPeers& peers, IsLocal is_local);

  struct Counters {
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    std::uint64_t delayed = 0;  // times a ring was full and a packet waited
    std::uint64_t dropped = 0;  // packets whose payload was gone, or whose reader read nothing
    std::uint64_t refused = 0;  // records that came and that no process of ours writes
    std::uint64_t doorbells = 0;
  };
  const Counters& counters() const { return counters_; }

  // Opens rings to the peers that have come. Called soon after a queue pair was connected, so that
  // the peer's first packet finds its ring read.
  void meet_peers() {
    if (peers_.changes() != changes_seen_) [[unlikely]]
      follow_changes();
  }

  // --- sending ---

  enum class Offer : std::uint8_t {
    declined,  // the packet is for no local peer, or the rings are closed: UDP serves
    taken,
    kept,  // the ring is full: the packet is kept, and resume() must return true before the next
  };
  Offer offer(device::Datagram& datagram, Time now);
  // Places the packet that offer() kept. Returns false while there is no room. A reader that reads
  // nothing for `patience` loses what does not fit, as it would at a full socket.
  static constexpr Time patience = Time::milliseconds(100);
  [[nodiscard]] bool resume(Time now);
  bool has_kept() const { return kept_bytes_ > 0; }
  // A peer that sleeps is woken when so much waits for it, although more is about to be sent: both
  // ends then copy at the same time.
  static constexpr std::size_t early_ring_bytes = std::size_t{16} << 10;
  // Tells the peers that sleep of what was sent to them. Called after some packets.
  void ring_doorbells();

  // --- receiving ---

  // Must be called when a peer has rung the doorbell, before receive(). The packets that the peer
  // told of may have been read already, and the next ones must make it ring again.
  void note_ring() { was_rung_ = true; }
  // Calls handle(const wire::IpUdp&, head, bytes) with each packet. `bytes` has BTH to the pad and
  // may change at any time, and `head` is a copy of its first bytes, at most header_bytes_max. A
  // handler must make no peer known, since that moves peers. Returns the number of packets that
  // were taken, which is bounded.
  template <typename Handle>
  int receive(Handle handle) {
    int taken = 0;
    bool must_tell = is_unfinished_ || std::exchange(was_rung_, false);
    for (;;) {
      const int before = taken;
      take_all(taken, handle);
      must_tell |= taken != before;
      if (is_polled_ || !must_tell || taken >= packets_max) break;
      // Whoever sends from now on rings again. What was sent before is read now.
      bump_sleeps(2);
      must_tell = false;
    }
    is_unfinished_ = taken >= packets_max;
    return taken;
  }
  // Returns true if the last call of receive() left packets, perhaps.
  bool is_unfinished() const { return is_unfinished_; }
  // Returns true if a peer may send by a ring.
  bool has_peers() const { return !open_.empty(); }
  // Says whether somebody calls receive() all the time, so that no peer needs to ring. The caller
  // must call receive() after it has said `false`.
  void set_polled(bool is_polled);
  void rebase(Time by);

 private:
  static constexpr int packets_max = 256;
  // A reader looks whether the writer waits for room when it has read so much. 256 records, the
  // most that it takes in a turn, are at least that much.
  static constexpr std::size_t room_bytes = std::size_t{16} << 10;
  static_assert(packets_max * PacketRing::line_bytes >= room_bytes);
  // A path says how the records that follow travel. It is written when it changes.
  struct RingPath {
    Gid source;
    Gid destination;
    std::uint32_t flow_label = 0;
    std::uint16_t source_port = 0;
    std::uint8_t traffic_class = 0;
    std::uint8_t hop_limit = 0;
    bool operator==(const RingPath&) const = default;
  };
  static_assert(sizeof(RingPath) == 40);
  // A lane has both rings of a local peer.
  struct Lane {
    std::uint32_t token = 0;  // 0: there is none
    LocalPeer* peer = nullptr;
    RingWriter out;
    RingReader in;
    bool may_write = false;        // the peer reads this process's ring
    bool may_read = false;         // the peer's ring is for this process
    bool is_dirty = false;         // has packets for which no doorbell was rung
    bool is_stalled = false;       // the reader has read nothing for long
    bool is_mute = false;          // the peer cannot be woken
    std::uint32_t rung = 0;        // the value of `sleeps` for which the doorbell was rung last
    std::size_t unrung_bytes = 0;  // that were written since a doorbell was considered
    std::uint32_t told_room = 0;   // the value of `waits` for which the doorbell was rung last
    std::size_t read_bytes = 0;    // since this looked whether the writer waits
    Time full_since = Time::never();
    bool has_sent_path = false;
    bool has_received_path = false;
    bool is_from_here = false;  // both addresses of the received path are this host's
    RingPath sent_path;
    wire::IpUdp received_path;
  };

  template <typename Handle>
  void take_all(int& taken, Handle& handle) {
    meet_peers();
    for (const std::uint8_t slot : open_) {
      Lane& lane = lanes_[slot];
      if (!lane.may_read && !begin_reading(lane)) continue;
      bool has_taken = false;
      while (taken < packets_max) {
        const auto record = lane.in.take();
        if (!record) break;
        has_taken = true;
        ++taken;
        std::span<const std::byte> bytes = record->content;
        lane.read_bytes += PacketRing::record_bytes(bytes.size());
        if (record->has_path) take_path(lane, bytes);
        if (!is_from_here(lane)) continue;
        std::array<std::byte, wire::header_bytes_max> head;
        const std::size_t head_bytes = std::min(bytes.size(), head.size());
        std::memcpy(head.data(), bytes.data(), head_bytes);
        ++counters_.received;
        handle(static_cast<const wire::IpUdp&>(lane.received_path),
               std::span<const std::byte>(head.data(), head_bytes), bytes);
      }
      if (!has_taken) continue;
      lane.in.tell();
      if (lane.read_bytes >= room_bytes) tell_of_room(lane);
    }
  }
  void follow_changes();
  void open(Lane& lane, LocalPeer& peer);
  bool begin_reading(Lane& lane);
  bool may_write(Lane& lane);
  void take_path(Lane& lane, std::span<const std::byte>& bytes);
  bool is_from_here(Lane& lane) const;
  Lane* lane_for(const device::Datagram& datagram, RingPath& path);
  void publish(Lane& lane, const RingPath& path, std::size_t content_bytes, std::uint32_t marks);
  bool keep(Lane& lane, const device::Datagram& datagram, const RingPath& path, Time now);
  void bump_sleeps(std::uint32_t by);
  void ring_if_asleep(Lane& lane);
  void ring(Lane& lane);
  void tell_of_room(Lane& lane);
  void set_waits(std::uint32_t slot, bool waits);

  LocalPeers& peers_;
  IsLocal is_local_;
  std::unique_ptr<std::array<Lane, slots>> memory_;
  std::array<Lane, slots>& lanes_;
  std::vector<std::uint8_t> open_;   // the slots that have a lane
  std::vector<std::uint8_t> dirty_;  // those with packets for which no doorbell was rung
  std::uint32_t changes_seen_ = 0;
  bool is_polled_ = false;
  bool is_unfinished_ = false;
  bool was_rung_ = false;
  std::unique_ptr<std::byte[]> kept_;  // a packet that waits for room, with its path
  std::size_t kept_bytes_ = 0;
  std::uint32_t kept_for_ = 0;  // slot
  Counters counters_;
};

}  // namespace tulle::live
