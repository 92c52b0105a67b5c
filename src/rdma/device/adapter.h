#pragma once

// An RDMA adapter (IBTA: channel adapter) as one node: queue pairs, memory keys, completion queues,
// and ports, which are numbered from 1. It is a state machine without input or output. The driver
// tells it the time, hands it datagrams, and pulls the datagrams to send. The class is not
// thread-safe: the driver holds one lock around every call.

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
#include "rdma/device/limits.h"
#include "rdma/device/multicast.h"
#include "rdma/device/objects.h"
#include "rdma/device/owned.h"
#include "rdma/device/send_turns.h"
#include "rdma/device/timer_queue.h"
#include "rdma/port/framing/framing.h"
#include "rdma/port/framing/roce_v2.h"
#include "rdma/port/port.h"
#include "rdma/port/sl_to_vl.h"
#include "rdma/transport/queue_pair.h"
#include "rdma/transport/rc/engine.h"
#include "rdma/transport/srd_settings.h"
#include "rdma/verbs/address_handle.h"
#include "rdma/verbs/completion_queue.h"
#include "rdma/verbs/memory.h"
#include "rdma/verbs/protection_domain.h"
#include "rdma/verbs/receive_queue.h"
#include "rdma/verbs/tag_list.h"
#include "rdma/verbs/types.h"
#include "rdma/verbs/xrc_domain.h"
#include "rdma/wire/path.h"

namespace tulle::device {

class HostStack;
class RawPackets;

struct Configuration {
  std::uint64_t seed = 0;  // for the first queue pair number and, without `draw`, for keys
  // Draws the keys of memory. Null means a stream of the seed, from which an observer can tell what
  // comes next.
  RandomSource::Draw draw = nullptr;
  QpNumber first_qp{0x100};  // start of the range handed to this process
  std::uint32_t qp_count = 16'384;
  // Returns the number that a queue pair with that hint gets, if no other one has it.
  QpNumber qp_number_of_hint(std::uint32_t hint) const {
    return QpNumber{first_qp.value + hint % qp_count};
  }
  Limits limits;
  // The number of ports, 1 to 255 (IBTA 14.2.5.3: NumPorts has 8 bits). All have the settings that
  // follow.
  std::uint8_t ports = 1;
  // Largest path MTU that a port carries: 256, 512, 1024, 2048 or 4096 bytes.
  std::uint32_t mtu_bytes = 4096;
  const port::Framing* framing = &port::roce_v2;
  // Flow control and arbitration of a port. Adapters with equal settings share one object, which
  // must outlive them. Null means a port without flow control, as where a kernel sends.
  const port::Settings* port = nullptr;
  port::LaneRow lanes = port::default_lanes;  // a port's lanes by service level
  // Credits: the longest frame of a port. A lane is open if it has the credits for that many
  // bytes, since a packet's length is known only once it leaves its queue pair.
  std::uint32_t frame_bytes_max = 0;
  transport::congestion::Settings congestion;
  transport::RecoverySettings recovery;
  // Adapters with equal settings share one object. Null means the defaults.
  std::shared_ptr<const transport::tcp::Settings> tcp;
  std::shared_ptr<const transport::srd::Settings> srd;
  // Line rate of a port, where congestion control begins. It replaces the line rates in
  // `congestion` and `srd`.
  std::int64_t line_bits_per_second = 100'000'000'000;
  // The transports of the queue pairs. The table must outlive the adapter.
  const transport::TransportTable* transports = &transport::TransportTable::standard();
  // Number of packets that a queue pair may send before the next has its turn: as many as one
  // segmented call to the kernel holds.
  std::uint32_t packets_per_turn = 16;
};

// Counters of one adapter since its start. They are monotonic.
struct Counters {
  std::uint64_t packets_sent = 0;
  std::uint64_t packets_received = 0;
  std::uint64_t bytes_sent = 0;                                     // UDP payload or TCP segments
  std::uint64_t bytes_received = 0;                                 // UDP payload
  std::array<std::uint64_t, port::verdicts> received_by_verdict{};  // ok, truncated, … bad_icrc
  std::uint64_t unknown_queue_pair = 0;
  std::uint64_t wrong_port = 0;                // packets that came by another port, or in another
                                               // framing, than their queue pair's
  std::uint64_t pkey_violations = 0;           // packets of another partition than their queue pair
  std::uint64_t congestion_notifications = 0;  // received
  transport::Counters transport;
};

// A packet to send: all but the headers in front of BTH, which `path` describes. The pieces point
// into the application's memory. They are valid until the next call into the adapter other than
// pull_datagram.
struct Datagram : transport::OutgoingPacket {
  wire::Path path;
  // RoCE v2, and TCP.
  wire::IpUdp& ip() { return std::get<wire::IpUdp>(path); }
  const wire::IpUdp& ip() const { return std::get<wire::IpUdp>(path); }
  // The packets of a flow have one value: RoCE v2's UDP source port (IBTA A17.9.2).
  std::uint16_t flow_entropy = 0;
  std::uint8_t service_level = 0;
  const port::Framing* framing = &port::roce_v2;
  port::FrameBytes frame;  // filled in by finish_frame

