#pragma once

// Plays flows on adapters, as an application would. Each flow, or each connection that flows share,
// has a connected pair of queue pairs, and each flow has one RDMA WRITE (over TCP, one SEND). The
// receiver is told of its arrival if another flow or a schedule waits for it, or if arrivals are to
// be timed. With SRD, each host has one queue pair for all its peers. The player knows only
// adapters, so that it runs under every driver.

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/growing_ring.h"
#include "base/time.h"
#include "rdma/device/adapter.h"
#include "rdma/verbs/types.h"
#include "study/workload/carrier.h"
#include "study/workload/flows.h"
#include "study/workload/payload.h"

namespace tulle::workload {

// The way in which a host is to send to another, as a subnet manager reports it (IBTA 15.2.5.16:
// PathRecord).
struct PathRecord {
  std::uint8_t service_level = 0;
  std::uint16_t pkey_index = 0;
};

// The services of the driver that moves the adapters.
struct Stage {
  std::function<device::Adapter&(std::uint32_t host)> adapter;
  // Called after a request was posted at a host.
  std::function<void(std::uint32_t host)> attend;
  // Asks the driver to call handle_alarm() at that time.
  std::function<void(Time at, std::uint32_t host, std::uint32_t token)> alarm;
  // Returns the address of a host's port; path_bits selects one of its 2^LMC LIDs.
  std::function<PortAddress(std::uint32_t host, std::uint8_t path_bits)> address;
  // An event at one host can affect another host only this much later.
  Time lookahead;
  // Returns the path for traffic of a QoS level. If empty, the QoS level is the service level.
  // path_bits selects one of the host's 2^LMC paths.
  std::function<PathRecord(std::uint32_t from, std::uint32_t to, std::uint8_t qos_level,
                           std::uint8_t path_bits)>
      path = {};
  // Asks the driver to call meet_request() for a host, which may be another than that of the event,
  // before anything reaches it that is sent from now on, with the same token and note. If empty,
  // the player calls it at once.
  std::function<void(std::uint32_t host, std::uint32_t token, std::uint32_t note)> request = {};
  // Returns true if the driver has the host's adapter. If empty, it has all of them. Nothing is
  // asked of the adapters of other hosts, which another process has.
  std::function<bool(std::uint32_t host)> has = {};
  bool has_host(std::uint32_t host) const { return !has || has(host); }
};

// A host's peers must know this before they send to it. Programs tell each other by other ways than
// the network, such as a socket.
struct Introduction {
  std::uint32_t host = 0;
  RemoteKey key;    // of its memory
  QpNumber by_srd;  // its queue pair with SRD
};

// Most bytes of one flow: as many messages of 1 GiB as a send queue holds.
inline constexpr std::uint64_t flow_bytes_max = 1ull << 45;

// Most flows over TCP in one run, given by their queue pair numbers (player.cc).
inline constexpr std::size_t stream_flows_max = 1u << 22;

struct PlayerSettings {
  // The transport of the flows: RDMA WRITEs on reliable connections (rc, iwarp) or on SRD, or
  // writes to and reads from TCP sockets (stream). TCP does not use path_mtu, timeout and
  // retry_count.
  verbs::QpType transport = verbs::QpType::rc;
  verbs::Mtu path_mtu = verbs::Mtu::b4096;
  std::uint8_t service_level = 0;
  std::uint8_t service_levels = 1;  // flows alternate between this many levels from service_level;
                                    // they are QoS levels if the stage knows paths
  std::uint8_t traffic_class = 0;   // DSCP << 2 | ECN
  std::uint8_t paths = 1;           // 2^LMC: a host's connections alternate between the paths
  std::uint8_t timeout = 14;        // IBTA's code: 4.096 us * 2^n; the usual default of adapters
  std::uint8_t retry_count = 7;
  std::uint64_t seed = 1;
  // The time between an application and its adapter. post_delay runs from the call until the
  // adapter has the request and its first bytes, completion_delay from the adapter's action until
  // the application sees it.
  Time post_delay;
  Time completion_delay;
  // Hosts from this number on are ports of switches, which have no application and thus neither of
  // these delays.
  std::uint32_t adapters = 0xFFFF'FFFF;
  Time post_delay_of(std::uint32_t host) const {
    return host < adapters ? post_delay : Time::zero();
  }
  Time completion_delay_of(std::uint32_t host) const {
    return host < adapters ? completion_delay : Time::zero();
  }
  bool notify = false;  // tell every receiver, so that arrivals are known
  // If true, flows have memory at both ends. It is filled from the seed at the source and checked
  // at the destination. Otherwise they are ghosts, lengths without bytes.
  bool carries_bytes = false;
};

// A flow whose data differ on arrival from the data that were sent.
struct Corruption {
  std::uint32_t flow = 0;
  PayloadDifference difference;
};

// The result of a flow as the applications see it.
struct FlowResult {
  Time start = Time::never();    // time of the post
  Time end = Time::never();      // time when its last byte was acknowledged; never: it was not
  Time arrived = Time::never();  // time when its receiver was told of it; never: it was not
  verbs::CompletionStatus status = verbs::CompletionStatus::success;
};

// Returns true if a host has begun or met the flow.
inline bool has_happened(const FlowResult& result) {
  return !result.start.is_never() || !result.arrived.is_never();
}

// The numbers of flows that are over, and the bytes of those that are done.
struct FlowCounts {
  std::uint64_t finished = 0;
  std::uint64_t failed = 0;
  std::uint64_t bytes_done = 0;
};

// Returns the flow label of the connection of a flow, given by its index in the list. Ethernet's
// switches choose its path by it (the UDP source port follows from it).
std::uint32_t flow_label_of(const Flow& flow, std::uint32_t index, std::uint64_t seed);

class Player final : public Carrier {
 public:
  Player(const Flows& flows, std::uint32_t hosts, const PlayerSettings& settings, Stage stage);

