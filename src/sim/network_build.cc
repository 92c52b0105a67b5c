// This file builds a network, its adapters, switches and links, from a topology and settings.

#include <algorithm>
#include <numeric>
#include <utility>

#include "fabric/lids.h"
#include "fabric/machines/placement.h"
#include "rdma/optional/transports.h"
#include "sim/network.h"

namespace tulle::sim {

using port::FlowControl;

namespace {

// The longest record of iWARP without ghosts is a TERMINATE, with its number of bytes in front.
constexpr std::uint32_t front_bytes_max = 88;

// Returns the configuration that all hosts share. Hosts differ only in seed and line rate.
device::Configuration configuration_of(const NetworkSettings& settings) {
  device::Configuration configuration;
  configuration.transports = &transport::all_transports();
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

Nodes::Nodes(const NetworkSettings& settings, const fabric::Routes& routes,
             const fabric::Topology& topology)
    : settings(settings),
      routes(routes),
      hosts(topology.hosts),
      switches(topology.switches),
      ends(std::accumulate(topology.ports.begin(), topology.ports.end(), std::size_t{0})),
      has_head_lifetimes(settings.switches.has_head_lifetimes()),
      has_kernels(settings.host.stack.cores > 0) {
  const Faults& faults = settings.faults;
  disturbed = settings.bit_error_rate > 0 || settings.lose_every > 0 || !faults.outages.empty() ||
              !faults.bit_errors.empty();
  if (settings.carries_bytes) {
    payload_bytes = settings.host.payload_bytes_max();
  } else if (settings.host.plays_iwarp) {
    payload_bytes = front_bytes_max;
    carries_fronts = true;
  }
  if (settings.bit_error_rate == 0 && faults.bit_errors.empty()) return;
  for (std::uint32_t node = 0; node < topology.nodes(); ++node) {
    noise.emplace_back(settings.seed ^ 0x4015'E000'0000'0000 ^ node);
  }
}

Time lookahead_of(const fabric::Topology& topology, const NetworkSettings& settings) {
  Time lookahead = Time::never();
  for (const fabric::Link& link : topology.links) {
    for (const auto& [from, to] : {std::pair{link.a, link.b}, {link.b, link.a}}) {
      lookahead = std::min(lookahead, link.delay + delay_around(topology, settings, from, to));
    }
  }
  return lookahead;
}

Network::Network(const fabric::Topology& topology, const fabric::Routes& routes,
                 const NetworkSettings& settings, Team* team, Processes* processes)
    : nodes_(settings, routes, topology), short_turn_(short_turn(topology)) {
  TULLE_CHECK(topology.hosts < 1u << 24);  // 10.0.0.0/8
  nodes_.lookahead = lookahead_of(topology, nodes_.settings);
  if (lookahead() == Time::zero() || (team != nullptr && team->size() == 1)) team = nullptr;
  if (processes != nullptr && processes->count() == 1) processes = nullptr;
  TULLE_CHECK(processes == nullptr || lookahead() > Time::zero());
  divide(topology, team, processes);
  const std::vector<std::int64_t> fastest = fastest_links(topology);
  make_hosts(fastest);
  if (nodes_.settings.non_minimal.is_used()) {
    TULLE_CHECK(nodes_.settings.switches.path_choice == fabric::PathChoice::adaptive);
    nodes_.non_minimal =
        std::make_unique<fabric::NonMinimalRouting>(topology, routes, nodes_.settings.non_minimal);
  }
  make_switches(topology);
  make_ends(topology);
  for (const fabric::Link& link : topology.links) connect(topology, link, fastest);
  if (nodes_.settings.switches.flow_control == FlowControl::credits) exchange_credits();
  if (!nodes_.settings.pkeys.empty()) set_partitions(topology);
  set_up_notices();
  set_up_stacks();
  set_up_rounds();
  if (nodes_.settings.faults.any()) plan_faults(topology);
}

Network::~Network() = default;

// Gives each thread of each process a part with about the same number of hosts, and the switches
// near to them.
void Network::divide(const fabric::Topology& topology, Team* team, Processes* processes) {
  const std::uint32_t threads = team == nullptr ? 1 : team->size();
  nodes_.processes = processes == nullptr ? 1 : processes->count();
  nodes_.parts_each = threads;
  const std::uint32_t parts = threads * nodes_.processes;
  TULLE_CHECK(parts <= topology.hosts && parts <= Nodes::parts_max);
  first_part_ = processes == nullptr ? 0 : processes->number() * threads;
  const std::vector<std::uint32_t> part_of = fabric::divide(topology, parts);
  std::vector<std::vector<std::uint32_t>> nodes_of(parts);
  std::uint32_t ends = 0;
  for (std::uint32_t node = 0; node < topology.nodes(); ++node) {
    nodes_.places.push_back({ends, 0, part_of[node] & 0xFF});
    ends += topology.ports[node];
    nodes_of[part_of[node]].push_back(node);
  }
  for (std::uint32_t number = first_part_; number < first_part_ + threads; ++number) {
    parts_.push_back(std::make_unique<Part>(nodes_, observers_, number));
    parts_.back()->own(std::move(nodes_of[number]));
  }
  if (team == nullptr && processes == nullptr) return;
  synchronizer_ = std::make_unique<Synchronizer>(parts_, team, processes);
}

void Network::make_hosts(const std::vector<std::int64_t>& fastest) {
  const NetworkSettings& settings = nodes_.settings;
  device::Configuration configuration = configuration_of(settings);
  for (std::uint32_t host = 0; host < hosts(); ++host) {
    if (!owns(host)) continue;
    configuration.seed = settings.seed << 24 ^ host;
    configuration.line_bits_per_second = fastest[host];
    Host& added = nodes_.hosts.emplace(host, configuration);
    if (settings.link_layer == LinkLayer::infiniband) {
      const Gid gid = fabric::gid_of(host);
      added.adapter.set_gids({&gid, 1});
      added.adapter.set_lid(fabric::lid_of(host, settings.lmc), settings.lmc);
    } else {
      const Gid gid = gid_of(host);
      added.adapter.set_gids({&gid, 1});
    }
  }
}

void Network::make_switches(const fabric::Topology& topology) {
  for (std::uint32_t node = hosts(); node < topology.nodes(); ++node) {
    if (!owns(node)) continue;
    fabric::Switch& added =
        nodes_.switches.emplace(node - hosts(), nodes_.settings.switches, node,
                                static_cast<std::uint16_t>(topology.ports[node]),
                                nodes_.settings.seed, part_of(node).frames());
    set_up_switch(added, node);
  }
}

void Network::make_ends(const fabric::Topology& topology) {
  for (std::uint32_t node = 0; node < topology.nodes(); ++node) {
    if (!owns(node)) continue;
    for (std::uint16_t port = 0; port < topology.ports[node]; ++port) {
      LinkEnd& end = nodes_.ends.emplace(nodes_.end_index(node, port));
      end.port = nodes_.is_host(node) ? &nodes_.hosts[node].adapter.port()
                                      : &nodes_.switches[node - hosts()].port(port);
      end.node = node;
      end.number = port;
    }
  }
}

void Network::set_up_switch(fabric::Switch& at, std::uint32_t node) {
  at.set_routes(nodes_.routes,
                nodes_.settings.link_layer == LinkLayer::infiniband &&
                    nodes_.settings.switches.path_choice == fabric::PathChoice::flow);
  if (nodes_.non_minimal != nullptr) at.set_non_minimal(*nodes_.non_minimal);
  if (!nodes_.settings.lanes.switches.empty())
    at.set_lanes(nodes_.settings.lanes.switches[node - hosts()]);
}

void Network::set_up_rounds() {
  if (lookahead() == Time::zero()) return order_by_time();
  // With links of a kilometre and more, a turn would be more than a cache holds.
  constexpr Time longest_round = Time::microseconds(4);
  for (const auto& part : parts_) part->take_turns(std::min(lookahead(), longest_round));
}

void Network::order_by_time() {
  if (in_order_of_time_) return;
  TULLE_CHECK(threads() == 1);
  in_order_of_time_ = true;
  parts_.front()->share_turn(short_turn_);
}

void Network::set_up_notices() {
  if (!nodes_.settings.endpoints.enabled) return;
  nodes_.ends.for_each([this](const LinkEnd& end) {
    if (!is_leaf_end(end)) return;
    const fabric::EndpointMonitor monitor(nodes_.settings.endpoints, end.bits_per_second,
                                          longest_frame_bytes(nodes_.settings));
    nodes_.switches[end.node - hosts()].set_monitor(end.number, monitor);
  });
  for (std::uint32_t i = 0; i < nodes_.switches.size(); ++i) {
    if (!nodes_.switches.has(i)) continue;
    nodes_.switches[i].set_notices(part_of(hosts() + i).notices());
  }
}

void Network::set_up_stacks() {
  if (!nodes_.has_kernels) return;
  for (std::uint32_t host = 0; host < hosts(); ++host) {
    if (owns(host)) part_of(host).add_kernel(host);
  }
}

void Network::set_partitions(const fabric::Topology& topology) {
  for (std::uint32_t node = topology.hosts; node < topology.nodes(); ++node) {
    nodes_.partitions.emplace_back(owns(node) ? topology.ports[node] : 0);
  }
  for (std::uint32_t host = 0; host < topology.hosts; ++host) {
    if (owns(host)) nodes_.hosts[host].adapter.set_pkeys(nodes_.settings.pkeys[host]);
  }
  nodes_.ends.for_each([this](const LinkEnd& end) {
    if (!is_leaf_end(end)) return;
    port::Partitions& at = nodes_.partitions[end.node - hosts()][end.number];
    for (const Pkey pkey : nodes_.settings.pkeys[end.peer])
      at.pkeys.push_back(wire::full_member(pkey));
    at.inbound = nodes_.settings.enforce_inbound;
    at.outbound = nodes_.settings.enforce_outbound;
  });
  if (!nodes_.settings.enforce_inbound && !nodes_.settings.enforce_outbound) return;
  for (std::size_t i = 0; i < nodes_.switches.size(); ++i) {
    if (nodes_.switches.has(i)) nodes_.switches[i].set_partitions(nodes_.partitions[i]);
  }
}

void Network::connect(const fabric::Topology& topology, const fabric::Link& link,
                      const std::vector<std::int64_t>& fastest) {
  const auto connect_one = [&](std::uint32_t from, std::uint16_t from_port, std::uint32_t to,
                               std::uint16_t to_port) {
    const Time delay = link.delay + delay_around(topology, nodes_.settings, from, to);
    nodes_.delay_max = std::max(nodes_.delay_max, delay);
    if (!owns(from)) return;
    LinkEnd& end = nodes_.end(from, from_port);
    end.peer = to;
    end.peer_end = static_cast<std::uint32_t>(nodes_.end_index(to, to_port));
    end.peer_turn = nodes_.places[to].turn;
    end.peer_part = nodes_.places[to].part;
    end.bits_per_second = link.bits_per_second;
    constexpr std::int64_t bits_ps_per_byte = 8'000'000'000'000;
    if (bits_ps_per_byte % link.bits_per_second == 0) {
      end.picoseconds_per_byte = bits_ps_per_byte / link.bits_per_second;
    }
    end.delay = delay.ps;
    // A frame that comes in slower than it may leave is stored. Otherwise its end would be due to
    // leave before it is there.
    end.peer_cuts_through =
        nodes_.settings.cut_through && !nodes_.is_host(to) && link.bits_per_second >= fastest[to];
    if (nodes_.is_host(to) && !nodes_.is_host(from))
      nodes_.switches[from - hosts()].set_leaf_port(from_port);
  };
  connect_one(link.a, link.a_port, link.b, link.b_port);
  connect_one(link.b, link.b_port, link.a, link.a_port);
  if (nodes_.settings.switches.congestion.enabled) set_victim_mask(link);
}

void Network::set_victim_mask(const fabric::Link& link) {
  using VictimMask = port::CongestionSettings::VictimMask;
  const VictimMask mask = nodes_.settings.switches.congestion.victim_mask;
  const auto set = [&](std::uint32_t node, std::uint16_t port, std::uint32_t peer) {
    if (!owns(node) || nodes_.is_host(node) || mask == VictimMask::none) return;
    if (mask == VictimMask::hosts && !nodes_.is_host(peer)) return;
    nodes_.switches[node - hosts()].port(port).mark_as_victim();
  };
  set(link.a, link.a_port, link.b);
  set(link.b, link.b_port, link.a);
}

// Exchanges the credits that InfiniBand's ports announce when a link comes up, before any packet.
// All ports have the same memory, so that one more port tells what those of other processes
// announce.
void Network::exchange_credits() {
  port::Port elsewhere(nodes_.settings.switches, nullptr);
  nodes_.ends.for_each([&](LinkEnd& end) {
    const bool has_peer_here = owns(end.peer);
    for (std::uint8_t lane = 0; lane < port::classes; ++lane) {
      const port::Control own = end.port->announce_credits(lane);
      if (has_peer_here) {
        nodes_.ends[end.peer_end].port->handle_control(Time::zero(), own);
      } else {
        const port::Control other = elsewhere.announce_credits(lane);
        TULLE_CHECK(other.packed() == own.packed());
        end.port->handle_control(Time::zero(), other);
      }
    }
  });
}

}  // namespace tulle::sim
