// This file builds a network, its adapters, switches and links, from a topology and settings.

#include <algorithm>
#include <bit>
#include <utility>

#include "fabric/lids.h"
#include "port/framing/infiniband.h"
#include "port/framing/roce_v1.h"
#include "port/framing/roce_v2.h"
#include "sim/network.h"
#include "sim/network_stack.h"
#include "wire/packet.h"
#include "wire/tcp.h"

namespace tulle::sim {

using port::FlowControl;

namespace {

// The longest record of iWARP without ghosts is a TERMINATE, with its number of bytes in front.
constexpr std::uint32_t front_bytes_max = 88;

// Returns the configuration that all hosts share. Hosts differ only in seed and line rate.
device::Configuration configuration_of(const NetworkSettings& settings) {
  device::Configuration configuration;
  configuration.mtu_bytes = settings.host.mtu_bytes;
  configuration.framing = &framing_of(settings);
  configuration.congestion = settings.host.congestion;
  configuration.recovery = settings.host.recovery;
  configuration.tcp = std::make_shared<const transport::tcp::Settings>(settings.host.tcp);
  configuration.srd = std::make_shared<const transport::srd::Settings>(settings.host.srd);
  configuration.packets_per_turn = 1;
  configuration.port = &settings.switches;
  configuration.lanes = settings.lanes.hosts;
  configuration.frame_bytes_max = longest_frame_bytes(settings);
  // A host has as many queue pairs as there are numbers, since a simulated host may have more peers
  // than a device of this machine serves.
  configuration.qp_count = configuration.limits.queue_pairs = (1u << 24) - 0x200;
  return configuration;
}

// Returns the length of a turn that all nodes share. Such a turn holds some tens of events when all
// hosts send.
Time short_turn(const fabric::Topology& topology) {
  constexpr std::int64_t packet_bits = 4'096 * 8;
  constexpr std::int64_t events_per_packet = 24;  // data and acknowledgement, over some links each
  constexpr std::int64_t events_per_turn = 128;
  constexpr std::int64_t longest = 1'000'000'000'000'000;  // keeps the products below in range
  const std::int64_t packet_time =
      std::min(packet_bits * 1'000'000'000'000 / topology.links.front().bits_per_second, longest);
  const std::int64_t turn = packet_time * events_per_turn / (events_per_packet * topology.hosts);
  return Time{std::clamp<std::int64_t>(turn, 1 << 6, 1 << 24)};
}

}  // namespace

Network::Network(const fabric::Topology& topology, const fabric::Routes& routes,
                 const NetworkSettings& settings)
    : settings_(settings),
      routes_(routes),
      hosts_(topology.hosts),
      short_turn_(short_turn(topology)) {
  TULLE_CHECK(topology.hosts < 1u << 24);  // 10.0.0.0/8
  const std::uint32_t nodes = topology.hosts + topology.switches;
  const std::vector<std::int64_t> fastest = fastest_links(topology);
  device::Configuration configuration = configuration_of(settings_);
  for (std::uint32_t host = 0; host < topology.hosts; ++host) {
    configuration.seed = settings_.seed << 24 ^ host;
    configuration.line_bits_per_second = fastest[host];
    Host& added = hosts_.emplace_back(configuration);
    if (settings_.link_layer == LinkLayer::infiniband) {
      const Gid gid = fabric::gid_of(host);
      added.adapter.set_gids({&gid, 1});
      added.adapter.set_lid(fabric::lid_of(host, settings_.lmc), settings_.lmc);
    } else {
      const Gid gid = gid_of(host);
      added.adapter.set_gids({&gid, 1});
    }
  }
  if (settings_.carries_bytes) {
    payloads_ = std::make_unique<port::Payloads>(settings_.host.payload_bytes_max());
  } else if (settings_.host.plays_iwarp) {
    payloads_ = std::make_unique<port::Payloads>(front_bytes_max);
    carries_fronts_ = true;
  }
  has_head_lifetimes_ = settings_.switches.has_head_lifetimes();
  disturbed_ = settings_.bit_error_rate > 0 || settings_.lose_every > 0;
  if (settings_.bit_error_rate > 0 || !settings_.faults.bit_errors.empty()) {
    for (std::uint32_t node = 0; node < nodes; ++node) {
      noise_.emplace_back(settings_.seed ^ 0x4015'E000'0000'0000 ^ node);
    }
  }
  if (settings_.non_minimal.is_used()) {
    TULLE_CHECK(settings_.switches.path_choice == fabric::PathChoice::adaptive);
    non_minimal_ =
        std::make_unique<fabric::NonMinimalRouting>(topology, routes, settings_.non_minimal);
  }
  switches_.reserve(topology.switches);
  std::uint32_t ports = 0;
  for (std::uint32_t node = 0; node < nodes; ++node) {
    first_end_.push_back(ports);
    ports += topology.ports[node];
    if (is_host(node)) continue;
    switches_.emplace_back(settings_.switches, node,
                           static_cast<std::uint16_t>(topology.ports[node]), settings_.seed,
                           frames_);
    set_up_switch(switches_.back(), node);
  }
  ends_.resize(ports);
  for (std::uint32_t node = 0; node < nodes; ++node) {
    for (std::uint16_t port = 0; port < topology.ports[node]; ++port) {
      LinkEnd& end = ends_[end_index(node, port)];
      end.port =
          is_host(node) ? &hosts_[node].adapter.port() : &switches_[node - hosts()].port(port);
      end.node = node;
      end.number = port;
    }
  }
  for (const fabric::Link& link : topology.links) connect(topology, link, fastest);
  if (settings_.switches.flow_control == FlowControl::credits) exchange_credits();
  if (!settings_.pkeys.empty()) set_partitions(topology);
  set_up_notices();
  set_up_rounds();
  set_up_stacks();
  if (settings_.faults.any()) plan_faults(topology);
}

void Network::set_up_switch(fabric::Switch& at, std::uint32_t node) {
  at.set_routes(routes_, settings_.link_layer == LinkLayer::infiniband &&
                             settings_.switches.path_choice == fabric::PathChoice::flow);
  if (non_minimal_ != nullptr) at.set_non_minimal(*non_minimal_);
  if (!settings_.lanes.switches.empty()) at.set_lanes(settings_.lanes.switches[node - hosts()]);
}

void Network::set_up_rounds() {
  if (lookahead_ == Time::zero()) return order_by_time();
  // With links of a kilometre and more, a turn would be more than a cache holds.
  constexpr Time longest_round = Time::microseconds(4);
  const Time round = std::min(lookahead_, longest_round);
  // Keeps as many rounds as a packet is ever away, if they take no more than some megabytes.
  std::int64_t farthest = 0;
  for (const LinkEnd& end : ends_) farthest = std::max(farthest, end.delay);
  constexpr std::uint64_t entries_max = 1 << 22, rounds_max = 1 << 18;
  const std::uint64_t nodes = first_end_.size();
  const std::uint64_t most = std::min(std::bit_floor(entries_max / nodes | 1), rounds_max);
  const auto wanted = std::bit_ceil(static_cast<std::uint64_t>(farthest / round.ps) + 4);
  const std::uint64_t kept = std::max<std::uint64_t>(16, std::min(wanted, most));
  rounds_ = std::make_unique<Rounds>(round, static_cast<std::uint32_t>(nodes), kept);
}

void Network::order_by_time() {
  if (in_order_of_time_) return;
  TULLE_CHECK(turn_ == Rounds::no_node && events_ == 0);
  in_order_of_time_ = true;
  constexpr std::size_t kept = 1 << 14;
  const auto before = std::exchange(rounds_, std::make_unique<Rounds>(short_turn_, 1, kept));
  if (before == nullptr) return;
  while (before->begin(Time::never())) {
    for (std::uint32_t node; (node = before->next_node()) != Rounds::no_node;) {
      before->take(node, [this](const Event& event) { rounds_->add(0, event); });
    }
  }
}

void Network::set_partitions(const fabric::Topology& topology) {
  for (std::uint32_t node = topology.hosts; node < topology.nodes(); ++node) {
    partitions_.emplace_back(topology.ports[node]);
  }
  for (std::uint32_t host = 0; host < topology.hosts; ++host) {
    hosts_[host].adapter.set_pkeys(settings_.pkeys[host]);
    const LinkEnd& end = ends_[end_index(host, 0)];
    if (is_host(end.peer)) continue;
    port::Partitions& at = partitions_[end.peer - hosts()][end.peer_port];
    for (const Pkey pkey : settings_.pkeys[host]) at.pkeys.push_back(wire::full_member(pkey));
    at.inbound = settings_.enforce_inbound;
    at.outbound = settings_.enforce_outbound;
  }
  if (!settings_.enforce_inbound && !settings_.enforce_outbound) return;
  for (std::size_t i = 0; i < switches_.size(); ++i) switches_[i].set_partitions(partitions_[i]);
}

void Network::connect(const fabric::Topology& topology, const fabric::Link& link,
                      const std::vector<std::int64_t>& fastest) {
  const auto connect_one = [&](std::uint32_t from, std::uint16_t from_port, std::uint32_t to,
                               std::uint16_t to_port) {
    LinkEnd& end = ends_[end_index(from, from_port)];
    end.peer = to;
    end.peer_port = to_port;
    end.bits_per_second = link.bits_per_second;
    constexpr std::int64_t bits_ps_per_byte = 8'000'000'000'000;
    if (bits_ps_per_byte % link.bits_per_second == 0) {
      end.picoseconds_per_byte = bits_ps_per_byte / link.bits_per_second;
    }
    end.delay = (link.delay + delay_around(topology, settings_, from, to)).ps;
    // A frame that comes in slower than it may leave is stored. Otherwise its end would be due to
    // leave before it is there.
    end.peer_cuts_through =
        settings_.cut_through && !is_host(to) && link.bits_per_second >= fastest[to];
    lookahead_ = std::min(lookahead_, Time{end.delay});
    if (is_host(to) && !is_host(from)) switches_[from - hosts()].set_leaf_port(from_port);
  };
  connect_one(link.a, link.a_port, link.b, link.b_port);
  connect_one(link.b, link.b_port, link.a, link.a_port);
  if (settings_.switches.congestion.enabled) set_victim_mask(link);
}

void Network::set_victim_mask(const fabric::Link& link) {
  using VictimMask = port::CongestionSettings::VictimMask;
  const VictimMask mask = settings_.switches.congestion.victim_mask;
  const auto set = [&](std::uint32_t node, std::uint16_t port, std::uint32_t peer) {
    if (is_host(node) || mask == VictimMask::none) return;
    if (mask == VictimMask::hosts && !is_host(peer)) return;
    switches_[node - hosts()].port(port).mark_as_victim();
  };
  set(link.a, link.a_port, link.b);
  set(link.b, link.b_port, link.a);
}

// Exchanges the credits that InfiniBand's ports announce when a link comes up, before any packet.
void Network::exchange_credits() {
  for (LinkEnd& end : ends_) {
    port::Port& peer = *ends_[end_index(end.peer, end.peer_port)].port;
    for (std::uint8_t lane = 0; lane < port::classes; ++lane) {
      peer.handle_control(now_, end.port->announce_credits(lane));
    }
  }
}

Time delay_around(const fabric::Topology& topology, const NetworkSettings& settings,
                  std::uint32_t from, std::uint32_t to) {
  Time delay = topology.is_host(to) ? Time::zero() : settings.switch_latency;
  if (topology.is_adapter(from)) delay += settings.host.send_delay;
  if (topology.is_adapter(to)) delay += settings.host.receive_delay;
  const std::uint32_t lower = std::min(from, to);
  const bool is_inside = topology.is_host(lower) && !topology.is_adapter(lower);
  return is_inside ? delay : delay + settings.fec_delay;
}

std::vector<std::int64_t> fastest_links(const fabric::Topology& topology) {
  std::vector<std::int64_t> fastest(topology.nodes());
  for (const fabric::Link& link : topology.links) {
    for (const std::uint32_t node : {link.a, link.b}) {
      fastest[node] = std::max(fastest[node], link.bits_per_second);
    }
  }
  return fastest;
}

const port::Framing& framing_of(const NetworkSettings& settings) {
  if (settings.link_layer == LinkLayer::infiniband) return port::infiniband;
  return settings.is_roce_v1 ? port::roce_v1 : port::roce_v2;
}

const port::Overhead& overhead(const NetworkSettings& settings) {
  return framing_of(settings).overhead;
}

std::uint32_t longest_frame_bytes(const NetworkSettings& settings) {
  const std::uint32_t longest = settings.host.payload_bytes_max();
  const std::uint32_t packet = overhead(settings).stored_bytes(
      settings.host.mtu_bytes +
      static_cast<std::uint32_t>(wire::header_bytes_max + wire::icrc_bytes));
  const std::uint32_t further = train_header_bytes(settings, longest);
  if (!settings.host.plays_tcp) return packet + further;
  return further + std::max(packet, port::tcp_overhead.stored_bytes(settings.host.tcp.mss_bytes +
                                                                    wire::tcp_header_bytes));
}

std::uint32_t train_header_bytes(const NetworkSettings& settings, std::uint32_t payload_bytes) {
  const HostSettings& host = settings.host;
  if (host.train_packets == 1 || payload_bytes == 0) return 0;
  const std::uint32_t whole = host.plays_tcp ? host.tcp.mss_bytes : host.mtu_bytes;
  const std::uint32_t packet = whole / host.train_packets;
  const std::uint32_t further = (payload_bytes - 1) / packet;
  if (host.plays_tcp) {
    const port::Overhead& around = port::tcp_overhead;
    return further * (around.header_bytes + around.gap_bytes + wire::tcp_header_bytes);
  }
  const auto headers = static_cast<std::uint32_t>(
      wire::header_bytes(wire::opcode(wire::TransportClass::rc, wire::Operation::write_middle)));
  return further * (overhead(settings).around_transport_bytes() + headers);
}

}  // namespace tulle::sim