  // Frames the datagram and computes the ICRC, once the driver knows the source port and the
  // `identification` that the kernel will write into the IPv4 header (k for the k-th segment of one
  // call).
  void finish_frame(std::uint16_t identification);

  // Returns the bytes of TCP's header and payload. The datagram must hold a segment.
  std::uint32_t segment_bytes() const {
    return static_cast<std::uint32_t>(wire::header_bytes(tcp)) + payload_bytes;
  }
  // Returns the bytes of BTH … ICRC.
  std::uint32_t udp_payload_bytes() const {
    return static_cast<std::uint32_t>(wire::header_bytes(packet.opcode) + payload_bytes +
                                      packet.pad_count + wire::icrc_bytes);
  }
};

// An event for the application: a completion event of a CQ that was armed, or an asynchronous
// event.
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

  // Each function that names a port takes a number from 1 to configuration().ports.
  //
  // Sets a port's addresses by GID index, as the driver reads them from the interfaces. At most
  // 256 are used. An entry of zeros is no address, and withdraws the address that was there. New
  // work cannot use a withdrawn address, but queue pairs and address handles that have it keep
  // sending by it while the entry stays zero.
  static constexpr std::size_t gids_max = 256;
  // Packets from some GIDs may have another framing than the configuration's, as at a port of both
  // versions of RoCE. A connected queue pair takes only packets with its own GID's framing.
  struct OtherFraming {
    const port::Framing* framing;  // null: all packets have the configuration's
    std::bitset<gids_max> gids;
  };
  void set_gids(std::span<const Gid> gids, std::uint8_t port = 1, const OtherFraming& other = {});
  // Returns all addresses, including withdrawn ones as long as a queue pair or an address handle
  // has them.
  std::span<const Gid> gids(std::uint8_t port = 1) const { return at(port).gids; }
  bool has_gid(std::size_t index, std::uint8_t port = 1) const {
    const PortState& state = at(port);
    return index < state.gids.size() && state.gids[index] != Gid{} && !state.withdrawn_gids[index];
  }
  // Returns the withdrawn addresses as of the last set_gids.
  const std::bitset<gids_max>& withdrawn_gids(std::uint8_t port = 1) const {
    return at(port).withdrawn_gids;
  }
  // Sets a port's base LID on InfiniBand. The port has 2^lmc LIDs in a row (IBTA 7.11.1).
  void set_lid(Lid lid, unsigned lmc = 0, std::uint8_t port = 1);
  // Sets a port's partition keys by P_Key index (IBTA 10.9.2); there must be at least one. Queue
  // pairs keep the key that they have. The default is a full member of the default partition.
  void set_pkeys(std::span<const Pkey> pkeys, std::uint8_t port = 1);

  // The objects that belong to no queue pair: protection domains, memory, and queues.
  Objects& objects() { return objects_; }

