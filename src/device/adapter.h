#pragma once

// An RDMA adapter (IBTA: channel adapter) as one node: queue pairs, memory keys, completion queues,
// one port. A state machine without input or output: the driver tells it the time, hands it
// datagrams, and pulls what it wants to send. Not thread-safe: the driver holds one lock around
// every call.

#include <array>
#include <bitset>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/id_map.h"
#include "base/ids.h"
#include "base/prefetch.h"
#include "base/time.h"
#include "device/owned.h"
#include "device/timer_queue.h"
#include "link/link_layer.h"
#include "link/roce_v2.h"
#include "transport/queue_pair.h"
#include "transport/rc/engine.h"
#include "transport/srd/settings.h"
#include "verbs/address_handle.h"
#include "verbs/completion_queue.h"
#include "verbs/memory.h"
#include "verbs/protection_domain.h"
#include "verbs/receive_queue.h"
#include "verbs/tag_list.h"
#include "verbs/types.h"
#include "verbs/xrc_domain.h"
#include "wire/path.h"

namespace tulle::device {

class RawPackets;

// What the device offers; the shim reports exactly these.
struct Limits {
  std::uint32_t queue_pairs = 16'384;
  std::uint32_t work_requests = 32'768;  // a queue
  std::uint32_t sges = 16;
  std::uint32_t inline_bytes = 1'024;
  std::uint32_t completion_queues = 65'536;
  std::uint32_t completion_entries = 1u << 20;
  std::uint32_t memory_regions = 1u << 20;
  std::uint32_t memory_windows = 1u << 20;
  std::uint32_t shared_receive_queues = 16'384;
  std::uint32_t read_atomic_depth = 16;
  std::uint64_t region_bytes = 1ull << 46;
  // Of a shared receive queue of tag matching. Operations are done at once, so that none is ever
  // outstanding: the number is what programs may ask for.
  std::uint32_t tags = verbs::TagList::entries_max;
  std::uint32_t tag_sges = verbs::TagList::sges_per_entry;
  std::uint32_t tag_operations = 1'024;
};

struct Configuration {
  std::uint64_t seed = 0;    // keys and first queue pair number; unguessable live
  QpNumber first_qp{0x100};  // the range handed to this process
  std::uint32_t qp_count = 16'384;
  std::uint32_t mtu_bytes =
      4096;  // largest path MTU the port carries: 256, 512, 1024, 2048 or 4096
  Limits limits;
  link::LinkLayer link_layer = link::LinkLayer::ethernet;  // of the port
  transport::congestion::Settings congestion;
  transport::RecoverySettings recovery;
  // Adapters with equal settings share one object. Null means the defaults.
  std::shared_ptr<const transport::tcp::Settings> tcp;
  std::shared_ptr<const transport::srd::Settings> srd;
  // Of the port, where congestion control begins: it stands for the line rates of `congestion` and
  // `srd`.
  std::int64_t line_bits_per_second = 100'000'000'000;
  // The transports of its queue pairs; must outlive the adapter.
  const transport::TransportTable* transports = &transport::TransportTable::standard();
  // Packets that one queue pair may send before the next has its turn: what one segmented call to
  // the kernel holds.
  std::uint32_t packets_per_turn = 16;
};

// Counters of one adapter, since its start. Monotonic.
struct Counters {
  std::uint64_t packets_sent = 0;
  std::uint64_t packets_received = 0;
  std::uint64_t bytes_sent = 0;                                     // UDP payload, or TCP segments
  std::uint64_t bytes_received = 0;                                 // UDP payload
  std::array<std::uint64_t, link::verdicts> received_by_verdict{};  // ok, truncated, … bad_icrc
  std::uint64_t unknown_queue_pair = 0;
  std::uint64_t pkey_violations = 0;           // packets whose partition is not their queue pair's
  std::uint64_t congestion_notifications = 0;  // received
  transport::Counters transport;
};

// One packet to send: everything but the headers in front of BTH, which `path` describes. The pieces
// point into the application's memory and hold until the next call into the adapter other than
// pull_datagram.
struct Datagram : transport::OutgoingPacket {
  wire::Path path;
  // RoCE v2, and TCP.
  wire::IpUdp& ip() { return std::get<wire::IpUdp>(path); }
  const wire::IpUdp& ip() const { return std::get<wire::IpUdp>(path); }
  // The packets of a flow have one value: RoCE v2's UDP source port (IBTA A17.9.2).
  std::uint16_t flow_entropy = 0;
  std::uint8_t service_level = 0;
  link::Frame frame;  // by finish_frame

