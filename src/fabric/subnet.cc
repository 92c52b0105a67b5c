#include "fabric/subnet.h"

#include <algorithm>
#include <array>
#include <utility>

#include "fabric/lids.h"
#include "management/subnet/directed_route.h"
#include "rdma/wire/pma.h"

namespace tulle::fabric {
namespace {

using management::Packet;
using management::subnet::LinkRates;
using management::subnet::NodeSettings;
using management::subnet::RouteStep;

// This is no vendor's OUI, as in shim/identity.h.
constexpr std::uint32_t no_vendor = 0xFF'FFFF;
constexpr std::uint64_t switch_guids = 0x0200'0001'0000'0000;  // locally administered

// Bit rates of a lane by the names of PortInfo (IBTA 14.2.5.6), in units of 100 Mb/s.
struct Speed {
  std::int64_t lane = 0;
  std::uint8_t speeds = 0;
  std::uint8_t extended_speeds = 0;
};
constexpr std::array<Speed, 7> speeds = {
    {{25, 1, 0}, {50, 3, 0}, {100, 7, 0}, {140, 7, 1}, {250, 7, 3}, {500, 7, 7}, {1'000, 7, 15}}};
struct Width {
  std::int64_t lanes = 0;
  std::uint8_t widths = 0;
};
constexpr std::array<Width, 4> widths = {{{1, 1}, {4, 3}, {8, 7}, {12, 15}}};

// Returns the slowest width and speed that carry a link's rate. A faster link than any has the
// fastest.
LinkRates rates_of(std::int64_t bits_per_second) {
  LinkRates best{widths.back().widths, speeds.back().speeds, speeds.back().extended_speeds};
  std::int64_t best_rate = widths.back().lanes * speeds.back().lane + 1;
  const std::int64_t wanted = bits_per_second / 100'000'000;
  // Four lanes are the usual width, and so win among equal rates.
  for (const Width& width : {widths[1], widths[0], widths[2], widths[3]}) {
    for (const Speed& speed : speeds) {
      const std::int64_t rate = width.lanes * speed.lane;
      if (rate < wanted || rate >= best_rate) continue;
      best_rate = rate;
      best = {width.widths, speed.speeds, speed.extended_speeds};
    }
  }
  return best;
}

std::uint64_t guid_of(const Topology& topology, std::uint32_t node) {
  if (!topology.is_host(node)) return switch_guids + (node - topology.hosts) + 1;
  const Gid gid = gid_of(node);
  std::uint64_t guid = 0;
  for (std::size_t i = 8; i < 16; ++i) guid = guid << 8 | gid.bytes[i];
  return guid;
}

std::string without_spaces(std::string text) {
  std::erase(text, ' ');
  return text;
}

NodeSettings settings_of(const Topology& topology, const Wiring& wiring, std::uint32_t node,
                         const std::string& name) {
  NodeSettings settings;
  settings.is_switch = !topology.is_host(node);
  settings.ports = static_cast<std::uint8_t>(topology.ports[node]);
  settings.guid = guid_of(topology, node);
  settings.vendor_id = no_vendor;
  settings.description = settings.is_switch ? topology.name(node) : name + " tulle0";
  for (std::uint8_t port = 0; port < settings.ports; ++port) {
    const std::uint32_t link = wiring.peer(node, port).link;
    settings.rates.push_back(
        link == Wiring::no_link ? LinkRates{} : rates_of(topology.links[link].bits_per_second));
  }
  return settings;
}

management::subnet::RouteStep step(Packet& packet, const management::subnet::Node& node,
                                   std::uint8_t in_port) {
  return management::subnet::take_step(packet.mad, node.is_switch(), in_port, node.ports());
}

bool is_directed(const Packet& packet) {
  return packet.is_subnet_management() &&
         management::header_of(packet.mad).management_class == wire::subnet_directed_class;
}

constexpr std::uint64_t bytes_on_link = 8 + 12 + 8 + wire::mad_bytes + 4 + 2;  // LRH … VCRC

}  // namespace

Subnet::Subnet(Time now, const Topology& topology, std::vector<bool> is_elsewhere)
    : topology_(topology),
      wiring_(topology_),
      is_cut_(topology.links.size()),
      is_elsewhere_(std::move(is_elsewhere)) {
  is_elsewhere_.resize(topology_.nodes());
  nodes_.reserve(topology_.nodes());
  for (std::uint32_t node = 0; node < topology_.nodes(); ++node) {
    nodes_.push_back(
        {management::subnet::Node(settings_of(topology_, wiring_, node, name(node))), {}});
    nodes_.back().counters.resize(topology_.ports[node] + 1);
    is_open_.push_back(topology_.is_host(node));
  }
  for (std::uint32_t link = 0; link < topology_.links.size(); ++link) {
    const Link& of = topology_.links[link];
    if (is_elsewhere_[of.a] != is_elsewhere_[of.b]) ends_[link] = {};
    bring_up(now, link);
  }
}

std::string host_name(std::uint32_t host) { return "h" + std::to_string(host); }

std::string node_name(const Topology& topology, std::uint32_t node) {
  if (topology.is_host(node)) return host_name(node);
  return without_spaces(topology.name(node));
}

std::optional<std::uint32_t> Subnet::find(std::string_view wanted) const {
  for (std::uint32_t node = 0; node < topology_.nodes(); ++node) {
    if (name(node) == wanted) return node;
  }
  return std::nullopt;
}

// --- links ---

// Returns true if no end that is here holds the link down.
bool Subnet::is_open(std::uint32_t index) const {
  const Link& link = topology_.links[index];
  const auto is_enabled = [this](std::uint32_t node, std::uint16_t port) {
    return is_elsewhere_[node] ||
           nodes_[node].agent.is_enabled(static_cast<std::uint8_t>(port + 1));
  };
  return !is_cut_[index] && is_enabled(link.a, link.a_port) && is_enabled(link.b, link.b_port);
}

// A port that is enabled and loses its link has tried to recover it in vain, and counts that (IBTA
// 16.1.3.5, LinkDownedCounter). One that has been disabled has not lost it.
void Subnet::take_down(Time now, std::uint32_t node, std::uint8_t port) {
  auto& agent = nodes_[node].agent;
  const bool is_up = agent.physical_state(port) == wire::PhysicalState::link_up;
  if (is_up && agent.is_enabled(port)) ++nodes_[node].counters[port].link_downed;
  agent.link_down(now, port);
}

// Takes a link down, and up again if it may be.
void Subnet::bring_up(Time now, std::uint32_t index) {
  const Link& link = topology_.links[index];
  if (const auto end = ends_.find(index); end != ends_.end()) {
    ++link_changes_;
    const PortAt here = end_here(index);
    take_down(now, here.node, here.port);
    end->second.restart();
    return;
  }
  if (is_elsewhere_[link.a]) return;
  ++link_changes_;
  auto& a = nodes_[link.a].agent;
  auto& b = nodes_[link.b].agent;
  const auto a_port = static_cast<std::uint8_t>(link.a_port + 1);
  const auto b_port = static_cast<std::uint8_t>(link.b_port + 1);
  take_down(now, link.a, a_port);
  take_down(now, link.b, b_port);
  if (!is_open(index)) return;
  const wire::PortInfo info = a.port_info(a_port);
  a.link_up(now, a_port, b.port_info(b_port));
  b.link_up(now, b_port, info);
}

void Subnet::set_cut(Time now, std::uint32_t link, bool is_cut) {
  if (is_cut_[link] == is_cut) return;
  is_cut_[link] = is_cut;
  bring_up(now, link);
}

void Subnet::restart_links(Time now, std::uint32_t node) {
  for (;;) {
    const std::uint8_t port = nodes_[node].agent.take_restarted_link();
    if (port == management::subnet::Node::no_port) return;
    const std::uint32_t link = wiring_.peer(node, static_cast<std::uint16_t>(port - 1)).link;
    if (link != Wiring::no_link) bring_up(now, link);
  }
}

// --- nodes elsewhere ---

Subnet::PortAt Subnet::end_here(std::uint32_t index) const {
  const Link& link = topology_.links[index];
  const bool is_a = !is_elsewhere_[link.a];
  return {is_a ? link.a : link.b,
          static_cast<std::uint8_t>((is_a ? link.a_port : link.b_port) + 1)};
}

Subnet::PortReport Subnet::report(std::uint32_t node, std::uint8_t port) const {
  PortReport out{node, port, {}, nodes_[node].agent.port_info(port)};
  out.info.management_key = 0;
  if (port == 0) return out;
  const std::uint32_t link = wiring_.peer(node, static_cast<std::uint16_t>(port - 1)).link;
  const auto end = ends_.find(link);
  if (end != ends_.end()) out.end = end->second.report(is_open(link));
  return out;
}

bool Subnet::take_report(Time now, const PortReport& report) {
  if (report.node >= nodes_.size() || !is_elsewhere_[report.node]) return false;
  auto& agent = nodes_[report.node].agent;
  if (report.port > agent.ports() || (report.port == 0 && !agent.is_switch())) return false;
  agent.copy_port_info(report.port, report.info);
  if (report.port == 0) return true;
  const std::uint32_t link =
      wiring_.peer(report.node, static_cast<std::uint16_t>(report.port - 1)).link;
  const auto end = ends_.find(link);
  if (end == ends_.end()) return true;
  const PortAt here = end_here(link);
  auto& own = nodes_[here.node].agent;
  const bool is_up = own.physical_state(here.port) == wire::PhysicalState::link_up;
  if (end->second.take(report.end, report.info) && is_up) {
    take_down(now, here.node, here.port);
    ++link_changes_;
  }
  train(now, link);
  return true;
}

// Brings a link up if both ends are ready for it.
void Subnet::train(Time now, std::uint32_t link) {
  CableEnd& end = ends_.at(link);
  const PortAt here = end_here(link);
  auto& own = nodes_[here.node].agent;
  if (!end.is_ready() || !is_open(link)) return;
  if (own.physical_state(here.port) == wire::PhysicalState::link_up) return;
  own.link_up(now, here.port, end.far_port());
  // The ends may have no width or speed in common.
  if (own.physical_state(here.port) != wire::PhysicalState::link_up) return;
  end.count_up();
  ++link_changes_;
}

void Subnet::lose(Time now, std::uint32_t link) {
  ends_.at(link).lose();
  bring_up(now, link);
}

void Subnet::end_leases(std::span<const std::uint32_t> parts, std::uint32_t part,
                        std::uint16_t manager) {
  for (std::uint32_t node = 0; node < nodes_.size(); ++node) {
    if (!is_elsewhere_[node] && parts[node] == part) nodes_[node].agent.end_lease(manager);
  }
}

void Subnet::forget(std::uint32_t index) {
  auto& agent = nodes_[index].agent;
  for (std::uint32_t port = agent.is_switch() ? 0 : 1; port <= agent.ports(); ++port) {
    const auto number = static_cast<std::uint8_t>(port);
    wire::PortInfo info = agent.port_info(number);
    info.lid = 0;
    info.capability_mask = info.capability_mask & ~wire::capability_is_sm;
    info.speed_supported_and_state = wire::halves(wire::upper_half(info.speed_supported_and_state),
                                                  static_cast<unsigned>(wire::PortState::down));
    info.physical_state_and_down_default =
        wire::halves(static_cast<unsigned>(wire::PhysicalState::polling),
                     wire::lower_half(info.physical_state_and_down_default));
    agent.copy_port_info(number, info);
  }
}

std::uint32_t Subnet::ups(std::uint32_t link) const {
  const auto end = ends_.find(link);
  return end == ends_.end() ? 0 : end->second.ups();
}

std::optional<Subnet::Crossing> Subnet::take_crossing() {
  if (crossings_.empty()) return std::nullopt;
  const Crossing crossing = crossings_.front();
  crossings_.pop_front();
  return crossing;
}

void Subnet::arrive(const Crossing& crossing) {
  if (under_way_.size() >= under_way_max || crossing.hops >= hops_max) {
    ++discarded_;
    return;
  }
  const PortAt here = end_here(crossing.link);
  under_way_.push_back({here.node, here.port, crossing.hops, crossing.packet});
}

// --- datagrams ---

void Subnet::send(Time now, std::uint32_t host, std::uint8_t port, const Packet& packet) {
  Hop hop{host, port, 0, packet};
  originate(now, hop);
}

// Sends a datagram of this node itself: a program's, an answer or a trap.
void Subnet::originate(Time now, Hop& hop) {
  hop.hops = 0;
  // A route that begins by LID takes its first directed step at the switch that has the LID.
  if (is_directed(hop.packet) && !management::subnet::begins_by_lid(hop.packet.mad)) {
    const RouteStep next = step(hop.packet, nodes_[hop.node].agent, 0);
    if (next.kind != RouteStep::Kind::by_lid) return take(now, hop, next);
    hop.packet.destination = Lid(management::subnet::lid_after_route(hop.packet.mad));
  }
  const auto& node = nodes_[hop.node].agent;
  const Lid to = hop.packet.destination;
  if (to.value == wire::permissive_lid || node.has_lid(node.addressed_port(hop.port), to)) {
    deliver(now, hop);
  } else if (node.is_switch()) {
    route_by_lid(now, hop);
  } else {
    output(hop.node, hop.port, hop.hops, hop.packet);
  }
}

// Virtual lane 15 works once the link is up, and the lanes of data when the manager has made the
// port active (IBTA 7.2.7).
bool Subnet::carries(std::uint32_t node, std::uint8_t port, const Packet& packet) const {
  const auto& agent = nodes_[node].agent;
  if (packet.is_subnet_management()) {
    return agent.physical_state(port) == wire::PhysicalState::link_up;
  }
  return agent.state(port) == wire::PortState::active;
}

void Subnet::output(std::uint32_t node, std::uint8_t port, int hops, const Packet& packet) {
  const Wiring::Peer& peer = wiring_.peer(node, static_cast<std::uint16_t>(port - 1));
  auto& counters = nodes_[node].counters[port];
  const bool is_lost = peer.link == Wiring::no_link || !carries(node, port, packet) ||
                       hops >= hops_max || under_way_.size() >= under_way_max ||
                       crossings_.size() >= under_way_max;
  if (is_lost) {
    ++discarded_;
    ++counters.transmit_discards;
    return;
  }
  ++counters.packets_sent;
  counters.bytes_sent += bytes_on_link;
  if (is_elsewhere_[peer.node]) {
    crossings_.push_back({peer.link, hops + 1, packet, ends_.at(peer.link).attempt()});
  } else {
    under_way_.push_back({peer.node, static_cast<std::uint8_t>(peer.port + 1), hops + 1, packet});
  }
}

void Subnet::run(Time now) {
  do {
    // A packet may bring a node to send a trap at once.
    for (std::uint32_t node = 0; node < nodes_.size(); ++node) {
      if (nodes_[node].agent.next_trap() <= now) send_traps(now, node);
    }
    while (!under_way_.empty()) {
      Hop hop = under_way_.front();
      under_way_.pop_front();
      receive(now, hop);
    }
    // The answer to the request that restarts a link has left by then.
    for (const std::uint32_t node : std::exchange(with_restarted_links_, {})) {
      restart_links(now, node);
    }
  } while (next_event() <= now);
}

void Subnet::receive(Time now, Hop& hop) {
  if (!carries(hop.node, hop.port, hop.packet)) {
    ++discarded_;
    return;
  }
  auto& node = nodes_[hop.node];
  ++node.counters[hop.port].packets_received;
  node.counters[hop.port].bytes_received += bytes_on_link;
  const Lid to = hop.packet.destination;
  const std::uint8_t own = node.agent.addressed_port(hop.port);
  const bool is_own = to.value == wire::permissive_lid || node.agent.has_lid(own, to);
  if (!is_own) {
    route_by_lid(now, hop);
  } else if (is_directed(hop.packet)) {
    receive_directed(now, hop);
  } else {
    deliver(now, hop);
  }
}

// Takes a step of a directed route that does not continue by LID.
void Subnet::take(Time now, Hop& hop, const RouteStep& next) {
  switch (next.kind) {
    case RouteStep::Kind::here:
      deliver(now, hop);
      return;
    case RouteStep::Kind::on:
      hop.packet.source = hop.packet.destination = Lid(wire::permissive_lid);
      output(hop.node, next.port, hop.hops, hop.packet);
      return;
    default:
      ++discarded_;
      return;
  }
}

void Subnet::receive_directed(Time now, Hop& hop) {
  const RouteStep next = step(hop.packet, nodes_[hop.node].agent, hop.port);
  if (next.kind != RouteStep::Kind::by_lid) return take(now, hop, next);
  hop.packet.destination = Lid(management::subnet::lid_after_route(hop.packet.mad));
  route_by_lid(now, hop);
}

// Only switches forward.
void Subnet::route_by_lid(Time now, Hop& hop) {
  const auto& node = nodes_[hop.node].agent;
  const std::uint8_t port =
      node.is_switch() ? node.output_port(hop.packet.destination) : node.no_port;
  if (port == node.no_port) {
    ++discarded_;
  } else if (port == 0) {
    deliver(now, hop);
  } else {
    output(hop.node, port, hop.hops, hop.packet);
  }
}

// --- at the end of the way ---

void Subnet::deliver(Time now, Hop& hop) {
  if (hop.packet.is_subnet_management()) {
    deliver_subnet_management(now, hop);
  } else {
    deliver_general_service(now, hop);
  }
}

void Subnet::deliver_subnet_management(Time now, Hop& hop) {
  using Outcome = management::subnet::Node::Outcome;
  const std::uint8_t management_class = management::header_of(hop.packet.mad).management_class;
  if (management_class != wire::subnet_class && management_class != wire::subnet_directed_class) {
    ++discarded_;
    return;
  }
  auto& node = nodes_[hop.node].agent;
  switch (node.handle(now, hop.packet.mad, hop.port)) {
    case Outcome::nothing:
      break;
    case Outcome::answered:
      if (node.has_restarted_link()) with_restarted_links_.push_back(hop.node);
      send_answer(now, hop);
      return;
    case Outcome::for_manager:
      arrive(hop);
      return;
  }
}

void Subnet::arrive(const Hop& hop) {
  if (!is_open_[hop.node] || arrivals_.size() >= under_way_max) {
    ++discarded_;
  } else {
    const std::uint8_t port = nodes_[hop.node].agent.addressed_port(hop.port);
    arrivals_.push_back({hop.node, port, hop.packet});
  }
}

void Subnet::deliver_general_service(Time now, Hop& hop) {
  const auto header = management::header_of(hop.packet.mad);
  const bool is_performance =
      header.management_class == wire::performance_class && management::asks(header);
  if (!is_performance) return arrive(hop);
  if (management::performance::answer_by_port(hop.packet.mad, nodes_[hop.node].counters,
                                              hop.packet.mad)) {
    send_answer(now, hop);
  }
}

// Sends the answer that has taken its question's place.
void Subnet::send_answer(Time now, const Hop& hop) {
  Hop back{hop.node, hop.port, 0, management::answer_to(hop.packet)};
  // A question that came by the permissive LID is answered from the node's own.
  if (back.packet.source.value == wire::permissive_lid && !is_directed(back.packet)) {
    const auto& node = nodes_[hop.node].agent;
    back.packet.source = Lid(node.port_info(node.addressed_port(hop.port)).lid);
  }
  originate(now, back);
}

// --- events ---

void Subnet::set_manager(Time now, std::uint32_t host, std::uint8_t port, bool is_manager) {
  nodes_[host].agent.set_manager(now, port, is_manager);
}

void Subnet::send_traps(Time now, std::uint32_t index) {
  auto& node = nodes_[index].agent;
  Packet packet;
  while (const auto port = node.take_trap(now, packet.mad)) {
    const wire::PortInfo& info = node.port_info(*port);
    packet.source = Lid(info.lid);
    packet.destination = Lid(info.master_sm_lid);
    if (info.lid == 0 || info.master_sm_lid == 0) continue;  // no manager has been here
    Hop hop{index, *port, 0, packet};
    originate(now, hop);
  }
}

std::optional<Subnet::Arrival> Subnet::take_arrival() {
  if (arrivals_.empty()) return std::nullopt;
  Arrival arrival = arrivals_.front();
  arrivals_.pop_front();
  return arrival;
}

Time Subnet::next_event() const {
  Time next = under_way_.empty() ? Time::never() : Time::zero();
  for (const Node& node : nodes_) next = std::min(next, node.agent.next_trap());
  return next;
}

}  // namespace tulle::fabric
