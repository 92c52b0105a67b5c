#include <algorithm>
#include <array>
#include <functional>
#include <queue>
#include <vector>

#include "rdma/port/framing/overhead.h"
#include "rdma/wire/icrc.h"
#include "rdma/wire/packet.h"
#include "study/scenario/build.h"

namespace tulle::scenario {

using transport::Recovery;
using transport::RecoverySettings;
using wire::Operation;

namespace {

constexpr std::array<std::string_view, 3> recovery_names = {"go-back-n", "selective-repeat",
                                                            "go-back-0"};

std::uint32_t link_bytes(const sim::NetworkSettings& network, Operation operation,
                         std::uint32_t payload_bytes) {
  const port::Overhead& around = sim::overhead(network);
  const auto headers =
      wire::header_bytes(wire::opcode(wire::TransportClass::rc, operation)) + wire::icrc_bytes;
  return around.stored_bytes(static_cast<std::uint32_t>(headers) + payload_bytes) +
         around.gap_bytes + sim::train_header_bytes(network, payload_bytes);
}

struct Reach {
  std::uint32_t host = 0;
  Time time;
};

// Returns the host that a frame takes longest to reach by the shortest path, if each switch stores
// the frame whole (Dijkstra 1959).
Reach farthest(const fabric::Topology& topology, const sim::NetworkSettings& network,
               std::uint32_t from, std::uint32_t frame_bytes) {
  const std::uint32_t nodes = topology.hosts + topology.switches;
  std::vector<std::vector<std::pair<std::uint32_t, std::int64_t>>> ways(nodes);
  for (const fabric::Link& link : topology.links) {
    const auto bits_ps = static_cast<double>(frame_bytes) * 8e12;
    const auto sending =
        static_cast<std::int64_t>(bits_ps / static_cast<double>(link.bits_per_second));
    const std::int64_t takes = sending + (link.delay + network.fec_delay).ps;
    const auto add = [&](std::uint32_t a, std::uint32_t b) {
      ways[a].emplace_back(b, takes + (topology.is_host(b) ? 0 : network.switch_latency.ps));
    };
    add(link.a, link.b);
    add(link.b, link.a);
  }
  std::vector<std::int64_t> best(nodes, Time::never().ps);
  using Stop = std::pair<std::int64_t, std::uint32_t>;
  std::priority_queue<Stop, std::vector<Stop>, std::greater<>> stops;
  stops.emplace(best[from] = 0, from);
  Reach reach;
  while (!stops.empty()) {
    const auto [at, node] = stops.top();
    stops.pop();
    if (at > best[node]) continue;
    if (topology.is_host(node)) reach = {node, Time{at}};
    if (topology.is_host(node) && node != from) continue;  // hosts forward nothing
    for (const auto& [next, takes] : ways[node]) {
      if (at + takes < best[next]) stops.emplace(best[next] = at + takes, next);
    }
  }
  return reach;
}

// Returns the packets that a host can send until the first one's acknowledgement is back, on the
// longest path of an empty network (IRN 3.2). The longest path is searched for from two hosts,
// which finds it in trees and in networks where all hosts have alike positions.
std::uint32_t bandwidth_delay_packets(const Setup& setup) {
  const sim::NetworkSettings& network = setup.network;
  const std::uint32_t frame = link_bytes(network, Operation::write_middle, network.host.mtu_bytes);
  const std::uint32_t acknowledgement = link_bytes(network, Operation::acknowledge, 0);
  const Reach end = farthest(setup.topology, network, 0, frame);
  const Time there = farthest(setup.topology, network, end.host, frame).time;
  const Time back = farthest(setup.topology, network, end.host, acknowledgement).time;
  const Time round_trip = there + back + (network.host.send_delay + network.host.receive_delay) * 2;
  const double bits = static_cast<double>(host_bits_per_second(setup.topology)) * 1e-12 *
                      static_cast<double>(round_trip.ps);
  return static_cast<std::uint32_t>(bits / 8 / frame) + 1;
}

}  // namespace

void read_recovery(TableReader& host, Setup& setup) {
  RecoverySettings& recovery = setup.network.host.recovery;
  recovery.kind = host.choice("recovery", recovery_names, Recovery::go_back_n);
  const bool selective = recovery.kind == Recovery::selective_repeat;
  // A window of few trains needs each acknowledgement. Elsewhere, they are half of all frames.
  const bool is_train = setup.network.host.train_packets > 1;
  if (is_train && !selective && !host.has("packets_per_ack")) {
    constexpr std::uint32_t trains_per_ack = 4;
    setup.network.host.congestion.packets_per_ack_request = trains_per_ack;
  }
  const std::uint32_t bdp = selective ? bandwidth_delay_packets(setup) : 0;
  constexpr std::int64_t most = 1 << 16;
  recovery.window_packets = static_cast<std::uint32_t>(
      host.integer("in_flight", std::min<std::int64_t>(bdp, most), selective ? 1 : 0, most));
  recovery.reordering_packets =
      static_cast<std::uint32_t>(host.integer("reordering", recovery.reordering_packets, 1, most));
  recovery.few_packets =
      static_cast<std::uint32_t>(host.integer("few_packets", recovery.few_packets, 0, most));
  recovery.timeout_low = host.time("timeout_low", recovery.timeout_low);
  recovery.timeout_high = host.time("timeout_high", recovery.timeout_high);
  for (const auto& [key, time] :
       {std::pair{"timeout_low", recovery.timeout_low}, {"timeout_high", recovery.timeout_high}}) {
    if (time <= Time::zero()) host.wrong(key, "must be more than zero");
  }
}

}  // namespace tulle::scenario