  // Sets alarms for the flows that do not wait for others.
  void begin();
  // The schedule alone starts flows from now on. Called instead of begin().
  void follow(Schedule& schedule) { schedule_ = &schedule; }
  // Makes what each host here needs before its first flow, so that flows that begin at one host
  // need not make it at another. Called before anything happens, if hosts have their turns at the
  // same time.
  void open_hosts();
  // Returns what the opened hosts tell their peers.
  std::vector<Introduction> introductions() const;
  // Takes what a host of another process has told, before anything happens.
  void meet(const Introduction& other);
  void start(Time at, std::uint32_t flow) override {
    const std::uint32_t source = flows_[flow].source;
    stage_.alarm(at + settings_.post_delay_of(source), source, flow);
  }
  void handle_alarm(Time now, std::uint32_t token);
  // Takes the new completions of a host. Throws std::runtime_error, with one line, if a packet of
  // another process has named a flow to which it cannot belong.
  void handle_completions(Time now, std::uint32_t host);
  // Prepares the destination of a flow that its source has begun, at the destination. The note says
  // what the source knows of the connection.
  void meet_request(std::uint32_t flow, std::uint32_t note);
  // Return true if another process may send such an alarm or request for a host
  // (sim/application.h).
  bool accepts_alarm(std::uint32_t host, std::uint32_t token) const;
  bool accepts_request(std::uint32_t host, std::uint32_t flow, std::uint32_t note) const;

  const std::vector<FlowResult>& results() const { return results_; }
  FlowCounts counts() const { return {finished(), failed(), bytes_done()}; }
  std::uint64_t finished() const { return finished_.load(std::memory_order_relaxed); }
  std::uint64_t failed() const { return failed_.load(std::memory_order_relaxed); }
  std::uint64_t bytes_done() const { return bytes_done_.load(std::memory_order_relaxed); }
  // Bytes that arrived undamaged, and the first corruption, of flows that carry bytes.
  std::uint64_t bytes_verified() const { return bytes_verified_; }
  const std::optional<Corruption>& corruption() const { return corruption_; }

