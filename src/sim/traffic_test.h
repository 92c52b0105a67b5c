#pragma once

// Sends RDMA WRITEs over reliable connections in a Network, for tests, and records when they were
// acknowledged.

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

#include "fabric/routing.h"
#include "fabric/topology.h"
#include "sim/network.h"

namespace tulle::sim {

class Traffic {
 public:
  struct Connection {
    std::uint32_t from = 0;
    transport::QueuePair* sender = nullptr;
    transport::QueuePair* receiver = nullptr;
    std::uint32_t receiver_rkey = 0;
    std::uint64_t posted = 0;
    std::vector<Time> ends;  // times at which its messages ended, in order
    bool failed = false;
  };

  // `recovery` says how the network routes around faults. Null means that it does not.
  Traffic(const fabric::Topology& topology, const NetworkSettings& settings,
          fabric::RoutingKind routing = fabric::RoutingKind::shortest,
          const fabric::RecoverySettings* recovery = nullptr)
      : settings_(settings), routes_(routes_of(topology, routing)), hosts_(topology.hosts) {
    if (recovery != nullptr) {
      auto planned =
          fabric::plan_recovery(topology, {routing}, *recovery, settings_.faults.outages);
      TULLE_CHECK(static_cast<bool>(planned));
      recovery_ = std::move(*planned);
      settings_.faults.outages = recovery_.outages;
    }
    network_ = std::make_unique<Network>(topology, routes_, settings_);
    network_->follow(recovery_);
    for (std::uint32_t host = 0; host < topology.hosts; ++host) open(host);
  }

  Network& network() { return *network_; }
  const std::vector<Connection>& connections() const { return connections_; }

  // Creates a connection and returns its number.
  std::size_t connect(std::uint32_t from, std::uint32_t to, std::uint8_t service_level = 0) {
    Connection connection;
    connection.from = from;
    connection.sender = create(from);
    connection.receiver = create(to);
    connection.receiver_rkey = hosts_[to].memory->rkey().value;
    climb(to, *connection.receiver, connection.sender->number, from, service_level);
    climb(from, *connection.sender, connection.receiver->number, to, service_level);
    connections_.push_back(connection);
    return connections_.size() - 1;
  }

  // Posts a message now.
  void post(std::size_t number, std::uint32_t bytes) {
    Connection& connection = connections_[number];
    const verbs::Sge sge{0, bytes, hosts_[connection.from].memory->lkey()};
    verbs::SendRequest request;
    request.wr_id = number;
    request.opcode = verbs::SendOpcode::write;
    request.flags = verbs::SendFlag::signaled;
    request.sges = {&sge, 1};
    request.rkey = RemoteKey{connection.receiver_rkey};
    must(network().adapter(connection.from).post_send(*connection.sender, request));
    ++connection.posted;
    network().attend(connection.from);
  }
  // Posts a message at a future time.
  void post_at(Time at, std::size_t number, std::uint32_t bytes) {
    planned_.push_back({number, bytes});
    network().alarm(at, connections_[number].from, static_cast<std::uint32_t>(planned_.size() - 1));
  }
  // Creates a connection and posts one message.
  std::size_t write(std::uint32_t from, std::uint32_t to, std::uint32_t bytes,
                    Time at = Time::zero(), std::uint8_t service_level = 0) {
    const std::size_t number = connect(from, to, service_level);
    post_at(at, number, bytes);
    return number;
  }

  // Runs until no event is left or the next is later than `until`.
  void run(Time until = Time::never()) {
    for (;;) {
      const NetworkEvent event = network().run(until);
      if (event.kind == NetworkEvent::Kind::nothing) return;
      if (event.kind == NetworkEvent::Kind::host) poll(event.host);
      if (event.kind == NetworkEvent::Kind::alarm) {
        const Planned& planned = planned_[event.token];
        post(planned.connection, planned.bytes);
      }
    }
  }

  // Returns when a connection's first message was acknowledged. Time::never() means that it was
  // not.
  Time end(std::size_t number) const {
    const Connection& connection = connections_[number];
    return connection.ends.empty() ? Time::never() : connection.ends.front();
  }
  bool all_done() const {
    for (const Connection& connection : connections_) {
      if (connection.failed || connection.ends.size() != connection.posted) return false;
    }
    return true;
  }
  std::uint64_t retransmitted() const {
    std::uint64_t sum = 0;
    for (std::uint32_t host = 0; host < hosts_.size(); ++host) {
      sum += network_->adapter(host).counters().transport.retransmitted_packets;
    }
    return sum;
  }

