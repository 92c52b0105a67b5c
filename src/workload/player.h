#pragma once

// Plays flows on adapters, as an application would: for each flow a connected pair of queue pairs,
// and one RDMA WRITE (or SEND, over TCP; of which the receiver is told, where another flow waits
// for it or where it is to be timed); with SRD one queue pair a host, by which it reaches all
// others. It knows adapters alone, so that it runs wherever they do.

#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/growing_ring.h"
#include "base/time.h"
#include "device/adapter.h"
#include "verbs/types.h"
#include "workload/flows.h"
#include "workload/payload.h"

namespace tulle::workload {

// How a host is to send to another, as a subnet manager says it (IBTA 15.2.5.16: PathRecord).
struct Path {
  std::uint8_t service_level = 0;
  std::uint16_t pkey_index = 0;
};

// What moves the adapters.
struct Stage {
  std::function<device::Adapter&(std::uint32_t host)> adapter;
  // Something was posted at a host.
  std::function<void(std::uint32_t host)> attend;
  // handle_alarm() is to be called then.
  std::function<void(Time at, std::uint32_t host, std::uint32_t token)> alarm;
  std::function<Gid(std::uint32_t host)> gid;
  // What happens at one host can be answered at another only so much later.
  Time lookahead;
  // For traffic of a QoS level; empty: the QoS level is the service level.
  // path_bits: which of the host's 2^LMC paths.
  std::function<Path(std::uint32_t from, std::uint32_t to, std::uint8_t qos_level,
                     std::uint8_t path_bits)>
      path = {};
};

// Of one flow: as many messages of 1 GiB as a send queue holds.
inline constexpr std::uint64_t flow_bytes_max = 1ull << 45;

// Flows over TCP in one run: see their queue pairs' numbers in player.cc.
inline constexpr std::size_t stream_flows_max = 1u << 22;

struct PlayerSettings {
  // How flows are carried: RDMA WRITEs on reliable connections, also such of iWARP, or on SRD, or
  // writes to and reads from TCP's sockets (queue pairs of that kind; path_mtu, timeout and
  // retry_count are not TCP's).
  verbs::QpType transport = verbs::QpType::rc;
  verbs::Mtu path_mtu = verbs::Mtu::b4096;
  std::uint8_t service_level = 0;
  std::uint8_t service_levels = 1;  // from service_level on, dealt over the flows in turn;
                                    // QoS levels, where the stage knows paths
  std::uint8_t traffic_class = 0;   // DSCP << 2 | ECN
  std::uint8_t paths = 1;           // 2^LMC: a host's connections take them in turn
  std::uint8_t timeout = 14;        // IBTA's code: 4.096 us * 2^n; adapters' usual default
  std::uint8_t retry_count = 7;
  std::uint64_t seed = 1;
  // What lies between an application and its adapter: from the call to the adapter's having the
  // request and its first bytes, and from the adapter's having acted to the application's seeing
  // it.
  Time post_delay;
  Time completion_delay;
  bool notify = false;  // every receiver is told, so that arrivals are known
  // Flows have memory at both ends, which is filled from the seed where they are sent, and checked
  // where they have arrived; else they are ghosts, lengths without bytes.
  bool carries_bytes = false;
};

// What arrived otherwise than it was sent.
struct Corruption {
  std::uint32_t flow = 0;
  PayloadDifference difference;
};

// As the applications see it.
struct FlowResult {
  Time start = Time::never();    // when it was posted
  Time end = Time::never();      // when its last byte was acknowledged; never: it was not
  Time arrived = Time::never();  // when its receiver was told of it; never: it was not
  verbs::CompletionStatus status = verbs::CompletionStatus::success;
};

class Player {
 public:
  Player(const Flows& flows, std::uint32_t hosts, const PlayerSettings& settings, Stage stage);

  // Sets alarms for the flows that wait for nothing.
  void begin();
  void handle_alarm(Time now, std::uint32_t token);
  // A host has new completions.
  void handle_completions(Time now, std::uint32_t host);

  const std::vector<FlowResult>& results() const { return results_; }
  std::uint64_t finished() const { return finished_; }
  std::uint64_t failed() const { return failed_; }
  std::uint64_t bytes_done() const { return bytes_done_; }
  // Of flows that carry bytes: what arrived as it was sent, and the first that did not.
  std::uint64_t bytes_verified() const { return bytes_verified_; }
  const std::optional<Corruption>& corruption() const { return corruption_; }

