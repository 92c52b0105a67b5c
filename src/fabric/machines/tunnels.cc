#include "fabric/machines/tunnels.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "fabric/subnet_managers.h"

namespace tulle::fabric {
namespace {

// A process that receives a hello answers at once, but not more often than this.
constexpr Time between_answers = Time::milliseconds(10);
// Port states are repeated round robin, in case one was lost: so many in each hello's time.
constexpr std::size_t repeated_ports = port_records_max;
// A process that has just been found is sent so many ports in each hello's time.
constexpr std::size_t first_ports = 32 * port_records_max;
// What follows the header of a datagram with the longest packet.
constexpr std::size_t body_bytes_max =
    SubnetTraffic::packet_bytes_max + wire::icrc_bytes + wire::vcrc_bytes;

template <typename Record>
void append(const Record& record, std::vector<std::byte>& out) {
  const auto bytes = std::as_bytes(std::span(&record, 1));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

bool is_same(const PortRecord& a, const PortRecord& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

}  // namespace

std::vector<bool> Tunnels::elsewhere(const Settings& settings) {
  std::vector<bool> out;
  out.reserve(settings.machines.size());
  for (const std::uint32_t machine : settings.machines) out.push_back(machine != settings.own);
  return out;
}

Tunnels::Tunnels(Time now, Settings settings, Subnet& subnet, SubnetTraffic& traffic)
    : settings_(std::move(settings)),
      subnet_(subnet),
      traffic_(traffic),
      digest_(digest_of(subnet.topology(), settings_.machines)),
      parts_(parts_of(subnet.topology())),
      peers_(settings_.count),
      next_hello_(now),
      run_at_(now) {
  TULLE_CHECK(settings_.datagram_bytes >= tunnel_datagram_bytes);
  peers_[settings_.own].state = State::own;
  const Topology& topology = subnet.topology();
  for (std::uint32_t link = 0; link < topology.links.size(); ++link) {
    if (subnet.leads_elsewhere(link)) peers_[machine_beyond(link)].links.push_back(link);
  }
  for (const std::uint32_t node : places_of_managers(topology)) {
    peers_[settings_.machines[node]].managers.push_back({node});
  }
  for (std::uint32_t node = 0; node < topology.nodes(); ++node) {
    if (subnet.is_elsewhere(node)) continue;
    const std::uint8_t first = subnet.node(node).is_switch() ? 0 : 1;
    for (std::uint32_t port = first; port <= topology.ports[node]; ++port) {
      ports_.push_back({node, static_cast<std::uint8_t>(port)});
    }
  }
  told_.resize(ports_.size());
  for (Peer& peer : peers_) peer.untold = ports_.size();
  constexpr unsigned machine_shift = 24;
  constexpr std::uint32_t lower_bits = 0x00FF'FFFF;
  const auto drawn = static_cast<std::uint32_t>(settings_.session) & lower_bits;
  traffic.set_carrier(*this, settings_.own << machine_shift | drawn);
}

Tunnels::State Tunnels::state(std::uint32_t machine) const { return peers_[machine].state; }

// --- links ---

std::uint32_t Tunnels::machine_beyond(std::uint32_t index) const {
  const Link& link = subnet_.topology().links[index];
  return settings_.machines[subnet_.is_elsewhere(link.a) ? link.a : link.b];
}

bool Tunnels::leads_to(std::uint32_t link, std::uint32_t machine) const {
  return subnet_.leads_elsewhere(link) && machine_beyond(link) == machine;
}

void Tunnels::lose(Time now, std::uint32_t machine) {
  Peer& peer = peers_[machine];
  for (const std::uint32_t link : peer.links) subnet_.lose(now, link);
  peer.credits.clear();
  has_news_ = true;
}

// --- out ---

std::vector<std::byte> Tunnels::begin(std::uint32_t machine, TunnelKind kind) {
  const Peer& peer = peers_[machine];
  TunnelHeader header;
  header.kind = static_cast<std::uint8_t>(kind);
  header.machine = static_cast<std::uint8_t>(settings_.own);
  header.session = peer.session ^ settings_.session;
  std::vector<std::byte> datagram;
  append(header, datagram);
  return datagram;
}

void Tunnels::send(std::uint32_t machine, std::vector<std::byte> datagram) {
  if (outgoing_.size() >= outgoing_most) {
    ++counters_.discarded;
    return;
  }
  TunnelHeader header;
  std::memcpy(&header, datagram.data(), sizeof header);
  header.sequence = ++peers_[machine].sent;
  std::memcpy(datagram.data(), &header, sizeof header);
  ++counters_.sent;
  outgoing_.push_back({machine, std::move(datagram)});
}

const std::deque<Tunnels::Outgoing>& Tunnels::waiting() {
  if (std::exchange(has_credits_, false)) {
    for (std::uint32_t machine = 0; machine < peers_.size(); ++machine) flush_credits(machine);
  }
  return outgoing_;
}

void Tunnels::say_hello(Time now, std::uint32_t machine, std::uint64_t session) {
  auto datagram = begin(machine, TunnelKind::hello);
  TunnelHeader header;
  std::memcpy(&header, datagram.data(), sizeof header);
  header.session = session;
  std::memcpy(datagram.data(), &header, sizeof header);
  TunnelHello hello;
  hello.session = settings_.session;
  hello.digest = digest_;
  hello.hears = is_heard(machine) ? 1 : 0;
  append(hello, datagram);
  peers_[machine].hello_at = now;
  send(machine, std::move(datagram));
}

void Tunnels::carry(const SubnetTraffic::Crossing& crossing) {
  const std::uint32_t machine = machine_beyond(crossing.link);
  // Credits say how much had been sent before them.
  flush_credits(machine);
  auto datagram = begin(machine, TunnelKind::data);
  TunnelHeader header;
  std::memcpy(&header, datagram.data(), sizeof header);
  header.hops = crossing.hops;
  header.link = crossing.link;
  header.number = crossing.number;
  std::memcpy(datagram.data(), &header, sizeof header);
  append_packet(crossing.packet, crossing.lane, datagram);
  if (datagram.size() > settings_.datagram_bytes) return send_pieces(machine, datagram);
  send(machine, std::move(datagram));
}

// Pieces are as long as possible, but for the last one.
void Tunnels::send_pieces(std::uint32_t machine, std::span<const std::byte> datagram) {
  std::span<const std::byte> body = datagram;
  auto header = wire::take<TunnelHeader>(body);
  header.kind = static_cast<std::uint8_t>(TunnelKind::piece);
  const std::size_t bytes_max =
      settings_.datagram_bytes - sizeof(TunnelHeader) - sizeof(TunnelPiece);
  for (std::size_t offset = 0; offset < body.size(); offset += bytes_max) {
    TunnelPiece piece;
    piece.whole = static_cast<std::uint16_t>(body.size());
    piece.offset = static_cast<std::uint16_t>(offset);
    const auto part = body.subspan(offset, std::min(bytes_max, body.size() - offset));
    std::vector<std::byte> out;
    append(header, out);
    append(piece, out);
    out.insert(out.end(), part.begin(), part.end());
    send(machine, std::move(out));
  }
}

void Tunnels::tell(std::uint32_t link, port::CreditUpdate update, std::uint32_t total_sent) {
  const std::uint32_t machine = machine_beyond(link);
  auto& credits = peers_[machine].credits;
  credits.push_back({link, wire::flow_control_packet(update.lane, total_sent, update.limit)});
  has_credits_ = true;
  if (credits.size() >= credit_records_max) flush_credits(machine);
}

void Tunnels::flush_credits(std::uint32_t machine) {
  auto& credits = peers_[machine].credits;
  if (credits.empty()) return;
  auto datagram = begin(machine, TunnelKind::credits);
  for (const CreditRecord& record : std::exchange(credits, {})) append(record, datagram);
  send(machine, std::move(datagram));
}

void Tunnels::tell_ports(std::uint32_t machine, std::span<const PortRecord> records) {
  if (!is_heard(machine)) return;
  while (!records.empty()) {
    auto datagram = begin(machine, TunnelKind::ports);
    const auto some = records.first(std::min(records.size(), port_records_max));
    for (const PortRecord& record : some) append(record, datagram);
    records = records.subspan(some.size());
    send(machine, std::move(datagram));
  }
}

// Tells all others of the ports that differ from what they were told.
void Tunnels::tell_changes() {
  std::vector<PortRecord> changed;
  for (std::size_t i = 0; i < ports_.size(); ++i) {
    const PortRecord record = record_of(subnet_.report(ports_[i].node, ports_[i].port));
    if (is_same(record, told_[i])) continue;
    told_[i] = record;
    changed.push_back(record);
  }
  for (std::uint32_t machine = 0; machine < peers_.size(); ++machine) {
    tell_ports(machine, changed);
  }
}

void Tunnels::tell_untold(std::uint32_t machine) {
  Peer& peer = peers_[machine];
  const bool is_first = peer.untold < ports_.size();
  // After the first time, all are sent round robin.
  const std::size_t from = peer.untold % std::max<std::size_t>(ports_.size(), 1);
  const std::size_t most = is_first ? first_ports : repeated_ports;
  const std::size_t count = std::min(most, ports_.size() - from);
  tell_ports(machine, std::span(told_).subspan(from, count));
  peer.untold = is_first ? from + count : ports_.size() + from + count;
}

// Tells the other ends of cables, and credits, again.
void Tunnels::tell_cables(std::uint32_t machine) {
  std::vector<PortRecord> records;
  for (const std::uint32_t link : peers_[machine].links) {
    const Link& of = subnet_.topology().links[link];
    const bool is_a = !subnet_.is_elsewhere(of.a);
    const auto port = static_cast<std::uint8_t>((is_a ? of.a_port : of.b_port) + 1);
    records.push_back(record_of(subnet_.report(is_a ? of.a : of.b, port)));
    traffic_.tell_again(link);
  }
  tell_ports(machine, records);
  flush_credits(machine);
}

// --- in ---

void Tunnels::receive(Time now, std::uint32_t machine, std::span<const std::byte> datagram) {
  ++counters_.received;
  if (machine >= peers_.size() || machine == settings_.own ||
      datagram.size() < sizeof(TunnelHeader)) {
    ++counters_.foreign;
    return;
  }
  auto body = datagram;
  const auto header = wire::take<TunnelHeader>(body);
  Peer& peer = peers_[machine];
  if (header.magic != TunnelHeader::right_magic || header.machine != machine) {
    ++counters_.foreign;
    return;
  }
  if (header.version != TunnelHeader::right_version) {
    ++counters_.foreign;
    return refuse(now, peer, State::other_version);
  }
  const auto kind = static_cast<TunnelKind>(header.kind);
  if (kind == TunnelKind::hello) return receive_hello(now, machine, header, body);
  if (!is_heard(machine) || header.session != (settings_.session ^ peer.session)) {
    ++counters_.foreign;
    return;
  }
  const std::uint32_t newer = header.sequence - peer.received;
  if (newer == 0 || newer > std::uint32_t{1} << 31) {
    ++counters_.late;
    return;
  }
  peer.received = header.sequence;
  switch (kind) {
    case TunnelKind::ports:
      return receive_ports(now, machine, body);
    case TunnelKind::credits:
      return receive_credits(now, machine, body);
    case TunnelKind::management:
    case TunnelKind::data:
      return receive_packet(now, machine, header, body);
    case TunnelKind::piece:
      return receive_piece(now, machine, header, body);
    case TunnelKind::hello:
      break;
  }
  ++counters_.invalid;
}

// Records why a silent peer's hello was refused. Anybody may have sent it.
void Tunnels::refuse(Time now, Peer& peer, State state) {
  if (peer.state == State::heard || peer.state == State::deaf) return;
  peer.state = state;
  peer.refused_at = now;
}

void Tunnels::receive_hello(Time now, std::uint32_t machine, const TunnelHeader& header,
                            std::span<const std::byte> body) {
  Peer& peer = peers_[machine];
  if (body.size() != sizeof(TunnelHello)) {
    ++counters_.invalid;
    return;
  }
  const auto hello = wire::take<TunnelHello>(body);
  if (hello.digest != digest_) {
    ++counters_.foreign;
    return refuse(now, peer, State::other_fabric);
  }
  peer.claimed = hello.session;
  if (header.session != settings_.session) {
    // It is answered at once, so that the two need not wait for the next time.
    const bool was_answered = !peer.hello_at.is_never() && now - peer.hello_at < between_answers;
    if (!was_answered) say_hello(now, machine, hello.session);
    return;
  }
  if (!is_heard(machine) || peer.session != hello.session) {
    lose(now, machine);
    // A manager that has been restarted does not know the key that it had before.
    const bool is_another_life = peer.session != 0 && peer.session != hello.session;
    for (const Peer::Manager& each : peer.managers) {
      if (!is_another_life || each.lid == 0) continue;
      subnet_.end_leases(parts_, parts_[each.node], each.lid);
    }
    peer.session = hello.session;
    peer.received = header.sequence;
    peer.pieces.whole = 0;
    peer.state = State::heard;
    peer.hears_at = now;
    peer.untold = 0;
  }
  peer.heard_at = now;
  peer.was_excused = false;
  if (hello.hears == 0) return;
  peer.hears_at = now;
  peer.state = State::heard;
}

void Tunnels::receive_ports(Time now, std::uint32_t machine, std::span<const std::byte> body) {
  if (body.size() % sizeof(PortRecord) != 0) {
    ++counters_.invalid;
    return;
  }
  while (!body.empty()) {
    const auto report = report_of(wire::take<PortRecord>(body));
    const bool is_its_own =
        report.node < settings_.machines.size() && settings_.machines[report.node] == machine;
    if (!is_its_own || !subnet_.take_report(now, report)) {
      ++counters_.invalid;
      continue;
    }
    for (Peer::Manager& each : peers_[machine].managers) {
      const bool has_lid = report.node == each.node && report.info.lid != 0;
      if (has_lid) each.lid = report.info.lid;
    }
  }
  has_news_ = true;
}

void Tunnels::receive_credits(Time now, std::uint32_t machine, std::span<const std::byte> body) {
  using wire::FlowControlPacket;
  if (body.size() % sizeof(CreditRecord) != 0) {
    ++counters_.invalid;
    return;
  }
  while (!body.empty()) {
    const auto record = wire::take<CreditRecord>(body);
    if (!leads_to(record.link, machine)) {
      ++counters_.invalid;
      continue;
    }
    const std::uint32_t sent = record.packet.operand_and_sent & FlowControlPacket::total_mask;
    const auto lane =
        static_cast<std::uint8_t>(record.packet.lane_and_limit >> FlowControlPacket::upper_shift);
    const auto limit =
        static_cast<std::uint16_t>(record.packet.lane_and_limit & FlowControlPacket::total_mask);
    traffic_.take_credits(now, record.link, {lane, limit}, sent);
  }
}

// A machine has at most one datagram of which pieces are missing, and no longer than one with the
// longest packet.
void Tunnels::receive_piece(Time now, std::uint32_t machine, const TunnelHeader& header,
                            std::span<const std::byte> body) {
  Pieces& pieces = peers_[machine].pieces;
  const bool has_place = body.size() > sizeof(TunnelPiece);
  const TunnelPiece piece = has_place ? wire::take<TunnelPiece>(body) : TunnelPiece{};
  const std::size_t whole = piece.whole;
  if (piece.offset == 0) {
    pieces.body.clear();
    pieces.whole = whole <= body_bytes_max ? whole : 0;
  }
  const bool follows = piece.offset == 0 || header.sequence == pieces.sequence + 1;
  pieces.sequence = header.sequence;
  const bool fits = follows && whole != 0 && whole == pieces.whole &&
                    piece.offset == pieces.body.size() && body.size() <= whole - pieces.body.size();
  if (!fits) {
    ++counters_.incomplete;
    pieces.whole = 0;
    return;
  }
  pieces.body.insert(pieces.body.end(), body.begin(), body.end());
  if (pieces.body.size() < whole) return;
  pieces.whole = 0;
  TunnelHeader of_whole = header;
  of_whole.kind = static_cast<std::uint8_t>(TunnelKind::data);
  receive_packet(now, machine, of_whole, pieces.body);
}

void Tunnels::receive_packet(Time now, std::uint32_t machine, const TunnelHeader& header,
                             std::span<const std::byte> body) {
  if (!leads_to(header.link, machine)) {
    ++counters_.invalid;
    return;
  }
  if (static_cast<TunnelKind>(header.kind) == TunnelKind::management) {
    const auto packet = decode_management(body);
    has_news_ = has_news_ || packet;
    if (packet) return subnet_.arrive({header.link, header.hops, *packet});
  } else {
    const auto packet = decode_packet(body);
    if (packet) {
      return traffic_.arrive(
          now, {header.link, packet->lane, header.hops, header.number, packet->packet});
    }
  }
  ++counters_.invalid;
}

// --- time ---

// If this process itself was stopped, nothing of the others could be received.
void Tunnels::look_for_silence(Time now) {
  const Time late = now - run_at_;
  run_at_ = now;
  for (std::uint32_t machine = 0; machine < peers_.size(); ++machine) {
    Peer& peer = peers_[machine];
    const bool is_refused = peer.state == State::other_version || peer.state == State::other_fabric;
    if (is_refused && now - peer.refused_at >= silence_max) peer.state = State::silent;
    if (!is_heard(machine)) continue;
    if (late > between_hellos + between_hellos && !std::exchange(peer.was_excused, true)) {
      peer.heard_at = std::min(now, peer.heard_at + late);
      peer.hears_at = std::min(now, peer.hears_at + late);
    }
    if (now - peer.heard_at >= silence_max) {
      peer.state = State::silent;
      lose(now, machine);
      for (std::uint32_t node = 0; node < settings_.machines.size(); ++node) {
        if (settings_.machines[node] == machine) subnet_.forget(node);
      }
    } else if (now - peer.hears_at >= silence_max && peer.state != State::deaf) {
      peer.state = State::deaf;
      lose(now, machine);
    }
  }
}

void Tunnels::send_crossing(const Subnet::Crossing& crossing) {
  const std::uint32_t machine = machine_beyond(crossing.link);
  if (!is_heard(machine)) return;
  auto datagram = begin(machine, TunnelKind::management);
  TunnelHeader header;
  std::memcpy(&header, datagram.data(), sizeof header);
  header.hops = static_cast<std::uint8_t>(crossing.hops);
  header.link = crossing.link;
  std::memcpy(datagram.data(), &header, sizeof header);
  const auto packet = encode(crossing.packet);
  datagram.insert(datagram.end(), packet.begin(), packet.end());
  send(machine, std::move(datagram));
}

// The answer to a request that takes a link down is sent before the other end is notified. What
// leaves by a link that has come up is sent after the other end is notified.
void Tunnels::follow() {
  while (subnet_.has_early_crossing()) send_crossing(*subnet_.take_crossing());
  tell_changes();
  while (const auto crossing = subnet_.take_crossing()) send_crossing(*crossing);
}

void Tunnels::run(Time now) {
  if (now < next_hello_) return;
  next_hello_ = now + between_hellos;
  look_for_silence(now);
  follow();
  for (std::uint32_t machine = 0; machine < peers_.size(); ++machine) {
    if (machine == settings_.own) continue;
    const Peer& peer = peers_[machine];
    say_hello(now, machine, is_heard(machine) ? peer.session : peer.claimed);
    if (!is_heard(machine)) continue;
    tell_untold(machine);
    tell_cables(machine);
  }
}

void Tunnels::rebase(Time by) {
  for (Peer& peer : peers_) {
    tulle::rebase(by, peer.heard_at, peer.hears_at, peer.refused_at, peer.hello_at);
  }
  tulle::rebase(by, next_hello_, run_at_);
}

}  // namespace tulle::fabric