 private:
  struct Host {
    verbs::ProtectionDomain* pd = nullptr;
    verbs::CompletionQueue* cq = nullptr;
    verbs::MemoryRegion* memory = nullptr;
  };
  struct Planned {
    std::size_t connection = 0;
    std::uint32_t bytes = 0;
  };

  static void must(verbs::VerbsStatus status) { TULLE_CHECK(status == verbs::VerbsStatus::ok); }
  static fabric::Routes routes_of(const fabric::Topology& topology, fabric::RoutingKind kind) {
    auto routes = fabric::compute_routes(topology, {kind});
    TULLE_CHECK(static_cast<bool>(routes));
    return std::move(*routes);
  }

  void open(std::uint32_t number) {
    verbs::VerbsStatus status{};
    device::Adapter& adapter = network().adapter(number);
    Host& host = hosts_[number];
    host.pd = adapter.objects().create_pd(status);
    host.cq = adapter.objects().create_cq(4'096, nullptr, status);
    const auto access =
        verbs::AccessFlags(verbs::Access::local_write) | verbs::Access::remote_write;
    host.memory =
        adapter.objects().register_memory(*host.pd, nullptr, 1ull << 32, 0, access, status);
    must(status);
  }

  transport::QueuePair* create(std::uint32_t number) {
    transport::QueuePairInit init;
    init.pd = hosts_[number].pd;
    init.send_cq = init.receive_cq = hosts_[number].cq;
    init.send_work_requests = 4'096;
    init.send_sges = init.receive_sges = 1;
    verbs::VerbsStatus status{};
    transport::QueuePair* qp = network().adapter(number).create_qp(init, status);
    must(status);
    return qp;
  }

  void climb(std::uint32_t host, transport::QueuePair& qp, QpNumber peer, std::uint32_t peer_host,
             std::uint8_t service_level) {
    using enum verbs::QpAttribute;
    using verbs::QpState;
    transport::QueuePairAttributes a;
    a.access = verbs::AccessFlags(verbs::Access::local_write) | verbs::Access::remote_write;
    a.path_mtu = static_cast<verbs::Mtu>(settings_.host.mtu_bytes);
    a.destination_qp = peer;
    a.address.destination = address_of(settings_, peer_host);
    a.address.service_level = service_level;
    a.timeout = 8;  // 1 ms
    a.retry_count = a.rnr_retry = 7;
    const std::pair<QpState, verbs::QpAttributeMask> ladder[] = {
        {QpState::init, verbs::QpAttributeMask(pkey_index) | port | access_flags},
        {QpState::rtr, verbs::QpAttributeMask(address_vector) | path_mtu | destination_qp | rq_psn |
                           max_dest_rd_atomic | min_rnr_timer},
        {QpState::rts,
         verbs::QpAttributeMask(timeout) | retry_count | rnr_retry | sq_psn | max_rd_atomic}};
    for (const auto& [to, mask] : ladder) {
      a.state = to;
      must(network().adapter(host).modify(qp, a, mask | state));
    }
  }

  void poll(std::uint32_t host) {
    verbs::Completion completion;
    while (hosts_[host].cq->poll({&completion, 1}) == 1) {
      Connection& connection = connections_[completion.wr_id];
      connection.ends.push_back(network().now());
      if (completion.status != verbs::CompletionStatus::success) connection.failed = true;
    }
  }

  NetworkSettings settings_;
  fabric::Routes routes_;
  fabric::Recovery recovery_;
  std::unique_ptr<Network> network_;
  std::vector<Host> hosts_;
  std::vector<Connection> connections_;
  std::vector<Planned> planned_;
};

// Returns settings without congestion control, where every packet is acknowledged.
inline NetworkSettings plain(LinkLayer layer = LinkLayer::ethernet) {
  NetworkSettings settings;
  settings.link_layer = layer;
  settings.switches.flow_control =
      layer == LinkLayer::ethernet ? port::FlowControl::pfc : port::FlowControl::credits;
  settings.switches.headroom_bytes = 200'000;
  settings.host.congestion.window.enabled = false;
  settings.host.congestion.packets_per_ack_request = 1;
  return settings;
}

inline fabric::Topology must(Result<fabric::Topology> topology) {
  TULLE_CHECK(static_cast<bool>(topology));
  return std::move(*topology);
}

inline fabric::Topology star(std::uint32_t hosts, std::int64_t bits_per_second,
                             Time delay = Time::microseconds(1)) {
  return must(fabric::single_switch({hosts, {bits_per_second, delay}}));
}

}  // namespace tulle::sim