  // Adds what another process knows of a flow, or has counted, after the run.
  void merge(std::uint32_t flow, const FlowResult& other);
  void add(const FlowCounts& other);

 private:
  static constexpr std::uint64_t message_bytes_max = 1u << 30;
  static constexpr Qkey srd_qkey{0x5D};  // any value, as long as all have the same
  static constexpr std::int32_t nobody = -1;
  struct Host {
    verbs::ProtectionDomain* pd = nullptr;
    verbs::CompletionQueue* cq = nullptr;
    verbs::MemoryRegion* memory = nullptr;
    // A host tells its peers these two. They are known of hosts elsewhere, too, which have none of
    // the others.
    RemoteKey key;
    QpNumber srd_number;
    std::uint32_t senders = 0;  // connections by which it has sent so far
    // For SRD.
    transport::QueuePair* srd = nullptr;
    std::unordered_map<std::uint64_t, verbs::AddressHandle*> handles;  // by host and QoS level
    GrowingRing<std::uint32_t> waiting;  // flows for which the send queue had no room
  };
  // Counts the messages of an SRD flow that are still to come, since they arrive in any order.
  struct Messages {
    std::uint32_t to_complete = 0;
    std::uint32_t to_arrive = 0;
  };
  // Each member belongs to one of the hosts alone, which may be in different processes.
  struct Connection {
    transport::QueuePair* sender = nullptr;
    transport::QueuePair* receiver = nullptr;
    // Set by the sender, which tells them the receiver.
    QpNumber sender_number;
    std::uint8_t path_bits = 0;
    // For the receiver of a stream: it has read all data, and the sender is done.
    bool read = false;
    bool closing = false;
    bool sender_knows_of_read = false;
  };

  // A connection that several flows share, one behind the other.
  struct SharedConnection {
    Connection ends;
    std::uint32_t under_way = 0;         // flows that were posted and are not done
    bool has_failed = false;             // no flow will come any more
    GrowingRing<std::uint32_t> waiting;  // flows for which its queues have no room yet
  };

  struct Buffer {
    std::vector<std::byte> bytes;
    verbs::MemoryRegion* region = nullptr;
  };
  // The memory of a flow that carries bytes, while the flow is under way.
  struct Memory {
    Buffer sent, received;
  };

  Host& host(std::uint32_t number);
  bool is_told(std::uint32_t flow) const {
    return settings_.notify || schedule_ != nullptr || first_waiting_[flow] != nobody;
  }
  // iWARP's WRITE carries no immediate data. A SEND without data follows it, as in programs for
  // iWARP.
  bool tells_apart(std::uint32_t flow) const {
    using enum verbs::SendOpcode;
    return transport_.sends.has(write) && !transport_.sends.has(write_with_immediate) &&
           is_told(flow);
  }
  // The receivers of flows that come one behind the other keep receives ready, as programs do. The
  // immediate value then tells which flow has come.
  bool has_receives_ready(std::uint32_t flow) const {
    return shares(flow) && is_told(flow) && !tells_apart(flow) && !is_stream();
  }
  // Flows over sockets are writes and reads; the others are RDMA WRITEs.
  bool is_stream() const { return !transport_.sends.has(verbs::SendOpcode::write); }
  bool shares(std::uint32_t flow) const { return flows_[flow].connection >= 0; }
  SharedConnection& shared(std::uint32_t flow) {
    return shared_[static_cast<std::size_t>(flows_[flow].connection)];
  }
  // Returns true if the flow's connection failed with a flow before. What is asked of it then fails
  // as well, and its receiver still has the requests for what did not come.
  bool has_failed(std::uint32_t flow) { return shares(flow) && shared(flow).has_failed; }
  Connection& ends_of(std::uint32_t flow) {
    return shares(flow) ? shared(flow).ends : connections_[flow];
  }
  std::uint32_t receiver_hint(std::uint32_t flow) const;
  std::uint32_t messages_of(std::uint32_t flow) const;
  std::uint32_t depth_of(std::uint32_t flow) const;
  std::uint32_t flows_of_connection(std::uint32_t flow) const;
  verbs::AddressVector address_of(std::uint32_t flow, std::uint8_t path_bits) const;
  void connect(std::uint32_t flow);
  void accept(std::uint32_t flow, std::uint32_t note);
  void post_receive(std::uint32_t flow);
  void ask_receiver(std::uint32_t flow);
  void send(std::uint32_t flow);
  transport::QueuePair* create_end(std::uint32_t number, std::uint32_t hint, std::uint32_t sends,
                                   std::uint32_t receives);
  void connect_end(std::uint32_t number, transport::QueuePair& qp, QpNumber peer,
                   std::uint32_t peer_host, verbs::AddressVector address);
  void post(Time now, std::uint32_t flow);
  void write_stream(std::uint32_t flow);
  void read_stream(std::uint32_t flow);
  void send_requests(std::uint32_t flow, transport::QueuePair& sender, verbs::AddressHandle* handle,
                     QpNumber remote);