 private:
  static constexpr std::uint64_t message_bytes_max = 1u << 30;
  static constexpr Qkey srd_qkey{0x5D};  // any, as long as all have the same
  static constexpr std::int32_t nobody = -1;
  struct Host {
    verbs::ProtectionDomain* pd = nullptr;
    verbs::CompletionQueue* cq = nullptr;
    verbs::MemoryRegion* memory = nullptr;
    std::uint32_t senders = 0;  // connections by which it sends, ever
    // With SRD.
    transport::QueuePair* srd = nullptr;
    std::unordered_map<std::uint64_t, verbs::AddressHandle*> handles;  // by host and QoS level
    GrowingRing<std::uint32_t> waiting;  // flows that the send queue had no room for
  };
  // Of a flow by SRD, whose messages arrive in any order: how many are still to.
  struct Messages {
    std::uint32_t to_complete = 0;
    std::uint32_t to_arrive = 0;
  };
  struct Connection {
    transport::QueuePair* sender = nullptr;
    transport::QueuePair* receiver = nullptr;
    // Of a stream's receiver: it has read all, and its sender is done.
    bool read = false;
    bool closing = false;
  };

  struct Buffer {
    std::vector<std::byte> bytes;
    verbs::MemoryRegion* region = nullptr;
  };
  // Of a flow that carries bytes, while it is under way.
  struct Memory {
    Buffer sent, received;
  };

  Host& host(std::uint32_t number);
  bool is_told(std::uint32_t flow) const {
    return settings_.notify || first_waiting_[flow] != nobody;
  }
  // iWARP's WRITE carries no immediate: a SEND without data follows it, as its programs do it.
  bool tells_apart(std::uint32_t flow) const {
    using enum verbs::SendOpcode;
    return transport_.sends.has(write) && !transport_.sends.has(write_with_immediate) &&
           is_told(flow);
  }
  // Flows over sockets are writes and reads; the others are RDMA WRITEs.
  bool is_stream() const { return !transport_.sends.has(verbs::SendOpcode::write); }
  void connect(std::uint32_t flow);
  transport::QueuePair* create_end(std::uint32_t number, std::uint32_t hint, std::uint32_t sends,
                                   std::uint32_t receives);
  void connect_end(std::uint32_t number, transport::QueuePair& qp, QpNumber peer,
                   std::uint32_t peer_host, verbs::AddressVector address);
  void post(Time now, std::uint32_t flow);
  void post_requests(std::uint32_t flow);
  void post_stream(std::uint32_t flow);
  void send_requests(std::uint32_t flow, transport::QueuePair& sender, verbs::AddressHandle* handle,
                     QpNumber remote);

  // SRD: player_srd.cc.
  transport::QueuePair& srd_of(std::uint32_t number);
  verbs::AddressHandle* handle_to(std::uint32_t from, std::uint32_t to, std::uint8_t qos_level);
  void post_by_srd(std::uint32_t flow);
  void complete_by_srd(Time now, std::uint32_t number, const verbs::Completion& completion);

  // What a flow is read from and written to.
  struct Regions {
    const verbs::MemoryRegion* source = nullptr;
    const verbs::MemoryRegion* destination = nullptr;
  };
  Regions regions_of(std::uint32_t flow) const;
  void give_memory(std::uint32_t flow);
  void give_memory(std::uint32_t host, std::uint64_t bytes, Buffer& buffer);
  void close_receiver(std::uint32_t flow);
  void take_memory(std::uint32_t host, Buffer& buffer);
  void check_memory(std::uint32_t flow);
  void arrived(Time now, std::uint32_t flow);
  void finish(Time now, std::uint32_t flow, verbs::CompletionStatus status);

  const Flows& flows_;
  PlayerSettings settings_;
  const transport::Transport& transport_;  // the row of settings_.transport
  Stage stage_;
  std::vector<Host> hosts_;
  std::vector<std::uint32_t> flows_at_;      // by host, for the size of its queues
  std::vector<Messages> messages_;           // by flow, with SRD
  std::vector<Connection> connections_;      // by flow
  std::vector<std::int32_t> first_waiting_;  // by flow: a list of those that wait for it
  std::vector<std::int32_t> next_waiting_;
  std::vector<FlowResult> results_;
  std::vector<Memory> memories_;  // by flow; empty where they are ghosts
  std::uint64_t finished_ = 0;
  std::uint64_t failed_ = 0;
  std::uint64_t bytes_done_ = 0;
  std::uint64_t bytes_verified_ = 0;
  std::optional<Corruption> corruption_;
};

}  // namespace tulle::workload