  // The functions below return null if a limit is reached or an argument is out of range; `status`
  // says which.
  verbs::AddressHandle* create_ah(verbs::ProtectionDomain& pd, const verbs::AddressVector& to,
                                  verbs::VerbsStatus& status);
  verbs::VerbsStatus destroy(verbs::AddressHandle* handle);

  transport::QueuePair* create_qp(const transport::QueuePairInit& init, verbs::VerbsStatus& status);
  // Modifies a queue pair. Attributes and mask must be as the ladder of states allows
  // (rdma/verbs/qp_state.h).
  verbs::VerbsStatus modify(transport::QueuePair& qp,
                            const transport::QueuePairAttributes& attributes,
                            verbs::QpAttributeMask mask);
  verbs::VerbsStatus destroy(transport::QueuePair* qp);
  transport::QueuePair* find_qp(QpNumber number) {
    transport::QueuePair* last = hot_.recent[0];
    return last != nullptr && last->number == number ? last : find_other_qp(number);
  }

  MulticastGroups& multicast() { return multicast_; }

  // Returns the raw packet queue pairs (rdma/device/raw_packets.h), to which the driver hands
  // frames and from which it pulls them.
  RawPackets& raw_packets();

  // Work. These calls send nothing: the driver pulls.
  verbs::VerbsStatus post_send(transport::QueuePair& qp, const verbs::SendRequest& request);
  verbs::VerbsStatus post_receive(transport::QueuePair& qp, const verbs::ReceiveRequest& request);
  // The functions below are for the driver.
  //
  // Handles the bytes of a frame that came in by a port. What is known of its path is in `arrival`,
  // which the frame's framing completes. The payload is copied to its destination before the call
  // returns.
  port::Verdict handle_frame(Time now, port::Arrival& arrival, std::span<const std::byte> bytes,
                             std::uint8_t port = 1);
  // RoCE v2: handles a received UDP payload. identification_known is as in port::Arrival.
  port::Verdict handle_datagram(Time now, const wire::IpUdp& ip, bool identification_known,
                                std::span<const std::byte> udp_payload, std::uint8_t port = 1);
  // Handles a packet that is already decoded, with a payload that may be a ghost, for a simulated
  // network.
  void handle_packet(Time now, const wire::Packet& packet, transport::Payload payload,
                     const wire::Path& path, std::uint8_t port = 1);
  // Handles a TCP segment whose checksum was correct.
  void handle_segment(Time now, const wire::Tcp& header, transport::Payload payload,
                      const wire::Path& path);
  // Limits the total rate to a host from now on for `hold`, as the network demands. Has no effect
  // unless congestion.endpoint_limits is set.
  void limit(Time now, const PortAddress& destination, std::int64_t bits_per_second, Time hold);
  // Fills in the next datagram to send by a port. Returns false if there is nothing to send now.
  // The port's flow control and arbitration decide which service levels may send.
  bool pull_datagram(Time now, Datagram& out, std::uint8_t port = 1);
  // A port's flow control, link and counters, to which the driver hands control messages.
  port::Port& port(std::uint8_t number = 1) { return at(number).port; }
  const port::Port& port(std::uint8_t number = 1) const { return at(number).port; }
  // True if there may be something to send by a port, apart from the paused service levels (bit n:
  // level n). On Ethernet these are the classes that the neighbour has stopped.
  bool has_ready(std::uint32_t held_back_levels = 0, std::uint8_t port = 1) const {
    return at(port).turns.has_ready(held_back_levels);
  }
  // Prefetches the memory that the next packet to arrive will touch, for a driver of many adapters.
  void prefetch() const {
    prefetch(&environment_, &environment_.endpoint_limits);
    prefetch(hot_);
    tulle::prefetch(&counters_);
    tulle::prefetch(&first_port_.turns);
    tulle::prefetch(&first_port_.gids);
    first_port_.port.prefetch();
  }
  void prefetch(QpNumber number) {
    if (const transport::QueuePair* qp = find_qp(number)) prefetch_with_engine(*qp);
    environment_.keys.prefetch();
  }
  // Returns when handle_deadline is next due, or Time::never() if nothing waits.
  Time next_deadline() const { return hot_.timers.next(); }
  void handle_deadline(Time now);
  // Tells the adapter that the clock's zero has moved: from now on, its driver tells times that are
  // less by `by`. A time that is longer ago than zero then counts as zero.
  void rebase(Time by);
  // Returns the next event for the application, or false if there is none.
  bool pull_event(Event& event);