  // TCP's header and payload, where that is what it holds.
  std::uint32_t segment_bytes() const {
    return static_cast<std::uint32_t>(wire::header_bytes(tcp)) + payload_bytes;
  }
  // BTH … ICRC.
  std::uint32_t udp_payload_bytes() const {
    return static_cast<std::uint32_t>(wire::header_bytes(packet.opcode) + payload_bytes +
                                      packet.pad_count + wire::icrc_bytes);
  }
};

// Something the application is to be told: a completion event for a CQ that was armed, or an
// asynchronous event.
struct Event {
  enum class Kind : std::uint8_t { completion, asynchronous } kind = Kind::completion;
  verbs::EventType type{};
  verbs::CompletionQueue* cq = nullptr;      // completion, cq_error
  transport::QueuePair* qp = nullptr;        // qp_*, communication_established, drained, last_wqe
  verbs::SharedReceiveQueue* srq = nullptr;  // srq_*
};

class Adapter {
 public:
  explicit Adapter(const Configuration& configuration);
  ~Adapter();
  Adapter(const Adapter&) = delete;
  Adapter& operator=(const Adapter&) = delete;

  const Configuration& configuration() const { return configuration_; }

  // The port's addresses, by GID index (the driver's, from the interfaces). At most 256. Zeros
  // stand for no address: what was there before is withdrawn. It is not for new work then, but
  // whoever has it goes on sending by it, and never by another that takes its place.
  static constexpr std::size_t gids_max = 256;
  void set_gids(std::span<const Gid> gids);
  // Those withdrawn too, as long as a queue pair or an address handle has them.
  std::span<const Gid> gids() const { return hot_.gids; }
  bool has_gid(std::size_t index) const {
    return index < hot_.gids.size() && hot_.gids[index] != Gid{} && !withdrawn_gids_[index];
  }
  // As of the last set_gids.
  const std::bitset<gids_max>& withdrawn_gids() const { return withdrawn_gids_; }
  // InfiniBand: the port's base LID, of which the port has 2^lmc in a row (IBTA 7.11.1).
  void set_lid(Lid lid, unsigned lmc = 0) {
    lid_ = lid;
    environment_.lmc = lmc;
  }
  // The port's partition keys, by P_Key index (IBTA 10.9.2); at least one. Before queue pairs are
  // made. Unless called: the default partition's, of a full member.
  void set_pkeys(std::span<const Pkey> pkeys);

  // Objects. A null pointer: a limit is reached, or an argument is out
  // of range (`status` says which).
  verbs::ProtectionDomain* create_pd(verbs::VerbsStatus& status);
  verbs::VerbsStatus destroy(verbs::ProtectionDomain* pd);

  verbs::MemoryRegion* register_memory(verbs::ProtectionDomain& pd, void* address,
                                       std::uint64_t length, std::uint64_t iova,
                                       verbs::AccessFlags access, verbs::VerbsStatus& status);
  // A region that covers all addresses, reads as zeros and loses what is written; for local access
  // alone.
  verbs::MemoryRegion* create_null_region(verbs::ProtectionDomain& pd, verbs::VerbsStatus& status);
  // IBTA 11.2.8.4: any of pd, range and access may change; keys change when the range or PD does.
  struct Reregistration {
    verbs::ProtectionDomain* pd = nullptr;  // null: as before
    bool change_range = false;
    void* address = nullptr;
    std::uint64_t length = 0;
    std::uint64_t iova = 0;
    bool change_access = false;
    verbs::AccessFlags access;
  };
  verbs::VerbsStatus reregister(verbs::MemoryRegion& region, const Reregistration& change);
  const verbs::MemoryRegion* find_region(LocalKey key) const {  // null: there is none
    return environment_.keys.find_region(key);
  }
  verbs::VerbsStatus destroy(verbs::MemoryRegion* region);  // busy: a window is bound to it

  verbs::MemoryWindow* create_window(verbs::ProtectionDomain& pd, verbs::WindowType type,
                                     verbs::VerbsStatus& status);
  verbs::VerbsStatus destroy(verbs::MemoryWindow* window);

