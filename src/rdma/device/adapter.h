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
#include <vector>

#include "base/ids.h"
#include "base/prefetch.h"
#include "base/time.h"
#include "rdma/device/adapter_ports.h"
#include "rdma/device/address_handles.h"
#include "rdma/device/configuration.h"
#include "rdma/device/datagram.h"
#include "rdma/device/limits.h"
#include "rdma/device/multicast.h"
#include "rdma/device/objects.h"
#include "rdma/device/owned.h"
#include "rdma/device/queue_pair_numbers.h"
#include "rdma/device/send_turns.h"
#include "rdma/device/stream_table.h"
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
  static constexpr std::size_t gids_max = AdapterPort::gids_max;
  using OtherFraming = AdapterPort::OtherFraming;
  void set_gids(std::span<const Gid> gids, std::uint8_t port = 1, const OtherFraming& other = {});
  // Returns all addresses, including withdrawn ones as long as a queue pair or an address handle
  // has them.
  std::span<const Gid> gids(std::uint8_t port = 1) const { return ports_[port].gids(); }
  bool has_gid(std::size_t index, std::uint8_t port = 1) const {
    return ports_[port].has_gid(index);
  }
  // Returns the withdrawn addresses as of the last set_gids.
  const std::bitset<gids_max>& withdrawn_gids(std::uint8_t port = 1) const {
    return ports_[port].withdrawn_gids();
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
  transport::QueuePair* find_qp(QpNumber number) { return hot_.numbers.find(number); }

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
  port::Port& port(std::uint8_t number = 1) { return ports_[number].port; }
  const port::Port& port(std::uint8_t number = 1) const { return ports_[number].port; }
  // True if there may be something to send by a port, apart from the paused service levels (bit n:
  // level n). On Ethernet these are the classes that the neighbour has stopped.
  bool has_ready(std::uint32_t held_back_levels = 0, std::uint8_t port = 1) const {
    return ports_[port].turns.has_ready(held_back_levels);
  }
  // Prefetches the memory that the next packet to arrive will touch, for a driver of many adapters.
  void prefetch() const {
    prefetch_range(&environment_, &environment_.endpoint_limits);
    prefetch_range(&hot_, &hot_ + 1);
    tulle::prefetch(&counters_);
    ports_.first().prefetch();
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
    return static_cast<std::uint32_t>(hot_.numbers.size());
  }

 private:
  friend class HostStack;  // which schedules queue pairs itself

  // Returns the port by which a queue pair sends.
  AdapterPort& port_of(const transport::QueuePair& qp) { return ports_[qp.attributes().port]; }
  void take_out_of_turns(transport::QueuePair& qp) {
    port_of(qp).turns.remove(qp);
    port_of(qp).turns.remove_notification(qp);
  }

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
  // The engine is stored behind its queue pair (QueuePairOf). A reliable connection's engine is the
  // longest.
  static void prefetch_with_engine(const transport::QueuePair& qp) {
    const auto* begin = reinterpret_cast<const std::byte*>(&qp);
    prefetch_range(begin, begin + sizeof(transport::QueuePairOf<transport::rc::Engine>));
  }
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
  bool pull_notification(AdapterPort& port, Datagram& out, std::uint32_t held_back_levels);
  bool pull_by_level(Time now, AdapterPort& port, Datagram& out, std::uint32_t held_back_levels);
  bool pull_by_lane(Time now, AdapterPort& port, Datagram& out);
  bool pull_from(Time now, AdapterPort& port, transport::QueuePair& qp, Datagram& out);
  void complete_pull(const AdapterPort& port, const transport::QueuePair& qp, Datagram& out);
  void watch_deadline(transport::QueuePair& qp, Time deadline);
  void handle_deadline_of(Time now, transport::QueuePair& qp);
  void handle_all_deadlines(Time now);
  void attend_peers();
  std::bitset<gids_max> gids_in_use(std::uint8_t port) const;

  // The members that every packet touches, side by side.
  struct alignas(64) Hot {
    explicit Hot(const Configuration& configuration);
    QueuePairNumbers numbers;
    const port::Framing* framing;
    std::uint32_t packets_per_turn;
    bool has_many_ports;
    TimerQueue timers;
  };

  Configuration configuration_;
  mutable Counters counters_;  // the transport's part is updated in counters()
  transport::Environment environment_;
  Hot hot_;
  AdapterPorts ports_;
  port::LevelLanes lanes_;
  verbs::CompletionEvents completion_events_;
  Objects objects_;
  AddressHandles handles_;
  Owned<transport::QueuePair> qps_;
  // The queue pairs by which SRD's packets leave, by service level. Each is created when it is
  // first needed.
  std::array<transport::QueuePair*, SendTurns::levels> carriers_{};
  MulticastGroups multicast_;
  std::unique_ptr<RawPackets> raw_packets_;  // null: there has been no raw packet queue pair
  StreamTable streams_;
};

}  // namespace tulle::device
