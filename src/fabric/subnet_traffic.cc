#include "fabric/subnet_traffic.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "rdma/port/framing/infiniband.h"
#include "rdma/port/framing/overhead.h"
#include "rdma/wire/bth.h"
#include "rdma/wire/packet.h"

namespace tulle::fabric {
namespace {

using port::FrameRef;
using port::no_frame;

constexpr std::uint64_t seed = 1;  // no switch here draws anything
// A short packet takes so much room, too. Otherwise, a few programs could fill the place for all
// packets with short ones.
constexpr std::size_t least_room_bytes = 512;
// A lane has memory for some sixteen of the longest packets, so that a packet which waits does not
// hold up the link.
constexpr std::uint32_t lane_buffer_bytes = 64 << 10;
// About HOQLife 19 (IBTA 14.2.5.6). OpenSM sets half of it between switches. Here packets behind a
// slow program outlast its patience, so that the program alone loses packets.
constexpr Time head_lifetime = Time::milliseconds(2'000);
// A switch remembers the numbers of so many multicast packets.
constexpr std::size_t forwarded_max = 4'096;
static_assert(SubnetTraffic::slow_patience < head_lifetime);
constexpr std::uint32_t stalled_after = 1;  // packet that has waited for too long
constexpr Time between_looks = Time::milliseconds(10);
// If a check comes so late, the thread that moves packets was stopped. The packets that waited for
// it are given as much time again as a program has.
constexpr Time late_after = Time::milliseconds(50);
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

// Returns nothing if a manager has written none.
std::optional<port::VlArbitration> arbitration_of(const management::subnet::Node& node,
                                                  std::uint8_t port) {
  const auto written = node.arbitration(port);
  const auto table_of = [](std::span<const std::byte> bytes) {
    std::vector<port::VlWeight> table;
    for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) {
      const auto lane = std::to_integer<std::uint8_t>(bytes[i] & std::byte{0xF});
      const auto weight = std::to_integer<std::uint8_t>(bytes[i + 1]);
      if (lane < port::classes && weight != 0) table.push_back({lane, weight});
    }
    return table;
  };
  const auto high = table_of(written.high), low = table_of(written.low);
  if (high.empty() && low.empty()) return std::nullopt;
  return port::VlArbitration(high, low, written.high_limit);
}

std::uint64_t link_bytes_of(const port::Frame& frame) {
  return frame.payload_bytes + wire::icrc_bytes + wire::vcrc_bytes;
}

bool is_multicast(Lid lid) { return lid.value > wire::unicast_lid_max && lid != permissive; }

}  // namespace

SubnetTraffic::SubnetTraffic(Time now, Subnet& subnet, SlotOf slot_of)
    : subnet_(subnet),
      slot_of_(slot_of),
      switch_settings_(std::make_unique<const SwitchSettings>(settings_of_links())),
      host_settings_(std::make_unique<const SwitchSettings>(settings_of_hosts())),
      own_settings_(subnet.topology().nodes()),
      arbitration_seen_(subnet.topology().nodes()),
      nodes_(subnet.topology().nodes()),
      attached_(subnet.topology().hosts),
      link_is_up_(subnet.topology().links.size()),
      ups_seen_(subnet.topology().links.size()),
      is_to_send_(subnet.topology().nodes()),
      free_at_(subnet.topology().nodes()),
      forwarded_(subnet.topology().nodes()),
      under_way_(subnet.topology().hosts + 1) {
  const Topology& topology = subnet.topology();
  for (std::uint32_t node = topology.hosts; node < topology.nodes(); ++node) {
    if (subnet.is_elsewhere(node)) continue;
    const auto ports = static_cast<std::uint16_t>(topology.ports[node] + 1);
    nodes_[node] = std::make_unique<Switch>(*switch_settings_, node, ports, seed, frames_);
    is_to_send_[node].resize(ports);
    free_at_[node].resize(ports);
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
  auto made = std::make_unique<Switch>(*host_settings_, host, ports, seed, frames_);
  for (std::uint16_t port = 1; port <= slots_max; ++port) made->set_leaf_port(port);
  // A program that takes nothing is given up. A cable is not, however long a packet waits for it.
  port::PortControl::replace_arbitration(made->port(cable), *switch_settings_);
  is_to_send_[host].resize(ports);
  free_at_[host].resize(ports);
  attached_[host].resize(slots_max + 1);
  nodes_[host] = std::move(made);
  if (arbitration_seen_[host] != 0) follow_arbitration(host);
}

// --- programs ---

void SubnetTraffic::attach(Time now, Program program) {
  const bool is_new = nodes_[program.host] == nullptr;
  ensure_host(program.host);
  attached_[program.host][program.slot] = true;
  const At at{program.host, static_cast<std::uint16_t>(program.slot)};
  // The last program in the slot may have stalled a lane.
  nodes_[program.host]->port(at.port).bring_up();
  grant(now, at);
  if (!is_new) return;
  // The link has been up since before the host's end was there.
  const Wiring::Peer& peer = subnet_.wiring().peer(program.host, cable);
  if (peer.link == Wiring::no_link || !link_is_up_[peer.link]) {
    nodes_[program.host]->port(cable).take_down(now);
    return;
  }
  set_link(now, {peer.node, peer.port}, false);
  nodes_[program.host]->port(cable).bring_up();
  set_link(now, {peer.node, peer.port}, true);
  kick({program.host, cable});
}

void SubnetTraffic::detach(Time now, Program program) {
  attached_[program.host][program.slot] = false;
  std::erase(ready_, program);
  while (!take(now, program).empty()) ++counters_.lost;
}

SubnetTraffic::Offer SubnetTraffic::offer(Time now, Program program,
                                          std::span<const std::byte> packet) {
  if (packet.size() > packet_bytes_max) {
    ++counters_.invalid;
    return Offer::taken;
  }
  if (!has_place(program.host)) return Offer::no_room;
  const FrameRef ref = take_in(packet, program.host);
  const port::Frame& frame = frames_[ref];
  if (!label(ref, program.host)) {
    give(ref);
    return Offer::taken;
  }
  const At in{program.host, static_cast<std::uint16_t>(program.slot)};
  const auto& room = nodes_[in.node]->port(in.port).credits().receivers[frame.service_class];
  if (room.free_blocks() < port::blocks_of(frame.buffer_bytes)) {
    give(ref);
    return Offer::no_room;
  }
  ++counters_.packets;
  arrive(now, in, ref);
  return Offer::taken;
}

void SubnetTraffic::give(FrameRef ref) {
  --under_way_[frames_[ref].source];
  frames_.give(ref);
}

// Returns true if a packet of a host may be under way, too. Programs of one host cannot have the
// place of all, and a host that has little under way has place even if there is none.
bool SubnetTraffic::has_place(std::uint32_t host) const {
  constexpr std::uint32_t always = 16;
  if (frames_.in_use() >= packets_max) return under_way_[host] < always;
  return under_way_[host] < packets_of_host_max || host == elsewhere();
}

// Copies a packet's bytes into a frame.
FrameRef SubnetTraffic::take_in(std::span<const std::byte> packet, std::uint32_t host) {
  const FrameRef ref = frames_.take();
  port::Frame& frame = frames_[ref];
  frame = {};
  frame.source = host & 0xFF'FFFF;
  ++under_way_[host];
  frame.payload_bytes = static_cast<std::uint16_t>(packet.size());
  frame.buffer_bytes =
      static_cast<std::uint16_t>(std::max(packet.size() + wire::icrc_bytes, least_room_bytes));
  std::ranges::copy(packet, packets_.of(ref));  // there may be none
  return ref;
}

// Fills in what switches look at besides the lane, from the packet's bytes. Returns false if they
// are no packet that can have a destination.
bool SubnetTraffic::address(FrameRef ref, wire::LocalPath& path) {
  const std::span<const std::byte> packet = bytes_of(ref);
  const auto link = port::decode_link_headers(packet, packet.size() + wire::icrc_bytes, path);
  const Lid to = path.local.destination;
  if (link.verdict != port::Verdict::ok || to == permissive || to == Lid(0)) return false;
  port::Frame& frame = frames_[ref];
  frame.destination = to.value;
  frame.service_level = path.local.service_level & 0xF;
  // Switches read the P_Key, and hosts the destination's queue pair.
  frame.header_bytes = sizeof(wire::Bth) & 0x3F;
  std::memcpy(frame.header.data(), packet.data() + link.bytes, sizeof(wire::Bth));
  return true;
}

// Fills in what switches look at. Returns false, and counts, if the packet is none that a program
// of the host may send.
bool SubnetTraffic::label(FrameRef ref, std::uint32_t host) {
  wire::LocalPath path;
  const auto& agent = subnet_.node(host);
  if (!address(ref, path) || !agent.has_lid(agent.addressed_port(1), path.local.source)) {
    ++counters_.invalid;
    return false;
  }
  port::Frame& frame = frames_[ref];
  const auto lane = agent.lane(0, 1, path.local.service_level & 0xF);
  if (!lane || *lane >= port::classes) {
    ++counters_.laneless;
    return false;
  }
  frame.service_class = *lane & 0xF;
  if (is_multicast(path.local.destination)) {
    constexpr std::uint32_t own_bits = 0x00FF'FFFF;
    set_number(frame, next_multicast_);
    next_multicast_ = (next_multicast_ & ~own_bits) | ((next_multicast_ + 1) & own_bits);
  }
  return true;
}

std::uint32_t SubnetTraffic::number_of(const port::Frame& frame) {
  std::uint32_t number = 0;
  std::memcpy(&number, frame.header.data() + number_at, sizeof number);
  return number;
}

void SubnetTraffic::set_number(port::Frame& frame, std::uint32_t number) {
  std::memcpy(frame.header.data() + number_at, &number, sizeof number);
}

// Notes that a switch forwards a multicast packet. Returns true if it did so before.
bool SubnetTraffic::comes_again(std::uint32_t node, const port::Frame& frame) {
  const std::uint32_t number = number_of(frame);
  std::vector<std::uint32_t>& numbers = forwarded_[node];
  if (numbers.empty()) numbers.resize(forwarded_max);
  return std::exchange(numbers[number % forwarded_max], number) == number;
}

std::span<const std::byte> SubnetTraffic::take(Time now, Program program) {
  if (taken_ != no_frame) give(std::exchange(taken_, no_frame));
  const At at{program.host, static_cast<std::uint16_t>(program.slot)};
  taken_ = nodes_[at.node]->pull(now, at.port);
  if (taken_ == no_frame) return {};
  grant(now, at);
  talk(at.node);
  ++counters_.delivered;
  return bytes_of(taken_);
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

std::optional<SubnetTraffic::Program> SubnetTraffic::take_ready() {
  if (ready_.empty()) return std::nullopt;
  const Program program = ready_.back();
  ready_.pop_back();
  return program;
}

// A program's end of its port announces no credits. It takes packets when it has room for them.
void SubnetTraffic::grant(Time now, At program) {
  port::Port& port = nodes_[program.node]->port(program.port);
  constexpr std::uint32_t most = 2'047;  // blocks ahead (IBTA 7.9.4.4)
  for (std::uint8_t lane = 0; lane < port::classes; ++lane) {
    const std::uint32_t limit = port.credits().senders[lane].total_sent() + most;
    const auto told = static_cast<std::uint16_t>(limit & port::credit_mask);
    port.handle_control(now, port::Control::of(port::CreditUpdate{lane, told}));
  }
}

// --- packets ---

std::span<const std::byte> SubnetTraffic::bytes_of(FrameRef ref) {
  return {packets_.of(ref), frames_[ref].payload_bytes};
}

void SubnetTraffic::arrive(Time now, At at, FrameRef ref) {
  port::Frame& frame = frames_[ref];
  const Lid to(static_cast<std::uint16_t>(frame.destination));
  if (is_host(at.node)) return arrive_at_host(now, at, ref, to);
  frame.via = (frame.via + 1u) & 0xFF;
  if (frame.via > hops_max) return discard(now, at, ref, counters_.unrouted);
  arrive_at_switch(now, at, ref, to);
}

void SubnetTraffic::arrive_at_switch(Time now, At at, FrameRef ref, Lid to) {
  const auto& agent = subnet_.node(at.node);
  if (is_multicast(to)) {
    if (comes_again(at.node, frames_[ref])) return discard(now, at, ref, counters_.unrouted);
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
      if (attached_[at.node][slot]) outs_.push_back(slot);
    }
    if (!comes_by_cable && carries({at.node, cable})) outs_.push_back(cable);
    return spread(now, at, ref, outs_);
  }
  if (!agent.has_lid(agent.addressed_port(1), to)) {
    const bool goes_on = !comes_by_cable && carries({at.node, cable});
    return goes_on ? forward(now, at, ref, cable, at.port)
                   : discard(now, at, ref, counters_.unrouted);
  }
  const auto header = std::span(frames_[ref].header).first<sizeof(wire::Bth)>();
  const std::uint32_t slot = slot_of_(wire::peek_destination_qp(header));
  const bool is_there = slot >= 1 && slot <= slots_max && attached_[at.node][slot];
  if (!is_there) return discard(now, at, ref, counters_.unrouted);
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
  ++subnet_.counters(in.node, out_port).transmit_discards;
  return std::nullopt;
}

void SubnetTraffic::forward(Time now, At in, FrameRef ref, std::uint16_t out,
                            std::uint16_t came_by) {
  const auto lane = lane_of({in.node, came_by}, out, frames_[ref]);
  if (!lane) return discard(now, in, ref);
  if (nodes_[in.node]->receive(now, in.port, ref, out, *lane) == Switch::no_port) {
    give(ref);
    ++counters_.lost;
    talk(in.node);
    return;
  }
  kick({in.node, out});
}

void SubnetTraffic::spread(Time now, At in, FrameRef ref, std::span<const std::uint16_t> outs) {
  if (outs.empty()) return discard(now, in, ref, counters_.unrouted);
  const At copies{in.node, copies_of(in.node)};
  const std::uint32_t lane = frames_[ref].service_class;
  const std::uint32_t blocks = port::blocks_of(frames_[ref].buffer_bytes);
  for (const std::uint16_t out : outs.subspan(1)) {
    const auto& room = nodes_[in.node]->port(copies.port).credits().receivers[lane];
    if (room.free_blocks() < blocks || !has_place(frames_[ref].source)) {
      ++counters_.lost;
      continue;
    }
    const FrameRef copy = frames_.take();
    frames_[copy] = frames_[ref];
    ++under_way_[frames_[copy].source];
    std::memcpy(packets_.of(copy), packets_.of(ref), frames_[ref].payload_bytes);
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
  give(ref);
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

void SubnetTraffic::kick(At at) {
  std::vector<bool>::reference is_waiting = is_to_send_[at.node][at.port];
  if (is_waiting) return;
  is_waiting = true;
  to_send_.push_back(at);
}

// Ports have something to tell their neighbours.
void SubnetTraffic::talk(std::uint32_t node) {
  for (;;) {
    const std::uint16_t port = nodes_[node]->take_talker();
    if (port == Switch::no_port) return;
    kick({node, port});
  }
}

bool SubnetTraffic::run(Time now) {
  if (taken_ != no_frame) give(std::exchange(taken_, no_frame));
  if (!waiting_.empty() && now >= look_at_waiting_) {
    if (now > look_at_waiting_ + late_after) {
      look_at_waiting_ = now + stopped_patience;
    } else {
      look_at_heads(now);
    }
  }
  if (keeps_rates_) look_at_links(now);
  for (const At& at : std::exchange(held_back_, {})) kick(at);
  for (int step = 0; step < steps_max && !to_send_.empty(); ++step) {
    const At at = to_send_.front();
    to_send_.pop_front();
    is_to_send_[at.node][at.port] = false;
    send_all(now, at);
  }
  return to_send_.empty();
}

void SubnetTraffic::send_all(Time now, At at) {
  Switch& from = *nodes_[at.node];
  port::Port& port = from.port(at.port);
  const bool has_neighbour = !is_program(at) && at.port != copies_of(at.node);
  while (!has_neighbour && port.has_control()) static_cast<void>(port.pull_control());
  if (is_program(at) && port.has_frame()) {
    const Program program{at.node, at.port};
    if (std::find(ready_.begin(), ready_.end(), program) == ready_.end()) ready_.push_back(program);
    return watch(now, at);
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
    count_received(to, frames_[ref]);
    arrive(now, to, ref);
  }
  if (port.queue_bytes() > 0) watch(now, at);
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
  take_link(at, frames_[ref]);
  talk(at.node);
  count_sent(at, frames_[ref]);
  if (on_send_) [[unlikely]] {
    const auto number = static_cast<std::uint16_t>(at.port + 1);
    on_send_({at.node, number, frames_[ref].service_class, bytes_of(ref)});
  }
}

// Returns false if the link carries a packet still. The port sends on when it is free.
bool SubnetTraffic::is_link_free(At at) {
  if (!keeps_rates_ || free_at_[at.node][at.port] <= link_now_) return true;
  if (nodes_[at.node]->port(at.port).has_frame()) {
    if (std::ranges::find(busy_, at) == busy_.end()) busy_.push_back(at);
  }
  return false;
}

void SubnetTraffic::take_link(At at, const port::Frame& frame) {
  if (!keeps_rates_) return;
  const auto number = static_cast<std::uint8_t>(at.port + 1);
  const std::int64_t rate = wire::data_bits_per_second_of(subnet_.node(at.node).port_info(number));
  if (rate == 0) return;
  const std::int64_t bits =
      8 * (frame.payload_bytes + std::int64_t{wire::icrc_bytes + wire::vcrc_bytes} +
           port::infiniband_overhead.gap_bytes);
  constexpr std::int64_t million = 1'000'000;
  const Time duration = Time::picoseconds(bits * million / (rate / million));
  free_at_[at.node][at.port] = link_now_ + duration;
}

// Advances the time of links to when the next one is free. If no packet waits, or the next one
// waits longer, it is the present.
void SubnetTraffic::look_at_links(Time now) {
  const Time earliest = now > catch_up_max ? now - catch_up_max : Time::zero();
  run_at_ = now;
  link_now_ = std::max({std::min(now, next_free_link()), link_now_, earliest});
  std::erase_if(busy_, [&](const At& at) {
    if (free_at_[at.node][at.port] > link_now_) return false;
    kick(at);
    return true;
  });
}

Time SubnetTraffic::next_free_link() const {
  Time next = Time::never();
  for (const At& at : busy_) next = std::min(next, free_at_[at.node][at.port]);
  return next;
}

// The counters of data have words of four bytes, from the LRH to the VCRC (IBTA 16.1.3.5). They
// count in bytes here.
void SubnetTraffic::count_sent(At from, const port::Frame& frame) {
  auto& sent = subnet_.counters(from.node, static_cast<std::uint8_t>(from.port + 1));
  ++sent.packets_sent;
  sent.bytes_sent += link_bytes_of(frame);
}

void SubnetTraffic::count_received(At to, const port::Frame& frame) {
  auto& received = subnet_.counters(to.node, static_cast<std::uint8_t>(to.port + 1));
  ++received.packets_received;
  received.bytes_received += link_bytes_of(frame);
}

void SubnetTraffic::watch(Time now, At at) {
  if (std::ranges::find(waiting_, at) != waiting_.end()) return;
  if (waiting_.empty()) look_at_waiting_ = now + between_looks;
  waiting_.push_back(at);
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

void SubnetTraffic::look_at_heads(Time now) {
  std::vector<At> left;
  for (const At& at : std::exchange(waiting_, {})) {
    Switch& of = *nodes_[at.node];
    const std::uint32_t before = frames_.in_use();
    const Time next = of.discard_heads(now, at.port, head_lifetime(now, at));
    const std::uint32_t discarded = before - frames_.in_use();
    counters_.overdue += discarded;
    if (!is_program(at)) {
      subnet_.counters(at.node, static_cast<std::uint8_t>(at.port + 1)).transmit_discards +=
          discarded;
    }
    talk(at.node);
    if (!next.is_never()) left.push_back(at);
  }
  waiting_ = std::move(left);
  look_at_waiting_ = now + between_looks;
}

void SubnetTraffic::set_link(Time now, At at, bool is_up) {
  if (nodes_[at.node] == nullptr) return;
  Switch& of = *nodes_[at.node];
  if (is_up) {
    of.port(at.port).bring_up();
    return kick(at);
  }
  for (FrameRef ref = of.take_down(now, at.port); ref != no_frame;) {
    const FrameRef next = frames_[ref].next;
    give(ref);
    ++counters_.lost;
    ++subnet_.counters(at.node, static_cast<std::uint8_t>(at.port + 1)).transmit_discards;
    ref = next;
  }
  talk(at.node);
}

void SubnetTraffic::follow_arbitration(std::uint32_t node) {
  if (nodes_[node] == nullptr) return;
  const auto& agent = subnet_.node(node);
  const port::Settings& usual = *switch_settings_;  // the agent's port of a host is its cable
  auto& own = own_settings_[node];
  own.resize(agent.ports());
  for (std::uint16_t port = 0; port < agent.ports(); ++port) {
    std::unique_ptr<port::Settings> made;
    const auto written = arbitration_of(agent, static_cast<std::uint8_t>(port + 1));
    if (written) {
      made = std::make_unique<port::Settings>(usual);
      made->arbitration = *written;
    }
    port::PortControl::replace_arbitration(nodes_[node]->port(port),
                                           made != nullptr ? *made : usual);
    own[port] = std::move(made);
    kick({node, port});
  }
}

void SubnetTraffic::follow(Time now) {
  for (std::uint32_t node = 0; node < nodes_.size(); ++node) {
    const std::uint32_t writes = subnet_.node(node).arbitration_writes();
    if (std::exchange(arbitration_seen_[node], writes) != writes) follow_arbitration(node);
  }
  if (changes_seen_ == subnet_.link_changes()) return;
  changes_seen_ = subnet_.link_changes();
  const auto& links = subnet_.topology().links;
  for (std::uint32_t i = 0; i < links.size(); ++i) {
    const Link& link = links[i];
    const At looked_at =
        subnet_.is_elsewhere(link.a) ? At{link.b, link.b_port} : At{link.a, link.a_port};
    if (subnet_.is_elsewhere(looked_at.node)) continue;
    const bool is_up = subnet_.node(looked_at.node)
                           .physical_state(static_cast<std::uint8_t>(looked_at.port + 1)) ==
                       wire::PhysicalState::link_up;
    const std::uint32_t ups = subnet_.ups(i);
    const bool has_come_up = std::exchange(ups_seen_[i], ups) != ups;
    if (is_up == link_is_up_[i] && !(is_up && has_come_up)) continue;
    // It has gone down and up at once. The other end has restarted, and so does this one.
    if (is_up && link_is_up_[i]) set_link(now, looked_at, false);
    link_is_up_[i] = is_up;
    // A neighbour elsewhere cannot see whether the host has programs.
    if (subnet_.leads_elsewhere(i) && is_host(looked_at.node)) ensure_host(looked_at.node);
    for (const At end : {At{link.a, link.a_port}, At{link.b, link.b_port}}) {
      set_link(now, end, is_up);
    }
  }
}

SubnetTraffic::Counters SubnetTraffic::counters() const { return counters_; }

}  // namespace tulle::fabric