  verbs::CompletionQueue* create_cq(std::uint32_t entries, void* cookie,
                                    verbs::VerbsStatus& status);
  verbs::VerbsStatus resize(verbs::CompletionQueue& cq, std::uint32_t entries);
  verbs::VerbsStatus destroy(verbs::CompletionQueue* cq);

  verbs::SharedReceiveQueue* create_srq(verbs::ProtectionDomain& pd, std::uint32_t work_requests,
                                        std::uint32_t sges, void* cookie,
                                        verbs::VerbsStatus& status);
  verbs::VerbsStatus modify(verbs::SharedReceiveQueue& srq, const std::uint32_t* work_requests,
                            const std::uint32_t* limit);
  verbs::VerbsStatus destroy(verbs::SharedReceiveQueue* srq);

  // Extended reliable connections (IBTA A14). A queue of a domain is found by its number.
  verbs::XrcDomain* create_xrc_domain();
  verbs::VerbsStatus destroy(verbs::XrcDomain* domain);
  verbs::SharedReceiveQueue* create_xrc_srq(verbs::ProtectionDomain& pd, verbs::XrcDomain& domain,
                                            verbs::CompletionQueue& cq, std::uint32_t work_requests,
                                            std::uint32_t sges, void* cookie,
                                            verbs::VerbsStatus& status);

  // Tag matching (transport/tag_matching.h): for reliable connections, whose messages all complete
  // to `cq`. Operations complete there too.
  verbs::SharedReceiveQueue* create_tag_srq(verbs::ProtectionDomain& pd, verbs::CompletionQueue& cq,
                                            std::uint32_t work_requests, std::uint32_t sges,
                                            std::uint32_t tags, void* cookie,
                                            verbs::VerbsStatus& status);
  // Sets the handle of one that adds. A tag to be removed that is no longer there: its completion
  // says so.
  verbs::VerbsStatus operate(verbs::SharedReceiveQueue& srq, verbs::TagOperation& operation);

  verbs::AddressHandle* create_ah(verbs::ProtectionDomain& pd, const verbs::AddressVector& to,
                                  verbs::VerbsStatus& status);
  verbs::VerbsStatus destroy(verbs::AddressHandle* handle);

  transport::QueuePair* create_qp(const transport::QueuePairInit& init, verbs::VerbsStatus& status);
  // Attributes and their mask as the ladder allows (verbs/qp_state.h).
  verbs::VerbsStatus modify(transport::QueuePair& qp,
                            const transport::QueuePairAttributes& attributes,
                            verbs::QpAttributeMask mask);
  verbs::VerbsStatus destroy(transport::QueuePair* qp);
  transport::QueuePair* find_qp(QpNumber number);

  // Multicast (IBTA 10.5): packets for a group come to all queue pairs that are attached to it.
  // Only UD, and only a multicast GID; attaching again changes nothing. The driver sees to it that
  // the port receives what is sent to the group. While it is attached, a queue pair is busy.
  verbs::VerbsStatus attach(transport::QueuePair& qp, const Gid& group);
  verbs::VerbsStatus detach(transport::QueuePair& qp, const Gid& group);
  void detach_all(const transport::QueuePair& qp);
  bool has_group(const Gid& group) const;
  bool is_attached(const transport::QueuePair& qp) const;

  // Raw packet queue pairs (device/raw_packets.h): there the driver hands frames in, and pulls
  // them.
  RawPackets& raw_packets();

  // Work. Nothing is sent by these calls: the driver pulls.
  verbs::VerbsStatus post_send(transport::QueuePair& qp, const verbs::SendRequest& request);
  verbs::VerbsStatus post_receive(transport::QueuePair& qp, const verbs::ReceiveRequest& request);
  verbs::VerbsStatus post_receive(verbs::SharedReceiveQueue& srq,
                                  const verbs::ReceiveRequest& request);
  // Arms the CQ: the next completion (or the next solicited or failed one) raises one event.
  void request_notification(verbs::CompletionQueue& cq, bool solicited_only);

