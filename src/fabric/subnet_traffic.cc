#include "fabric/subnet_traffic.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "fabric/link_counters.h"
#include "rdma/port/framing/overhead.h"
#include "rdma/wire/bth.h"
#include "rdma/wire/packet.h"

namespace tulle::fabric {
namespace {

using port::FrameRef;
using port::no_frame;

constexpr std::uint64_t seed = 1;  // no switch here draws anything
// A lane has memory for some sixteen of the longest packets, so that a packet which waits does not
// hold up the link.
constexpr std::uint32_t lane_buffer_bytes = 64 << 10;
// About HOQLife 19 (IBTA 14.2.5.6). OpenSM sets half of it between switches. Here packets behind a
// slow program outlast its patience, so that the program alone loses packets.
constexpr Time head_lifetime = Time::milliseconds(2'000);
static_assert(SubnetTraffic::slow_patience < head_lifetime);
constexpr std::uint32_t stalled_after = 1;  // packet that has waited for too long
static_assert(WaitingPorts::time_after_stop == SubnetTraffic::stopped_patience);
constexpr Lid permissive{wire::permissive_lid};

SwitchSettings settings_of_links() {
  SwitchSettings settings;
  settings.flow_control = port::FlowControl::credits;
  settings.lane_buffer_bytes = lane_buffer_bytes;
  settings.head_lifetime = head_lifetime;
  settings.leaf_head_lifetime = head_lifetime;
  return settings;
}

SwitchSettings settings_of_hosts() {
  SwitchSettings settings = settings_of_links();
  settings.leaf_head_lifetime = SubnetTraffic::stopped_patience;
  settings.stall_count = stalled_after;
  return settings;
}

bool is_multicast(Lid lid) { return lid.value > wire::unicast_lid_max && lid != permissive; }

// A program's end of its port announces no credits. It takes packets when it has room for them.
void announce_room(Time now, port::Port& port) {
  constexpr std::uint32_t most = 2'047;  // blocks ahead (IBTA 7.9.4.4)
  for (std::uint8_t lane = 0; lane < port::classes; ++lane) {
    const std::uint32_t limit = port.credits().senders[lane].total_sent() + most;
    const auto told = static_cast<std::uint16_t>(limit & port::credit_mask);
    port.handle_control(now, port::Control::of(port::CreditUpdate{lane, told}));
  }
}

}  // namespace

SubnetTraffic::SubnetTraffic(Time now, Subnet& subnet, SlotOf slot_of)
    : subnet_(subnet),
      slot_of_(slot_of),
      switch_settings_(std::make_unique<const SwitchSettings>(settings_of_links())),
      host_settings_(std::make_unique<const SwitchSettings>(settings_of_hosts())),
      arbitration_(subnet.topology().nodes()),
      packets_(subnet.topology().hosts),
      nodes_(subnet.topology().nodes()),
      programs_(subnet.topology().hosts),
      link_states_(subnet.topology()),
      to_send_(subnet.topology().nodes()),
      link_times_(subnet.topology().nodes()),
      multicast_numbers_(subnet.topology().nodes()) {
  const Topology& topology = subnet.topology();
  for (std::uint32_t node = topology.hosts; node < topology.nodes(); ++node) {
    if (subnet.is_elsewhere(node)) continue;
    const auto ports = static_cast<std::uint16_t>(topology.ports[node] + 1);
    nodes_[node] =
        std::make_unique<Switch>(*switch_settings_, node, ports, seed, packets_.frames());
    to_send_.set_ports(node, ports);
    link_times_.set_ports(node, ports);
    for (std::uint16_t port = 0; port + 1 < ports; ++port) {
      nodes_[node]->port(port).take_down(now);
    }
  }
  follow(now);
}

SubnetTraffic::~SubnetTraffic() = default;

void SubnetTraffic::ensure_host(std::uint32_t host) {
  if (nodes_[host] != nullptr) return;
  constexpr std::uint16_t ports = 1 + slots_max + 1;
  auto made = std::make_unique<Switch>(*host_settings_, host, ports, seed, packets_.frames());
  for (std::uint16_t port = 1; port <= slots_max; ++port) made->set_leaf_port(port);
  // A program that takes nothing is given up. A cable is not, however long a packet waits for it.
  port::PortControl::replace_arbitration(made->port(cable), *switch_settings_);
  to_send_.set_ports(host, ports);
  link_times_.set_ports(host, ports);
  nodes_[host] = std::move(made);
  if (arbitration_.is_written(host)) follow_arbitration(host);
}

// --- programs ---

void SubnetTraffic::attach(Time now, Program program) {
  const bool is_new = nodes_[program.host] == nullptr;
  ensure_host(program.host);
  programs_.attach(program);
  const At at{program.host, static_cast<std::uint16_t>(program.slot)};
  // The last program in the slot may have stalled a lane.
  nodes_[program.host]->port(at.port).bring_up();
  announce_room(now, nodes_[program.host]->port(at.port));
  if (!is_new) return;
  // The link has been up since before the host's end was there.
  const Wiring::Peer& peer = subnet_.wiring().peer(program.host, cable);
  if (peer.link == Wiring::no_link || !link_states_.is_up(peer.link)) {
    nodes_[program.host]->port(cable).take_down(now);
    return;
  }
  set_link(now, {peer.node, peer.port}, false);
  nodes_[program.host]->port(cable).bring_up();
  set_link(now, {peer.node, peer.port}, true);
  kick({program.host, cable});
}

void SubnetTraffic::detach(Time now, Program program) {
  programs_.detach(program);
  while (!take(now, program).empty()) ++counters_.lost;
}

SubnetTraffic::Offer SubnetTraffic::offer(Time now, Program program,
                                          std::span<const std::byte> packet) {
  if (packet.size() > packet_bytes_max) {
    ++counters_.invalid;
    return Offer::taken;
  }
  if (!packets_.has_place(program.host)) return Offer::no_room;
  const FrameRef ref = packets_.take_in(packet, program.host);
  const port::Frame& frame = packets_[ref];
  if (!label(ref, program.host)) {
    packets_.give(ref);
    return Offer::taken;
  }
  const At in{program.host, static_cast<std::uint16_t>(program.slot)};
  const auto& room = nodes_[in.node]->port(in.port).credits().receivers[frame.service_class];
  if (room.free_blocks() < port::blocks_of(frame.buffer_bytes)) {
    packets_.give(ref);
    return Offer::no_room;
  }
  ++counters_.packets;
  arrive(now, in, ref);
  return Offer::taken;
}

// Fills in what switches look at. Returns false, and counts, if the packet is none that a program
// of the host may send.
bool SubnetTraffic::label(FrameRef ref, std::uint32_t host) {
  wire::LocalPath path;
  const auto& agent = subnet_.node(host);
  if (!packets_.read_headers(ref, path) ||
      !agent.has_lid(agent.addressed_port(1), path.local.source)) {
    ++counters_.invalid;
    return false;
  }
  port::Frame& frame = packets_[ref];
  const auto lane = agent.lane(0, 1, path.local.service_level & 0xF);
  if (!lane || *lane >= port::classes) {
    ++counters_.laneless;
    return false;
  }
  frame.service_class = *lane & 0xF;
  if (is_multicast(path.local.destination)) {
    multicast_numbers_.number(frame);
  }
  return true;
}

std::span<const std::byte> SubnetTraffic::take(Time now, Program program) {
  if (taken_ != no_frame) packets_.give(std::exchange(taken_, no_frame));
  const At at{program.host, static_cast<std::uint16_t>(program.slot)};
  taken_ = nodes_[at.node]->pull(now, at.port);
  if (taken_ == no_frame) return {};
  announce_room(now, nodes_[at.node]->port(at.port));
  talk(at.node);
  ++counters_.delivered;
  return packets_.bytes_of(taken_);
}

bool SubnetTraffic::has_packet(Program program) const {
  return nodes_[program.host]->port(static_cast<std::uint16_t>(program.slot)).has_frame();
}

bool SubnetTraffic::is_given_up(Program program) const {
  return port::PortControl::drops_any(
      nodes_[program.host]->port(static_cast<std::uint16_t>(program.slot)));
}

void SubnetTraffic::resume(Time now, Program program) {
  port::Port& port = nodes_[program.host]->port(static_cast<std::uint16_t>(program.slot));
  port::PortControl::end_stalls(port, now);
}

// --- packets ---

void SubnetTraffic::arrive(Time now, At at, FrameRef ref) {
  port::Frame& frame = packets_[ref];
  const Lid to(static_cast<std::uint16_t>(frame.destination));
  if (is_host(at.node)) return arrive_at_host(now, at, ref, to);
  frame.via = (frame.via + 1u) & 0xFF;
  if (frame.via > hops_max) return discard(now, at, ref, counters_.unrouted);
  arrive_at_switch(now, at, ref, to);
}

void SubnetTraffic::arrive_at_switch(Time now, At at, FrameRef ref, Lid to) {
  const auto& agent = subnet_.node(at.node);
  if (is_multicast(to)) {
    if (multicast_numbers_.comes_again(at.node, packets_[ref]))
      return discard(now, at, ref, counters_.unrouted);
    outs_.clear();
    for (std::uint16_t out = 0; out < agent.ports(); ++out) {
      const bool is_on_tree = agent.forwards_multicast(to, static_cast<std::uint8_t>(out + 1));
      if (is_on_tree && out != at.port && carries({at.node, out})) outs_.push_back(out);
    }
    return spread(now, at, ref, outs_);
  }
  // Port 0 is the switch itself, which takes no packets of programs.
  const std::uint8_t out = agent.output_port(to);
  const bool has_way =
      out != agent.no_port && out != 0 && carries({at.node, static_cast<std::uint16_t>(out - 1)});
  if (!has_way) return discard(now, at, ref, counters_.unrouted);
  forward(now, at, ref, static_cast<std::uint16_t>(out - 1), at.port);
}

void SubnetTraffic::arrive_at_host(Time now, At at, FrameRef ref, Lid to) {
  const auto& agent = subnet_.node(at.node);
  const bool comes_by_cable = at.port == cable;
  if (is_multicast(to)) {
    outs_.clear();
    for (std::uint16_t slot = 1; slot <= slots_max; ++slot) {
      if (programs_.has(at.node, slot)) outs_.push_back(slot);
    }
    if (!comes_by_cable && carries({at.node, cable})) outs_.push_back(cable);
    return spread(now, at, ref, outs_);
  }
  if (!agent.has_lid(agent.addressed_port(1), to)) {
    const bool goes_on = !comes_by_cable && carries({at.node, cable});
    return goes_on ? forward(now, at, ref, cable, at.port)
                   : discard(now, at, ref, counters_.unrouted);
  }
  const auto header = std::span(packets_[ref].header).first<sizeof(wire::Bth)>();
  const std::uint32_t slot = slot_of_(wire::peek_destination_qp(header));
  if (!programs_.has(at.node, slot)) return discard(now, at, ref, counters_.unrouted);
  forward(now, at, ref, static_cast<std::uint16_t>(slot), at.port);
}

// Returns the lane on which a frame leaves, or nothing, and counts, if the manager's tables do not
// let it through. A host's own port has no say: the lane was chosen when the packet was sent.
std::optional<std::uint8_t> SubnetTraffic::lane_of(At in, std::uint16_t out,
                                                   const port::Frame& frame) {
  if (is_host(in.node)) return static_cast<std::uint8_t>(frame.service_class);
  const auto& agent = subnet_.node(in.node);
  const auto in_port = static_cast<std::uint8_t>(in.port + 1);
  const auto out_port = static_cast<std::uint8_t>(out + 1);
  const Pkey pkey = wire::peek_pkey(frame.header);
  if (!agent.lets_in(in_port, pkey) || !agent.lets_out(out_port, pkey)) {
    ++counters_.foreign;
    return std::nullopt;
  }
  const auto lane = agent.lane(in_port, out_port, frame.service_level);
  if (lane && *lane < port::classes) return lane;
  ++counters_.laneless;
  ++counters_of({in.node, out}).transmit_discards;
  return std::nullopt;
}

void SubnetTraffic::forward(Time now, At in, FrameRef ref, std::uint16_t out,
                            std::uint16_t came_by) {
  const auto lane = lane_of({in.node, came_by}, out, packets_[ref]);
  if (!lane) return discard(now, in, ref);
  if (nodes_[in.node]->receive(now, in.port, ref, out, *lane) == Switch::no_port) {
    packets_.give(ref);
    ++counters_.lost;
    talk(in.node);
    return;
  }
  kick({in.node, out});
}

void SubnetTraffic::spread(Time now, At in, FrameRef ref, std::span<const std::uint16_t> outs) {
  if (outs.empty()) return discard(now, in, ref, counters_.unrouted);
  const At copies{in.node, copies_of(in.node)};
  const std::uint32_t lane = packets_[ref].service_class;
  const std::uint32_t blocks = port::blocks_of(packets_[ref].buffer_bytes);
  for (const std::uint16_t out : outs.subspan(1)) {
    const auto& room = nodes_[in.node]->port(copies.port).credits().receivers[lane];
    if (room.free_blocks() < blocks || !packets_.has_place(packets_[ref].source)) {
      ++counters_.lost;
      continue;
    }
    const FrameRef copy = packets_.copy(ref);
    forward(now, copies, copy, out, in.port);
  }
  forward(now, in, ref, outs.front(), in.port);
}

// Discards a frame that has come in and has nowhere to go. Its credits are returned.
void SubnetTraffic::discard(Time now, At in, FrameRef ref, std::uint64_t& counter) {
  ++counter;
  discard(now, in, ref);
}

void SubnetTraffic::discard(Time now, At in, FrameRef ref) {
  nodes_[in.node]->discard_arrival(now, in.port, ref);
  packets_.give(ref);
  talk(in.node);
}

// The lanes of data are open when the manager has made the port active (IBTA 7.2.7). A host without
// programs takes nothing.
bool SubnetTraffic::carries(At at) const {
  const Wiring::Peer& peer = subnet_.wiring().peer(at.node, at.port);
  if (peer.link == Wiring::no_link) return false;
  if (nodes_[peer.node] == nullptr && !subnet_.is_elsewhere(peer.node)) return false;
  return subnet_.node(at.node).state(static_cast<std::uint8_t>(at.port + 1)) ==
         wire::PortState::active;
}

// --- links ---

// Ports have something to tell their neighbours.
void SubnetTraffic::talk(std::uint32_t node) {
  for (;;) {
    const std::uint16_t port = nodes_[node]->take_talker();
    if (port == Switch::no_port) return;
    kick({node, port});
  }
}

bool SubnetTraffic::run(Time now) {
  if (taken_ != no_frame) packets_.give(std::exchange(taken_, no_frame));
  waiting_.check(now, [&](At at) { return discard_heads(now, at); });
  link_times_.advance(now, [this](At at) { kick(at); });
  for (const At& at : std::exchange(held_back_, {})) kick(at);
  for (int step = 0; step < steps_max && !to_send_.empty(); ++step) send_all(now, to_send_.pop());
  return to_send_.empty();
}

void SubnetTraffic::send_all(Time now, At at) {
  Switch& from = *nodes_[at.node];
  port::Port& port = from.port(at.port);
  const bool has_neighbour = !is_program(at) && at.port != copies_of(at.node);
  while (!has_neighbour && port.has_control()) static_cast<void>(port.pull_control());
  if (is_program(at) && port.has_frame()) {
    programs_.note_ready({at.node, at.port});
    return waiting_.add(now, at);
  }
  if (!has_neighbour) return;
  const Wiring::Peer& peer = subnet_.wiring().peer(at.node, at.port);
  if (peer.link == Wiring::no_link || port.is_down()) return;
  if (subnet_.is_elsewhere(peer.node)) return send_elsewhere(now, at, peer.link);
  if (nodes_[peer.node] == nullptr) return;
  const At to{peer.node, peer.port};
  while (port.has_control()) {
    const port::Control control = port.pull_control();
    told(at, control.credit);
    if (nodes_[to.node]->port(to.port).handle_control(now, control)) continue;
    kick(to);
  }
  while (is_link_free(at)) {
    const FrameRef ref = from.pull(now, at.port);
    if (ref == no_frame) break;
    leave(at, ref);
    count_received(counters_of(to), packets_[ref]);
    arrive(now, to, ref);
  }
  if (port.queue_bytes() > 0) waiting_.add(now, at);
}

// A port tells its neighbour credits. Returns how much it has sent on that lane in total.
std::uint32_t SubnetTraffic::told(At at, port::CreditUpdate update) {
  const std::uint32_t sent =
      nodes_[at.node]->port(at.port).credits().senders[update.lane].total_sent();
  if (on_tell_) [[unlikely]] {
    on_tell_({at.node, static_cast<std::uint16_t>(at.port + 1), update, sent});
  }
  return sent;
}

// A packet goes onto a link.
void SubnetTraffic::leave(At at, FrameRef ref) {
  take_link(at, packets_[ref]);
  talk(at.node);
  count_sent(counters_of(at), packets_[ref]);
  if (on_send_) [[unlikely]] {
    const auto number = static_cast<std::uint16_t>(at.port + 1);
    on_send_({at.node, number, packets_[ref].service_class, packets_.bytes_of(ref)});
  }
}

// Returns false if the link carries a packet still. The port sends on when it is free.
bool SubnetTraffic::is_link_free(At at) {
  if (link_times_.is_free(at)) return true;
  if (nodes_[at.node]->port(at.port).has_frame()) link_times_.wait(at);
  return false;
}

void SubnetTraffic::take_link(At at, const port::Frame& frame) {
  if (!link_times_.keeps_rates()) return;
  const auto number = static_cast<std::uint8_t>(at.port + 1);
  const std::int64_t rate = wire::data_bits_per_second_of(subnet_.node(at.node).port_info(number));
  const std::int64_t bytes = frame.payload_bytes +
                             std::int64_t{wire::icrc_bytes + wire::vcrc_bytes} +
                             port::infiniband_overhead.gap_bytes;
  link_times_.carry(at, rate, bytes);
}

// Returns how long the packets at the head of a port may have waited. What a program waits for is
// found out only when it has taken nothing for long, since that takes a system call.
Time SubnetTraffic::head_lifetime(Time now, At at) const {
  const Switch& of = *nodes_[at.node];
  const Time usual = of.head_lifetime(at.port);
  if (!is_program(at) || !is_slow_) return usual;
  const Program program{at.node, at.port};
  const port::Port& port = of.port(at.port);
  for (std::uint32_t lane = 0; lane < port::classes; ++lane) {
    if (port.next_expiry(lane, usual) > now) continue;
    return !is_given_up(program) && is_slow_(program) ? slow_patience : usual;
  }
  return usual;
}

// Discards what has waited at a port for too long. Returns true if packets wait there.
bool SubnetTraffic::discard_heads(Time now, At at) {
  const Switch::Overdue overdue =
      nodes_[at.node]->take_overdue(now, at.port, head_lifetime(now, at));
  const std::uint64_t discarded = packets_.give_all(overdue.frames);
  counters_.overdue += discarded;
  if (!is_program(at)) counters_of(at).transmit_discards += discarded;
  talk(at.node);
  return !overdue.next.is_never();
}

void SubnetTraffic::set_link(Time now, At at, bool is_up) {
  if (nodes_[at.node] == nullptr) return;
  Switch& of = *nodes_[at.node];
  if (is_up) {
    of.port(at.port).bring_up();
    return kick(at);
  }
  const std::uint64_t lost = packets_.give_all(of.take_down(now, at.port));
  counters_.lost += lost;
  counters_of(at).transmit_discards += lost;
  talk(at.node);
}

void SubnetTraffic::follow_arbitration(std::uint32_t node) {
  if (nodes_[node] == nullptr) return;
  const auto& agent = subnet_.node(node);
  // The agent's port of a host is its cable.
  arbitration_.apply(node, agent, *switch_settings_, *nodes_[node]);
  for (std::uint16_t port = 0; port < agent.ports(); ++port) kick({node, port});
}

void SubnetTraffic::follow(Time now) {
  for (std::uint32_t node = 0; node < nodes_.size(); ++node) {
    if (arbitration_.has_changed(node, subnet_.node(node))) follow_arbitration(node);
  }
  link_states_.follow(subnet_, [&](const LinkStates::Change& change) {
    // The other end has restarted, and so does this one.
    if (change.restarts) set_link(now, change.end, false);
    // A neighbour elsewhere cannot see whether the host has programs.
    const bool needs_host = subnet_.leads_elsewhere(change.link) && is_host(change.end.node);
    if (needs_host) ensure_host(change.end.node);
    const Link& link = subnet_.topology().links[change.link];
    set_link(now, {link.a, link.a_port}, change.is_up);
    set_link(now, {link.b, link.b_port}, change.is_up);
  });
}

void SubnetTraffic::rebase(Time by) {
  for (const auto& node : nodes_) {
    if (node != nullptr) node->rebase(by);
  }
  waiting_.rebase(by);
  link_times_.rebase(by);
}

}  // namespace tulle::fabric