  // SRD, in player_srd.cc.
  transport::QueuePair& srd_of(std::uint32_t number);
  QpNumber srd_number_of(std::uint32_t number);
  verbs::AddressHandle* handle_to(std::uint32_t from, std::uint32_t to, std::uint8_t qos_level);
  void post_by_srd(std::uint32_t flow);
  void accept_by_srd(std::uint32_t flow);
  void complete_by_srd(Time now, std::uint32_t number, const verbs::Completion& completion);

  // The regions that a flow is read from and written to, each of which belongs to one of its hosts.
  const verbs::MemoryRegion& source_of(std::uint32_t flow) const;
  const verbs::MemoryRegion& destination_of(std::uint32_t flow) const;
  RemoteKey destination_key_of(std::uint32_t flow) const;
  void give_memory(std::uint32_t flow);
  void give_memory(std::uint32_t host, std::uint64_t bytes, Buffer& buffer);
  void close_receiver(std::uint32_t flow);
  void take_memory(std::uint32_t host, Buffer& buffer);
  void check_memory(std::uint32_t flow);
  void hear_of_read(std::uint32_t flow);
  void leave_shared(std::uint32_t flow);
  void check_named(std::uint32_t named, std::uint32_t host, std::uint32_t connected) const;
  void arrived(Time now, std::uint32_t flow);
  void finish(Time now, std::uint32_t flow, verbs::CompletionStatus status);

  const Flows& flows_;
  PlayerSettings settings_;
  const transport::Transport& transport_;  // the row of settings_.transport
  Stage stage_;
  Schedule* schedule_ = nullptr;
  std::vector<Host> hosts_;
  std::vector<std::uint32_t> flows_at_;      // number of flows by host, for the size of its queues
  std::vector<Messages> messages_;           // by flow, with SRD
  std::vector<Connection> connections_;      // by flow, of those that share none
  std::vector<SharedConnection> shared_;     // by number
  std::vector<std::int32_t> first_waiting_;  // by flow: head of the list of flows that wait for it
  std::vector<std::int32_t> next_waiting_;
  std::vector<FlowResult> results_;
  std::vector<Memory> memories_;  // by flow; empty if flows are ghosts
  // Hosts that have their turns at the same time count together.
  std::atomic<std::uint64_t> finished_ = 0;
  std::atomic<std::uint64_t> failed_ = 0;
  std::atomic<std::uint64_t> bytes_done_ = 0;
  std::uint64_t bytes_verified_ = 0;
  std::optional<Corruption> corruption_;
};

}  // namespace tulle::workload