  // For the driver.
  //
  // A datagram's UDP payload as received; identification_known as in link::decode. The payload is
  // copied where it belongs before the call returns.
  link::Verdict handle_datagram(Time now, const wire::IpUdp& ip, bool identification_known,
                                std::span<const std::byte> udp_payload);
  // The same for a packet that is decoded already, with a payload that may be a ghost: for a
  // simulated network.
  void handle_packet(Time now, const wire::Packet& packet, transport::Payload payload,
                     const wire::Path& path);
  // The same for a TCP segment, whose checksum was right.
  void handle_segment(Time now, const wire::Tcp& header, transport::Payload payload,
                      const wire::Path& path);
  // The network says what may be sent to a host in all, from now on for so long; without effect
  // unless congestion.endpoint_limits.
  void limit(Time now, const PortAddress& destination, std::int64_t bits_per_second, Time hold);
  // Fills in the next datagram to send; false: nothing to send now. finish_frame then frames it and
  // computes the ICRC, when the driver knows the source port and the `identification` that the
  // kernel will write into the IPv4 header (k for the k-th segment of one call).
  bool pull_datagram(Time now, Datagram& out) { return pull_datagram(now, out, 0); }
  // With some service levels held back (bit n: level n, 0 to 7), as a port's flow control asks.
  bool pull_datagram(Time now, Datagram& out, std::uint32_t held_back_levels);
  // Queue pairs take turns by service level, 8 of them: level n shares n + 8's.
  static constexpr std::uint32_t levels = 8;
  // Whether there may be something to send.
  bool has_ready(std::uint32_t held_back_levels = 0) const {
    return (hot_.ready_lists & ~(held_back_levels | held_back_levels << levels)) != 0 ||
           hot_.notifying.first != nullptr;
  }
  // The service levels of queue pairs that may have something to send.
  std::uint32_t ready_levels() const {
    return (hot_.ready_lists | hot_.ready_lists >> levels) & ((1u << levels) - 1);
  }
  // For a driver that takes turns of its own (host_stack.h): the next queue pair that may have
  // something to send, which leaves the adapter's turns; null: none. Then what that one sends.
  transport::QueuePair* take_ready();
  bool pull_datagram_of(Time now, transport::QueuePair& qp, Datagram& out);
  // It may have something to send again.
  void make_ready(transport::QueuePair& qp) { visit(qp, qp.agenda()); }
  // From now on sockets' reads and writes wait for the driver to have them happen; and the next
  // that waits.
  void let_sockets_wait() { environment_.sockets_wait = true; }
  std::optional<transport::Environment::WaitingSocket> take_waiting_socket();
  static void finish_frame(Datagram& datagram, std::uint16_t identification);
  // Fetch what a packet that is soon to arrive will touch, for a driver of many adapters.
  void prefetch() const {
    prefetch(&environment_, &environment_.endpoint_limits);
    prefetch(hot_);
  }
  void prefetch(QpNumber number) {
    if (const transport::QueuePair* qp = find_qp(number)) prefetch_with_engine(*qp);
    environment_.keys.prefetch();
  }
  // When handle_deadline is next due; Time::never() if nothing waits.
  Time next_deadline() const;
  void handle_deadline(Time now);
  // The next event for the application; false: none.
  bool pull_event(Event& event);

  // Who looks after the pages of regions with Access::on_demand; null: nobody need.
  void set_pages(const verbs::MemoryPages* pages) { environment_.keys.set_pages(pages); }

  // A shorter way to peers on the same host, before any queue pair is connected; null: none.
  void set_direct_path(transport::DirectPath* direct) { environment_.direct = direct; }

  // How many completions there have ever been: whether a call into the adapter brought one.
  std::uint64_t completions() const { return environment_.completions; }

  const Counters& counters() const;
  std::uint32_t queue_pairs_in_use() const {
    return static_cast<std::uint32_t>(hot_.qps_by_number.size());
  }