  // Returns the total number of completions, by which a driver sees whether a call into the adapter
  // produced one.
  std::uint64_t completions() const { return environment_.completions; }

  const Counters& counters() const;
  std::uint32_t queue_pairs_in_use() const {
    return static_cast<std::uint32_t>(hot_.qps_by_number.size());
  }

 private:
  friend class HostStack;  // which schedules queue pairs itself

  struct PortState {
    SendTurns turns;
    std::vector<Gid> gids;
    Lid lid;
    std::uint8_t lmc = 0;
    std::bitset<gids_max> withdrawn_gids;
    OtherFraming other{};
    std::size_t other_path_kind = 0;  // the alternative of wire::Path that the other framing sets
    port::Port port;

    explicit PortState(const Configuration& configuration);
    bool has_other_framing(std::size_t gid_index) const {
      return other.framing != nullptr && gid_index < gids_max && other.gids[gid_index];
    }
    // Says whether a packet came the way that a queue pair's packets go.
    bool is_way_of(const transport::QueuePair& qp, const wire::Path& path) const {
      const std::size_t gid_index = qp.attributes().address.source_gid_index;
      return qp.transport.is_datagram ||
             has_other_framing(gid_index) == (path.index() == other_path_kind);
    }
    const port::Framing& framing_of(std::size_t gid_index, const port::Framing& usual) const {
      return has_other_framing(gid_index) ? *other.framing : usual;
    }
  };
  PortState& at(std::uint8_t port) {
    if (port == 1) [[likely]]
      return first_port_;
    return other_ports_[port - 2u];
  }
  const PortState& at(std::uint8_t port) const { return const_cast<Adapter*>(this)->at(port); }
  // Returns the port by which a queue pair sends.
  PortState& port_of(const transport::QueuePair& qp) { return at(qp.attributes().port); }
  void take_out_of_turns(transport::QueuePair& qp) {
    port_of(qp).turns.remove(qp);
    port_of(qp).turns.remove_notification(qp);
  }

  // Finds a queue pair other than the one found last.
  transport::QueuePair* find_other_qp(QpNumber number);

