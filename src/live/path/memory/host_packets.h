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
// The packets of long messages carry no payloads if the reader asks for that. Their records refer
// to the payloads, which the reader copies (live/path/memory/payload_reference.h).
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
#include "live/path/memory/local_peers.h"
#include "live/path/memory/packet_bytes.h"
#include "live/path/memory/packet_ring.h"
#include "live/path/memory/payload_run.h"
#include "live/path/memory/payload_way.h"
#include "live/path/memory/ring_path.h"
#include "live/slots.h"
#include "rdma/device/adapter.h"
#include "rdma/wire/path.h"

namespace tulle::live {

class HostPackets final : public RingPath {
 public:
  // Says whether an address is one of this host, for packets of that version of RoCE.
  using IsLocal = std::function<bool(const Gid& gid, bool is_roce_v1)>;
  HostPackets(LocalPeers& peers, IsLocal is_local);

  struct Counters {
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    std::uint64_t delayed = 0;   // times a ring was full and a packet waited
    std::uint64_t dropped = 0;   // packets whose payload was gone, or whose reader read nothing
    std::uint64_t refused = 0;   // records that came and that no process of ours writes
    std::uint64_t referred = 0;  // packets sent whose payload stayed where it was
    std::uint64_t recalled = 0;  // packets that came, and whose payload could not be read any more
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

  // Declines a packet that is for no local peer, or while the rings are closed. One for which the
  // ring has no room is kept.
  Offer offer(device::Datagram& datagram, Time now) override;
  // Places the packet that offer() kept, if it kept one. A stopped reader
  // that reads nothing for `patience` loses what does not fit, as it would at a full socket. One
  // that is not stopped may wait for a processor, and has `slow_patience`.
  static constexpr Time patience = Time::milliseconds(100);
  static constexpr Time slow_patience = Time::milliseconds(1'000);
  // The reader of a full ring wakes this process. A reader that cannot is looked at.
  static constexpr Time look_again_after = Time::microseconds(200);
  [[nodiscard]] bool resume(Time now) override;
  Flushed flush(Time) override {
    ring_doorbells();
    return has_kept() ? Flushed::waits : Flushed::all;
  }
  // Returns when a reader that cannot wake this process is to be looked at.
  Time next_deadline() const override { return has_kept() ? look_again_ : Time::never(); }
  bool has_kept() const { return kept_form_.content_bytes > 0; }
  // A peer that sleeps is woken when so much waits for it, although more is about to be sent: both
  // ends then copy at the same time.
  static constexpr std::size_t early_ring_bytes = std::size_t{16} << 10;
  // The packets of requests with so much data refer to their payloads. For a shorter request, two
  // copies cost less than the system call.
  static constexpr std::uint32_t reference_bytes_min = 32 << 10;
  // Tells the peers that sleep of what was sent to them. Called after some packets.
  void ring_doorbells();

  // --- receiving ---

  bool has_peers() const override { return !open_.empty(); }
  void set_polled(bool is_polled) override;
  std::uint64_t packets_by_memory() const override { return counters_.sent + counters_.received; }
  void rebase(Time by) override;

 private:
  // A reader looks whether the writer waits for room when it has read so much. 256 records, the
  // most that it takes in a turn, are at least that much.
  static constexpr std::size_t room_bytes = std::size_t{16} << 10;
  static_assert(packets_max * PacketRing::line_bytes >= room_bytes);
  // A reader tells the writer how far it has read after so many bytes, and when it has read all.
  static constexpr std::size_t told_bytes = std::size_t{32} << 10;
  // A path says how the records that follow travel. It is written when it changes.
  struct RingPath {
    Gid source;
    Gid destination;
    std::uint32_t flow_label = 0;
    std::uint16_t source_port = 0;
    std::uint8_t traffic_class = 0;
    std::uint8_t hop_limit = 0;
    std::uint32_t is_roce_v1 = 0;  // 1, or any other number for RoCE v2
    bool operator==(const RingPath&) const = default;
  };
  static_assert(sizeof(RingPath) == 44);
  // A form says how a packet is written as a record.
  struct Form {
    std::size_t content_bytes = 0;  // of the record
    std::size_t packet_bytes = 0;   // BTH to the pad
    bool has_path = false;
    bool has_reference = false;  // the payload stays where it is
  };
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
    PayloadWay way;  // how the payloads of long messages come from this peer
    // A message of several packets that is coming.
    struct Coming {
      std::int64_t began = 0;  // nanoseconds; 0: there is none
      QpNumber qp;
      std::size_t bytes = 0;
    } coming;
    bool has_sent_path = false;
    bool has_received_path = false;
    bool is_from_here = false;  // both addresses of the received path are this host's
    RingPath sent_path;
    wire::Path received_path;
  };

  int take_all(device::Adapter& adapter, Time now, int packets) override;
  void ask_to_be_rung() override;
  void handle(Lane& lane, const RingReader::Record& record, device::Adapter& adapter, Time now);
  void handle_reference(Lane& lane, std::span<const std::byte> bytes, device::Adapter& adapter,
                        Time now);
  void finish_run(Lane& lane, device::Adapter& adapter, Time now);
  void begin_message(Lane& lane, QpNumber qp);
  void end_message(Lane& lane, PayloadWay::Way way, QpNumber qp);
  void tell_way(Lane& lane);
  void follow_changes();
  void open(Lane& lane, LocalPeer& peer);
  bool begin_reading(Lane& lane);
  bool may_write(Lane& lane);
  void take_path(Lane& lane, std::span<const std::byte>& bytes);
  bool is_from_here(Lane& lane) const;
  Lane* lane_for(const device::Datagram& datagram, RingPath& path);
  void publish(Lane& lane, const RingPath& path, const Form& form);
  Form form_of(const Lane& lane, const device::Datagram& datagram, bool tells_path) const;
  bool encode(const Form& form, const device::Datagram& datagram, const RingPath& path,
              std::byte* room) const;
  bool keep(Lane& lane, const device::Datagram& datagram, const RingPath& path, Time now);
  static bool is_waited_for(const Lane& lane, Time now);
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
  PayloadRun run_;                   // packets that refer to their payloads; empty between calls
  std::vector<std::uint8_t> dirty_;  // those with packets for which no doorbell was rung
  std::uint32_t changes_seen_ = 0;
  std::unique_ptr<std::byte[]> kept_;  // the record of a packet that waits for room
  Form kept_form_;
  std::uint32_t kept_for_ = 0;  // slot
  Time look_again_;
  Counters counters_;
};

}  // namespace tulle::live