 private:
  template <typename T>
  static void prefetch(const T& object) {
    prefetch(&object, &object + 1);
  }
  static void prefetch(const void* begin, const void* end) {
    const auto* last = static_cast<const std::byte*>(end);
    for (const auto* line = static_cast<const std::byte*>(begin); line < last; line += 64) {
      tulle::prefetch(line);
    }
  }
  // The engine lies behind its queue pair (QueuePairOf); a reliable connection's is the longest.
  static void prefetch_with_engine(const transport::QueuePair& qp) {
    const auto* begin = reinterpret_cast<const std::byte*>(&qp);
    prefetch(begin, begin + sizeof(transport::QueuePairOf<transport::rc::Engine>));
  }
  static std::uint64_t stream_key(std::uint16_t local_port, std::uint16_t peer_port,
                                  const Gid& peer);
  static std::uint64_t stream_key(QpNumber local, QpNumber peer, const Gid& address);
  verbs::VerbsStatus connect_stream(transport::QueuePair& qp, QpNumber peer, const Gid& address);
  void disconnect_stream(const transport::QueuePair& qp);
  // Schedules a queue pair and watches its deadline, as the agenda asks.
  void visit(transport::QueuePair& qp, const transport::Agenda& agenda) {
    schedule(qp, agenda);
    watch_deadline(qp, agenda.deadline);
  }
  void schedule(transport::QueuePair& qp, const transport::Agenda& agenda);
  void schedule_elsewhere(transport::QueuePair& qp);
  void unschedule(transport::QueuePair& qp);
  void handle_congestion_notification(Time now, const wire::Packet& packet);
  void handle_congestion_bits(Time now, transport::QueuePair& qp, const wire::Packet& packet,
                              const wire::Path& path);
  void handle_unknown(Time now, const wire::Packet& packet, transport::Payload payload,
                      const wire::Path& path);
  void handle_multicast(Time now, const wire::Packet& packet, transport::Payload payload,
                        const wire::Path& path);
  void notify(transport::QueuePair& qp);
  void forget_notification(transport::QueuePair& qp);
  bool pull_notification(Datagram& out, std::uint32_t held_back_levels);
  bool pull_from(Time now, transport::QueuePair& qp, Datagram& out);
  void complete_pull(const transport::QueuePair& qp, Datagram& out);
  void watch_deadline(transport::QueuePair& qp, Time deadline);
  verbs::VerbsStatus check(const transport::Transport& transport,
                           const transport::QueuePairInit& init) const;
  verbs::VerbsStatus check(const transport::QueuePairAttributes& attributes,
                           verbs::QpAttributeMask mask) const;
  QpNumber unused_qp_number(std::uint32_t hint);
  void remove_xrc(verbs::SharedReceiveQueue& srq);
  void attend_srd();
  void address(const transport::QueuePair& qp, Datagram& out) const;
  wire::LocalPath local_path_to(const verbs::AddressVector& to) const;
  std::bitset<gids_max> gids_in_use() const;

  // Queue pairs that may have something to send, in turn: an intrusive list. Those that owe an
  // answer come before those that only have requests.
  struct ReadyList {
    transport::QueuePair* first = nullptr;
    transport::QueuePair* last = nullptr;
  };

  // What every packet touches, side by side.
  struct Hot {
    std::array<transport::QueuePair*, 2> recent{};  // the queue pairs that were found last
    std::uint32_t ready_lists = 0;                  // bit n: ready[n] is not empty
    std::uint32_t next_level = 0;                   // levels take turns
    std::uint32_t turn_packets = 0;                 // that the first of a list has sent in its turn
    ReadyList notifying;                            // by next_notification
    IdMap<transport::QueuePair> qps_by_number;
    TimerQueue timers;
    std::vector<Gid> gids;
    std::array<ReadyList, 2 * levels> ready;  // answers by level, then requests by level
  };

  Configuration configuration_;
  mutable Counters counters_;  // the transport's part is brought up to date when asked for
  transport::Environment environment_;
  Hot hot_;
  verbs::CompletionEvents completion_events_;
  Owned<verbs::ProtectionDomain> pds_;
  Owned<verbs::MemoryRegion> regions_;
  std::unique_ptr<std::byte[]> null_memory_;  // of all null regions
  Owned<verbs::MemoryWindow> windows_;
  Owned<verbs::CompletionQueue> cqs_;
  Owned<verbs::SharedReceiveQueue> srqs_;
  Owned<verbs::XrcDomain> xrc_domains_;
  Owned<verbs::AddressHandle> handles_;
  Owned<transport::QueuePair> qps_;
  // By service level: those by which SRD's packets leave, each made when it is first needed.
  std::array<transport::QueuePair*, levels> srd_carriers_{};
  std::bitset<gids_max> withdrawn_gids_;
  Lid lid_;
  std::uint32_t next_qp_offset_ = 0;
  std::uint32_t next_xrc_srq_ = 0;
  // By group: those attached to it. Null: there has been none.
  struct MulticastGroups;
  std::unique_ptr<MulticastGroups> multicast_;
  std::unique_ptr<RawPackets> raw_packets_;  // null: there has been no such queue pair
  // Those of connected streams, by the peer's address and both ports.
  std::unordered_map<std::uint64_t, transport::QueuePair*> streams_;
};

}  // namespace tulle::device
