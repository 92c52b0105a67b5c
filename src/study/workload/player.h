#pragma once

// Plays flows on adapters, as an application would. Each flow, or each connection that flows share,
// has a connected pair of queue pairs, and each flow has one RDMA WRITE (over TCP, one SEND). The
// receiver is told of its arrival if another flow or a schedule waits for it, or if arrivals are to
// be timed. With SRD, each host has one queue pair for all its peers. The player knows only
// adapters, so that it runs under every driver.

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/growing_ring.h"
#include "base/time.h"
#include "rdma/device/adapter.h"
#include "rdma/verbs/types.h"
#include "study/workload/carrier.h"
#include "study/workload/endpoints.h"
#include "study/workload/flow_memory.h"
#include "study/workload/flows.h"
#include "study/workload/player_settings.h"
#include "study/workload/stage.h"

namespace tulle::workload {

// Most bytes of one flow: as many messages of 1 GiB as a send queue holds.
inline constexpr std::uint64_t flow_bytes_max = 1ull << 45;

// Most flows over TCP in one run, given by their queue pair numbers (player.cc).
inline constexpr std::size_t stream_flows_max = 1u << 22;

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
  void open_hosts() { endpoints_.open_all(); }
  // Returns what the opened hosts tell their peers.
  std::vector<Introduction> introductions() const { return endpoints_.introductions(); }
  // Takes what a host of another process has told, before anything happens.
  void meet(const Introduction& other) { endpoints_.meet(other); }
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
  std::uint64_t bytes_verified() const { return memory_.bytes_verified(); }
  const std::optional<Corruption>& corruption() const { return memory_.corruption(); }

  // Adds what another process knows of a flow, or has counted, after the run.
  void merge(std::uint32_t flow, const FlowResult& other);
  void add(const FlowCounts& other);

 private:
  static constexpr std::uint64_t message_bytes_max = 1u << 30;
  static constexpr std::int32_t nobody = -1;
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
  void post(Time now, std::uint32_t flow);
  void write_stream(std::uint32_t flow);
  void read_stream(std::uint32_t flow);
  void send_requests(std::uint32_t flow, transport::QueuePair& sender, verbs::AddressHandle* handle,
                     QpNumber remote);

  // SRD, in player_srd.cc.
  void post_by_srd(std::uint32_t flow);
  void accept_by_srd(std::uint32_t flow);
  void complete_by_srd(Time now, std::uint32_t number, const verbs::Completion& completion);

  void close_receiver(std::uint32_t flow);
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
  Endpoints endpoints_;
  FlowMemory memory_;
  // Flows for which the send queue had no room, with SRD, by host.
  std::vector<GrowingRing<std::uint32_t>> waiting_;
  std::vector<Messages> messages_;           // by flow, with SRD
  std::vector<Connection> connections_;      // by flow, of those that share none
  std::vector<SharedConnection> shared_;     // by number
  std::vector<std::int32_t> first_waiting_;  // by flow: head of the list of flows that wait for it
  std::vector<std::int32_t> next_waiting_;
  std::vector<FlowResult> results_;
  // Hosts that have their turns at the same time count together.
  std::atomic<std::uint64_t> finished_ = 0;
  std::atomic<std::uint64_t> failed_ = 0;
  std::atomic<std::uint64_t> bytes_done_ = 0;
};

}  // namespace tulle::workload