  // For HostStack, which has one port: take_ready() removes the next
  // queue pair that may have something to send from the adapter's turns and returns it, or null if
  // there is none. pull_datagram_of() pulls the datagrams of that queue pair.
  transport::QueuePair* take_ready();
  bool pull_datagram_of(Time now, transport::QueuePair& qp, Datagram& out);
  // Schedules a queue pair that may have something to send again.
  void make_ready(transport::QueuePair& qp) { visit(qp, qp.agenda()); }
  // Makes reads and writes of sockets wait until the driver performs them. take_waiting_socket()
  // returns the next one that waits.
  void let_sockets_wait() { environment_.sockets_wait = true; }
  std::optional<transport::Environment::WaitingSocket> take_waiting_socket();
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
  // The engine is stored behind its queue pair (QueuePairOf). A reliable connection's engine is the
  // longest.
  static void prefetch_with_engine(const transport::QueuePair& qp) {
    const auto* begin = reinterpret_cast<const std::byte*>(&qp);
    prefetch(begin, begin + sizeof(transport::QueuePairOf<transport::rc::Engine>));
  }
  static std::uint64_t stream_key(std::uint16_t local_port, std::uint16_t peer_port,
                                  const Gid& peer);
  static std::uint64_t stream_key(const transport::QueuePair& qp, QpNumber peer,
                                  const Gid& address);
  verbs::VerbsStatus connect_stream(transport::QueuePair& qp, QpNumber peer, const Gid& address);
  void disconnect_stream(const transport::QueuePair& qp);
  // Schedules a queue pair and watches its deadline, as the agenda asks.
  void visit(transport::QueuePair& qp, const transport::Agenda& agenda) {
    schedule(qp, agenda);
    watch_deadline(qp, agenda.deadline);
  }
  void schedule(transport::QueuePair& qp, const transport::Agenda& agenda) {
    if (!qp.scheduled && agenda.work) add_to_turns(qp, agenda);
  }
  void add_to_turns(transport::QueuePair& qp, const transport::Agenda& agenda);
  void schedule_elsewhere(transport::QueuePair& qp);
  void handle_congestion_notification(Time now, const wire::Packet& packet);
  void handle_congestion_bits(Time now, transport::QueuePair& qp, const wire::Packet& packet,
                              const wire::Path& path);
  void handle_unknown(Time now, const wire::Packet& packet, transport::Payload payload,
                      const wire::Path& path, std::uint8_t port);
  void handle_multicast(Time now, const wire::Packet& packet, transport::Payload payload,
                        const wire::Path& path, std::uint8_t port);
  bool pull_notification(PortState& port, Datagram& out, std::uint32_t held_back_levels);
  bool pull_by_level(Time now, PortState& port, Datagram& out, std::uint32_t held_back_levels);
  bool pull_by_lane(Time now, PortState& port, Datagram& out);
  bool pull_from(Time now, PortState& port, transport::QueuePair& qp, Datagram& out);
  void complete_pull(const PortState& port, const transport::QueuePair& qp, Datagram& out);
  void watch_deadline(transport::QueuePair& qp, Time deadline);
  void handle_deadline_of(Time now, transport::QueuePair& qp);
  void handle_all_deadlines(Time now);
  verbs::VerbsStatus check(const transport::Transport& transport,
                           const transport::QueuePairInit& init) const;
  verbs::VerbsStatus check(const transport::QueuePair& qp,
                           const transport::QueuePairAttributes& attributes,
                           verbs::QpAttributeMask mask) const;
  bool is_path(const verbs::AddressVector& to) const;
  bool has_port(std::uint8_t number) const { return number >= 1 && number <= configuration_.ports; }
  QpNumber unused_qp_number(std::uint32_t hint);
  void attend_peers();
  void address(const PortState& port, const transport::QueuePair& qp, Datagram& out) const;
  static port::Route route_to(const PortState& port, const verbs::AddressVector& to,
                              std::uint16_t flow_entropy);
  static void address_segment(const PortState& port, const verbs::AddressVector& to, Datagram& out);
  std::bitset<gids_max> gids_in_use(std::uint8_t port) const;

  // The members that every packet touches, side by side.
  struct alignas(64) Hot {
    std::array<transport::QueuePair*, 2> recent{};  // the queue pairs found last
    const port::Framing* framing = nullptr;
    std::uint32_t packets_per_turn = 0;
    bool has_many_ports = false;
    IdMap<transport::QueuePair> qps_by_number;
    TimerQueue timers;
  };

  Configuration configuration_;
  mutable Counters counters_;  // the transport's part is updated in counters()
  transport::Environment environment_;
  Hot hot_;
  PortState first_port_;
  std::vector<PortState> other_ports_;
  port::LevelLanes lanes_;
  verbs::CompletionEvents completion_events_;
  Objects objects_;
  Owned<verbs::AddressHandle> handles_;
  Owned<transport::QueuePair> qps_;
  // The queue pairs by which SRD's packets leave, by service level. Each is created when it is
  // first needed.
  std::array<transport::QueuePair*, SendTurns::levels> carriers_{};
  std::uint32_t next_qp_offset_ = 0;
  MulticastGroups multicast_;
  std::unique_ptr<RawPackets> raw_packets_;  // null: there has been no raw packet queue pair
  // The queue pairs of connected streams, by the peer's address and both ports.
  std::unordered_map<std::uint64_t, transport::QueuePair*> streams_;
};

}  // namespace tulle::device
