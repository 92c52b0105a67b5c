#include "sim/cluster.h"

#include <algorithm>
#include <cstring>

namespace tulle::sim {

namespace {

// Bytes that a datagram costs on the wire besides its payload: IPv6, UDP, Ethernet with its
// checksum, preamble and gap.
constexpr std::int64_t overhead_bytes = 40 + 8 + 18 + 20;

}  // namespace

NodeNumber Cluster::add(const device::Configuration& configuration, std::span<const Gid> gids) {
  const NodeNumber number{size()};
  // Each node has a separate stream, so that one node's traffic does not change the faults of
  // another's.
  Random stream(settings_.seed ^ (0x5EED'0000 + number.value));
  fabric::FaultSettings faults = settings_.faults;
  faults.seed = stream.next();
  auto adapter = std::make_unique<device::Adapter>(configuration);
  adapter->set_gids(gids);
  nodes_.push_back(
      {std::move(adapter), fabric::Faults(faults), static_cast<std::uint16_t>(stream.next())});
  for (const Gid& gid : gids) {
    TULLE_CHECK(std::find_if(routes_.begin(), routes_.end(), [&gid](const Route& route) {
                  return route.gid == gid;
                }) == routes_.end());
    routes_.push_back({gid, number});
  }
  return number;
}

void Cluster::attend(NodeNumber node) {
  transmit(node);
  plan_deadline(node);
}

void Cluster::alarm(Time at, NodeNumber node, std::uint64_t token) {
  TULLE_CHECK(at >= now_);
  queue_.add(at, node.value, {Happening::Kind::alarm, token});
}

Happening Cluster::step() {
  if (queue_.empty()) return {};
  const auto event = queue_.pop();
  TULLE_CHECK(event.at >= now_);
  now_ = event.at;
  ++events_;
  const NodeNumber number{event.node};
  Node& node = nodes_[event.node];
  rebase(node);
  record(static_cast<std::uint64_t>(now_.ps));
  record(std::uint64_t{event.node} << 8 | static_cast<std::uint64_t>(event.what.kind));
  switch (event.what.kind) {
    case Happening::Kind::arrival:
      deliver(number, static_cast<std::uint32_t>(event.what.token));
      break;
    case Happening::Kind::port_free:
      node.port_busy = false;
      break;
    case Happening::Kind::deadline:
      // An earlier deadline may have been planned since.
      if (node.deadline_planned == now_) node.deadline_planned = Time::never();
      node.adapter->handle_deadline(clock_of(node));
      break;
    default:
      break;
  }
  attend(number);
  return {event.what.kind, number, event.what.token};
}

fabric::FaultCounters Cluster::faults() const {
  fabric::FaultCounters sum;
  for (const Node& node : nodes_) {
    const fabric::FaultCounters& counters = node.faults.counters();
    sum.dropped += counters.dropped;
    sum.duplicated += counters.duplicated;
    sum.reordered += counters.reordered;
    sum.corrupted += counters.corrupted;
  }
  return sum;
}

// Sends one datagram at a time. While it leaves, the adapter decides nothing about the next one.
void Cluster::transmit(NodeNumber from) {
  Node& node = nodes_[from.value];
  if (node.port_busy || !node.adapter->pull_datagram(clock_of(node), outgoing_)) return;
  const bool is_tcp = outgoing_.headers == device::Datagram::Headers::tcp;
  if (settings_.carriage == Carriage::datagrams && !is_tcp) {
    outgoing_.finish_frame(node.identification);
    if (settings_.identification_known) ++node.identification;
  }
  const std::uint32_t bytes = is_tcp ? outgoing_.segment_bytes() : outgoing_.udp_payload_bytes();
  const std::int64_t bits = (bytes + overhead_bytes) * 8;
  const Time departs = now_ + Time{bits * 1'000'000 / (settings_.link_bits_per_second / 1'000'000)};
  node.port_busy = true;
  queue_.add(departs, from.value, {Happening::Kind::port_free, 0});
  record(std::uint64_t{outgoing_.packet.psn.value()} << 32 |
         std::uint64_t{static_cast<std::uint8_t>(outgoing_.packet.opcode)} << 24 |
         outgoing_.packet.destination_qp.value);
  record(outgoing_.payload_bytes);
  const auto route = std::find_if(routes_.begin(), routes_.end(), [this](const Route& each) {
    return each.gid == outgoing_.ip().destination;
  });
  if (route == routes_.end()) return;
  if (node.cut_off || nodes_[route->node.value].cut_off) {
    if (tap_) tap_({now_, departs, from, route->node, outgoing_, {}});
    return;
  }
  carry(from, route->node, departs);
}

void Cluster::carry(NodeNumber number, NodeNumber to, Time departs) {
  Node& from = nodes_[number.value];
  fabric::Faults::Copies copies;
  copies.count = 1;  // one good copy, unless a fault is drawn
  if (now_ < settings_.faults_end) copies = from.faults.draw();
  if (tap_) tap_({now_, departs, number, to, outgoing_, copies});
  for (std::size_t i = 0; i < copies.count; ++i) {
    const fabric::Faults::Copy& copy = copies.copies[i];
    const std::uint32_t slot = take_slot();
    InFlight& flying = *slots_[slot];
    fill(flying);
    flying.damaged = copy.damaged;
    if (copy.damaged) flying.bytes.resize(from.faults.damage(flying.bytes));
    queue_.add(departs + settings_.link_delay + copy.held_up, to.value,
               {Happening::Kind::arrival, slot});
  }
}

std::uint32_t Cluster::take_slot() {
  if (free_slots_.empty()) {
    slots_.push_back(std::make_unique<InFlight>());
    return static_cast<std::uint32_t>(slots_.size() - 1);
  }
  const std::uint32_t slot = free_slots_.back();
  free_slots_.pop_back();
  return slot;
}

// Copies the bytes now, since the pieces are valid only until the adapter is called again.
void Cluster::fill(InFlight& slot) const {
  slot.ip = outgoing_.ip();
  slot.packet = outgoing_.packet;
  slot.ghost_bytes = outgoing_.piece_count == 0 ? outgoing_.payload_bytes : 0;
  slot.bytes.clear();
  slot.is_tcp = outgoing_.headers == device::Datagram::Headers::tcp;
  if (slot.is_tcp) return fill_segment(slot);
  const auto append = [&slot](std::span<const std::byte> bytes) {
    slot.bytes.insert(slot.bytes.end(), bytes.begin(), bytes.end());
  };
  const bool framed = settings_.carriage == Carriage::datagrams;
  if (framed) append(std::span(outgoing_.frame.head).first(outgoing_.frame.head_bytes));
  for (std::uint8_t i = 0; i < outgoing_.piece_count; ++i) append(outgoing_.pieces[i]);
  if (framed) append(std::span(outgoing_.frame.tail).first(outgoing_.frame.tail_bytes));
}

void Cluster::fill_segment(InFlight& slot) const {
  const std::span pieces(outgoing_.pieces.data(), outgoing_.piece_count);
  slot.tcp = outgoing_.tcp;
  if (settings_.carriage == Carriage::datagrams) {
    TULLE_CHECK(slot.ghost_bytes == 0);
    slot.tcp.checksum = wire::tcp_checksum(slot.ip, slot.tcp, pieces);
    slot.bytes.resize(wire::header_bytes(slot.tcp));
    wire::encode(slot.tcp, slot.bytes);
  }
  for (const auto& piece : pieces) slot.bytes.insert(slot.bytes.end(), piece.begin(), piece.end());
}

void Cluster::deliver_segment(NodeNumber to, const InFlight& flying) {
  Node& node = nodes_[to.value];
  std::span<const std::byte> bytes = flying.bytes;
  wire::Tcp tcp = flying.tcp;
  if (settings_.carriage == Carriage::datagrams) {
    // RFC 9293 §3.1: a segment with a wrong checksum is dropped. The checksum misses some damage
    // (bits in words that add up), but Ethernet's checksum detects it.
    if (wire::tcp_checksum(flying.ip, bytes) != 0 || flying.damaged) return;
    const wire::DecodedTcp decoded = wire::decode(bytes, tcp);
    if (!decoded.ok) return;
    bytes = bytes.subspan(decoded.header_bytes);
  }
  transport::Payload payload{bytes.data(), static_cast<std::uint32_t>(bytes.size())};
  if (flying.ghost_bytes > 0) payload = {nullptr, flying.ghost_bytes};
  node.adapter->handle_segment(clock_of(node), tcp, payload, flying.ip);
}

void Cluster::deliver(NodeNumber to, std::uint32_t slot) {
  Node& node = nodes_[to.value];
  InFlight& flying = *slots_[slot];
  const bool is_seen = arrival_tap_ && !flying.is_tcp && !node.cut_off;
  // The ICRC does not cover some bits, so that not all damage is found.
  const bool is_doubtful = flying.damaged && settings_.carriage == Carriage::datagrams;
  if (is_seen && !is_doubtful) arrival_tap_({now_, to, flying.packet});
  if (flying.is_tcp) {
    if (!node.cut_off) deliver_segment(to, flying);
  } else if (!node.cut_off && settings_.carriage == Carriage::datagrams) {
    wire::IpUdp ip = flying.ip;
    if (!settings_.identification_known) ip.identification = 0;
    const auto verdict = node.adapter->handle_datagram(
        clock_of(node), ip, settings_.identification_known, flying.bytes);
    record(static_cast<std::uint64_t>(verdict));
    if (is_seen && is_doubtful && verdict == port::Verdict::ok) {
      arrival_tap_({now_, to, flying.packet});
    }
  } else if (!node.cut_off) {
    transport::Payload payload{flying.bytes.data(),
                               static_cast<std::uint32_t>(flying.bytes.size())};
    if (flying.ghost_bytes > 0) payload = {nullptr, flying.ghost_bytes};
    node.adapter->handle_packet(clock_of(node), flying.packet, payload, flying.ip);
  }
  free_slots_.push_back(slot);
}

void Cluster::plan_deadline(NodeNumber number) {
  Node& node = nodes_[number.value];
  const Time due = node.adapter->next_deadline();
  if (due.is_never()) return;
  const Time deadline = std::max(due - settings_.clocks.ahead + node.behind, now_);
  if (deadline >= node.deadline_planned) return;
  node.deadline_planned = deadline;
  queue_.add(deadline, number.value, {Happening::Kind::deadline, 0});
}

void Cluster::rebase(Node& node) {
  if (settings_.clocks.events_per_rebase == 0) return;
  if (++node.events < settings_.clocks.events_per_rebase) return;
  node.events = 0;
  node.adapter->rebase(now_ - node.behind);
  node.behind = now_;
}

// Adds a word to the digest: FNV-1a, word by word.
void Cluster::record(std::uint64_t word) {
  digest_ = (digest_ ^ word) * 0x0000'0100'0000'01B3;
  digest_ ^= digest_ >> 32;
}

}  // namespace tulle::sim
