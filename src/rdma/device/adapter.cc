#include "rdma/device/adapter.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "rdma/device/multicast.h"
#include "rdma/device/raw_packets.h"
#include "rdma/port/framing/overhead.h"
#include "rdma/wire/pkey.h"

namespace tulle::device {
namespace {

// Marks the timer of completion queues whose events wait. It takes the place of a queue pair
// number, which has 24 bits.
constexpr QpNumber held_events{0xFFFF'FFFF};

const port::Settings without_flow_control = [] {
  port::Settings settings;
  settings.flow_control = port::FlowControl::none;
  return settings;
}();

// Returns those of the levels whose lane is not open. Levels without a lane are none of them.
std::uint32_t levels_held_back(std::uint32_t levels, const port::LaneRow& lanes,
                               std::uint32_t open_lanes) {
  std::uint32_t held_back = 0;
  for (; levels != 0; levels &= levels - 1) {
    const auto level = static_cast<std::uint32_t>(std::countr_zero(levels));
    const std::uint32_t lane = lanes[level];
    if (lane != port::vl15 && (open_lanes >> lane & 1) == 0) held_back |= 1u << level;
  }
  return held_back;
}

}  // namespace

using transport::Agenda;
using transport::QueuePair;
using verbs::VerbsStatus;

using wire::ecn_capable;
using wire::ecn_mask;

Adapter::PortState::PortState(const Configuration& configuration)
    : port(configuration.port != nullptr ? *configuration.port : without_flow_control, nullptr) {}

Adapter::Adapter(const Configuration& configuration)
    : configuration_(configuration),
      environment_(configuration.draw != nullptr ? RandomSource(configuration.draw)
                                                 : RandomSource(configuration.seed),
                   configuration.ports),
      first_port_(configuration),
      lanes_(configuration.lanes),
      objects_(configuration.limits, configuration.first_qp, configuration.qp_count, environment_,
               completion_events_, hot_.qps_by_number) {
  // Completion events have no clock. A timer that is due at once is the first to learn the time.
  completion_events_.tell = [](void* timers) {
    static_cast<TimerQueue*>(timers)->add(Time(), held_events);
  };
  completion_events_.tell_context = &hot_.timers;
  environment_.congestion = configuration.congestion;
  environment_.congestion.dcqcn.line_bits_per_second = configuration.line_bits_per_second;
  environment_.congestion.infiniband.line_bits_per_second = configuration.line_bits_per_second;
  // Paced rates count the overhead of RoCE v2 on every link but one with InfiniBand's congestion
  // control, so that the rates of notices on InfiniBand are a little low.
  const port::Framing& paced =
      configuration.congestion.infiniband.enabled ? *configuration.framing : port::roce_v2;
  environment_.link_overhead_bytes = paced.overhead.around_transport_bytes();
  if (configuration.srd != nullptr) environment_.srd_settings = *configuration.srd;
  environment_.srd_settings.seed ^= configuration.seed;
  environment_.srd_settings.line_bits_per_second = configuration.line_bits_per_second;
  if (configuration.congestion.infiniband.by_service_level) {
    environment_.injections = std::make_unique<std::array<transport::congestion::Injection, 16>>();
  }
  environment_.recovery = configuration.recovery;
  if (configuration_.tcp != nullptr) environment_.tcp = configuration_.tcp.get();
  TULLE_CHECK(configuration.recovery.kind != transport::Recovery::selective_repeat ||
              configuration.recovery.window_packets > 0);
  if (configuration.recovery.window_packets > 0) {
    environment_.congestion.window =
        bounded(configuration.congestion.window, configuration.recovery.window_packets);
  }
  TULLE_CHECK(configuration.qp_count > 0 && configuration.ports > 0);
  hot_.framing = configuration.framing;
  hot_.packets_per_turn = configuration.packets_per_turn;
  hot_.has_many_ports = configuration.ports > 1;
  for (unsigned port = 2; port <= configuration.ports; ++port) {
    other_ports_.emplace_back(configuration);
  }
  Random random(configuration.seed ^ configuration.first_qp.value);
  next_qp_offset_ = static_cast<std::uint32_t>(random.below(configuration.qp_count));
}

Adapter::~Adapter() = default;

void Adapter::set_gids(std::span<const Gid> gids, std::uint8_t port, const OtherFraming& other) {
  PortState& state = at(port);
  state.other = other;
  if (other.framing != nullptr) {
    wire::Path path;
    other.framing->set_path({}, path);
    state.other_path_kind = path.index();
  }
  const std::vector<Gid> before = std::exchange(state.gids, {});
  state.gids.assign(gids.begin(), gids.begin() + std::min(gids.size(), gids_max));
  state.withdrawn_gids.reset();
  const auto in_use = gids_in_use(port);
  for (std::size_t i = 0; i < std::min(before.size(), state.gids.size()); ++i) {
    if (state.gids[i] != Gid{} || before[i] == Gid{} || !in_use[i]) continue;
    state.gids[i] = before[i];
    state.withdrawn_gids.set(i);
  }
  environment_.port(port).gids = state.gids;
}

// Returns the port's GIDs used by address handles and by queue pairs that have a path to their
// peer.
std::bitset<Adapter::gids_max> Adapter::gids_in_use(std::uint8_t port) const {
  std::bitset<gids_max> used;
  hot_.qps_by_number.for_each([&](const QueuePair* qp) {
    const verbs::AddressVector& to = qp->attributes().address;
    if (qp->attributes().port == port && to.destination.gid != Gid{}) used.set(to.source_gid_index);
  });
  handles_.for_each([&](const verbs::AddressHandle& handle) {
    if (handle.to.port == port) used.set(handle.to.source_gid_index);
  });
  return used;
}

void Adapter::set_lid(Lid lid, unsigned lmc, std::uint8_t port) {
  at(port).lid = lid;
  at(port).lmc = static_cast<std::uint8_t>(lmc);
  environment_.port(port).lmc = lmc;
}

void Adapter::set_pkeys(std::span<const Pkey> pkeys, std::uint8_t port) {
  TULLE_CHECK(!pkeys.empty());
  environment_.port(port).pkeys.assign(pkeys.begin(), pkeys.end());
}

// --- packets and time ---

port::Verdict Adapter::handle_datagram(Time now, const wire::IpUdp& ip, bool identification_known,
                                       std::span<const std::byte> udp_payload, std::uint8_t port) {
  port::Arrival arrival{ip, identification_known};
  return handle_frame(now, arrival, udp_payload, port);
}

port::Verdict Adapter::handle_frame(Time now, port::Arrival& arrival,
                                    std::span<const std::byte> bytes, std::uint8_t port) {
  wire::Packet decoded;
  std::span<const std::byte> payload = bytes;
  std::size_t packet_bytes = bytes.size();
  port::Verdict verdict = port::Verdict::ok;
  if (arrival.packet != nullptr) {
    packet_bytes += wire::header_bytes(arrival.packet->opcode) + arrival.packet->pad_count;
  } else {
    const port::Framing& framing =
        arrival.framing != nullptr ? *arrival.framing : *configuration_.framing;
    verdict = arrival.head.empty() ? framing.decode(bytes, arrival, decoded, payload)
                                   : port::decode_transport(arrival.head, bytes, decoded, payload);
  }
  ++counters_.packets_received;
  counters_.bytes_received += packet_bytes;
  ++counters_.received_by_verdict[static_cast<std::size_t>(verdict)];
  if (verdict != port::Verdict::ok) return verdict;
  handle_packet(now, arrival.packet != nullptr ? *arrival.packet : decoded,
                {payload.data(), static_cast<std::uint32_t>(payload.size())}, arrival.path, port);
  return verdict;
}

void Adapter::handle_packet(Time now, const wire::Packet& packet, transport::Payload payload,
                            const wire::Path& path, std::uint8_t port) {
  if (wire::transport_of(packet.opcode) == wire::TransportClass::cnp) [[unlikely]] {
    return handle_congestion_notification(now, packet);
  }
  QueuePair* qp = find_qp(packet.destination_qp);
  if (qp == nullptr) return handle_unknown(now, packet, payload, path, port);
  // A packet must come in by the port that the queue pair uses, as in Linux
  // (drivers/infiniband/sw/rxe/rxe_recv.c: check_addr).
  if (hot_.has_many_ports && qp->attributes().port != port) [[unlikely]] {
    ++counters_.wrong_port;
    ++environment_.counters.dropped_packets;
    return;
  }
  if (at(port).other.framing != nullptr && !at(port).is_way_of(*qp, path)) [[unlikely]] {
    ++counters_.wrong_port;
    ++environment_.counters.dropped_packets;
    return;
  }
  if (!wire::pkeys_match(packet.pkey, qp->pkey())) {
    ++counters_.pkey_violations;
    ++environment_.counters.dropped_packets;
    return;
  }
  const Agenda agenda = qp->handle_packet(now, packet, payload, path);
  schedule(*qp, agenda);
  if (wire::is_marked(path) && qp->congestion_experienced(now)) {
    port_of(*qp).turns.add_notification(*qp);
  }
  if (packet.fecn || packet.becn) [[unlikely]]
    handle_congestion_bits(now, *qp, packet, path);
  watch_deadline(*qp, agenda.deadline);
}

void Adapter::handle_unknown(Time now, const wire::Packet& packet, transport::Payload payload,
                             const wire::Path& path, std::uint8_t port) {
  if (packet.destination_qp == multicast_qp) {
    return handle_multicast(now, packet, payload, path, port);
  }
  ++counters_.unknown_queue_pair;
  // SRD tells the sender, or handles an answer to a queue pair that no longer exists.
  if (environment_.peers != nullptr &&
      environment_.peers->handle_unknown(now, packet, payload, path)) {
    attend_peers();
  }
}

void Adapter::handle_segment(Time now, const wire::Tcp& header, transport::Payload payload,
                             const wire::Path& path) {
  const Gid source = wire::source_of(path).gid;
  const auto found = streams_.find(stream_key(header.destination_port, header.source_port, source));
  if (found == streams_.end() || found->second->attributes().address.destination != source) {
    ++counters_.unknown_queue_pair;
    return;
  }
  QueuePair& qp = *found->second;
  visit(qp, qp.handle_segment(now, header, payload, path));
}

// Returns the key that tells the connections of one host apart: the peer's address and both ports.
std::uint64_t Adapter::stream_key(std::uint16_t local_port, std::uint16_t peer_port,
                                  const Gid& peer) {
  std::uint32_t address = 0;
  for (std::size_t i = 0; i < peer.bytes.size(); ++i) {
    address ^= std::uint32_t{peer.bytes[i]} << (8 * (3 - i % 4));
  }
  return std::uint64_t{address} << 32 | std::uint32_t{local_port} << 16 | peer_port;
}

std::uint64_t Adapter::stream_key(const QueuePair& qp, QpNumber peer, const Gid& address) {
  const transport::StreamPorts ports = qp.transport.ports(qp.number, peer);
  return stream_key(ports.local, ports.peer, address);
}

VerbsStatus Adapter::connect_stream(QueuePair& qp, QpNumber peer, const Gid& address) {
  const bool free = streams_.try_emplace(stream_key(qp, peer, address), &qp).second;
  return free ? VerbsStatus::ok : VerbsStatus::busy;
}

void Adapter::disconnect_stream(const QueuePair& qp) {
  const transport::QueuePairAttributes& attributes = qp.attributes();
  const auto found =
      streams_.find(stream_key(qp, attributes.destination_qp, attributes.address.destination.gid));
  if (found != streams_.end() && found->second == &qp) streams_.erase(found);
}

void Adapter::handle_congestion_notification(Time now, const wire::Packet& packet) {
  ++counters_.congestion_notifications;
  QueuePair* qp = find_qp(packet.destination_qp);
  if (qp == nullptr) return;
  qp->congestion.notified(now);
  watch_deadline(*qp, qp->agenda().deadline);
}

void Adapter::limit(Time now, const PortAddress& destination, std::int64_t bits_per_second,
                    Time hold) {
  const auto found = environment_.endpoint_limits.find(destination);
  if (found != environment_.endpoint_limits.end()) found->second.limit(now, bits_per_second, hold);
}

// IBTA annex A10: a switch has marked the packet on its way here (FECN), or the packet answers a
// marked one (BECN).
void Adapter::handle_congestion_bits(Time now, QueuePair& qp, const wire::Packet& packet,
                                     const wire::Path& path) {
  if (!environment_.congestion.infiniband.enabled || !qp.is_from_peer(path)) return;
  if (packet.fecn && qp.congestion_marked(packet, path)) port_of(qp).turns.add_notification(qp);
  if (!packet.becn) return;
  ++counters_.congestion_notifications;
  qp.congestion.notified(now);
}

// IBTA 9.6.1.3 and 10.5.2: every attached queue pair gets a copy and checks its Q_Key as usual. The
// sender gets one too if the port receives from itself. Adapters do the same, and programs that
// mind check the source (Linux, drivers/infiniband/ulp/ipoib/ipoib_ib.c: ipoib_ib_handle_rx_wc).
void Adapter::handle_multicast(Time now, const wire::Packet& packet, transport::Payload payload,
                               const wire::Path& path, std::uint8_t port) {
  const auto attached = multicast_.attached(wire::destination_of(path).gid);
  if (attached.empty()) ++counters_.unknown_queue_pair;
  for (QueuePair* qp : attached) {
    if (qp->attributes().port != port) continue;
    if (!wire::pkeys_match(packet.pkey, qp->pkey())) {
      ++counters_.pkey_violations;
      ++environment_.counters.dropped_packets;
      continue;
    }
    qp->handle_packet(now, packet, payload, path);
  }
}

bool Adapter::pull_datagram(Time now, Datagram& out, std::uint8_t number) {
  PortState& port = at(number);
  if (!port.port.has_credits()) return pull_by_level(now, port, out, port.port.stopped());
  return pull_by_lane(now, port, out);
}

// Pulls a datagram from the level that the port's arbiter chooses among the lanes with something to
// send. Levels without a lane do not wait. A lane that is in no table, or lacks credits for the
// longest frame, holds its levels back.
bool Adapter::pull_by_lane(Time now, PortState& port, Datagram& out) {
  const std::uint32_t open_lanes = port.port.open_lanes(configuration_.frame_bytes_max);
  const auto held_back = [&] {
    return levels_held_back(port.turns.ready_levels(), configuration_.lanes, open_lanes);
  };
  if (!port.turns.has_ready(held_back())) ++port.port.counters().credit_stalls;
  for (;;) {
    const std::uint32_t ready = port.turns.ready_levels() & ~held_back();
    if (ready == 0) return false;
    std::uint32_t chosen = ready & lanes_.levels_without_lane();
    if (chosen == 0) chosen = lanes_.levels_of(port.port.choose(lanes_.lanes_of(ready)));
    if (pull_by_level(now, port, out, SendTurns::all_levels & ~chosen)) return true;
  }
}

// Pulls a datagram, except for the paused service levels (bit n: level n, 0 to 7).
bool Adapter::pull_by_level(Time now, PortState& port, Datagram& out,
                            std::uint32_t held_back_levels) {
  if (port.turns.first_notification() != nullptr &&
      pull_notification(port, out, held_back_levels)) {
    return true;
  }
  while (QueuePair* qp = port.turns.next(held_back_levels)) {
    if (pull_from(now, port, *qp, out)) return true;
  }
  return false;
}

inline void Adapter::complete_pull(const PortState& port, const QueuePair& qp, Datagram& out) {
  address(port, qp, out);
  ++counters_.packets_sent;
  counters_.bytes_sent +=
      out.headers == Datagram::Headers::bth ? out.udp_payload_bytes() : out.segment_bytes();
}

inline bool Adapter::pull_from(Time now, PortState& port, QueuePair& qp, Datagram& out) {
  const Agenda agenda = qp.pull(now, out);
  if (!agenda.packet) {
    port.turns.remove(qp);
    watch_deadline(qp, agenda.deadline);
    return false;
  }
  complete_pull(port, qp, out);
  watch_deadline(qp, agenda.deadline);
  const bool turn_ends =
      port.turns.sent(qp) >= hot_.packets_per_turn && qp.next_scheduled != nullptr;
  const bool has_answered = SendTurns::is_among_answers(qp) && !agenda.answers;
  if (turn_ends || has_answered || !agenda.work) {
    port.turns.remove(qp);
    schedule(qp, agenda);
  }
  return true;
}

QueuePair* Adapter::take_ready() { return first_port_.turns.take(); }

bool Adapter::pull_datagram_of(Time now, QueuePair& qp, Datagram& out) {
  const Agenda agenda = qp.pull(now, out);
  if (agenda.packet) complete_pull(first_port_, qp, out);
  watch_deadline(qp, agenda.deadline);
  return agenda.packet;
}

std::optional<transport::Environment::WaitingSocket> Adapter::take_waiting_socket() {
  if (environment_.waiting_sockets.empty()) return std::nullopt;
  const auto waiting = environment_.waiting_sockets.front();
  environment_.waiting_sockets.pop();
  return waiting;
}

// Notifications are sent before everything else, while they still matter to the peer that must slow
// down.
bool Adapter::pull_notification(PortState& port, Datagram& out, std::uint32_t held_back_levels) {
  const std::uint8_t level = environment_.congestion.notification_service_level;
  if ((held_back_levels >> level & 1) != 0) return false;
  QueuePair& qp = *port.turns.first_notification();
  port.turns.remove_notification(qp);
  out.headers = Datagram::Headers::bth;
  qp.emit_notification(out);
  address(port, qp, out);
  wire::clear_ecn(out.path);
  out.service_level = level;
  ++counters_.packets_sent;
  counters_.bytes_sent += out.udp_payload_bytes();
  return true;
}

inline void Adapter::address(const PortState& port, const QueuePair& qp, Datagram& out) const {
  const verbs::AddressVector& to = *out.to;
  out.service_level = to.service_level;
  out.packet.pkey = qp.pkey();
  if (out.headers == Datagram::Headers::tcp) [[unlikely]]
    return address_segment(port, to, out);
  out.flow_entropy = port::source_port(to.flow_label, qp.number, out.packet.destination_qp);
  out.framing = &port.framing_of(to.source_gid_index, *hot_.framing);
  out.framing->set_path(route_to(port, to, out.flow_entropy), out.path);
}

// The port uses the LID that the path bits select, as its peer expects (IBTA 9.6.1).
inline port::Route Adapter::route_to(const PortState& port, const verbs::AddressVector& to,
                                     std::uint16_t flow_entropy) {
  const unsigned path_bits = to.path_bits & ((1u << port.lmc) - 1);
  port::Route route;
  if (to.source_gid_index < port.gids.size()) route.source_gid = port.gids[to.source_gid_index];
  route.source_lid = Lid(static_cast<std::uint16_t>(port.lid.value + path_bits));
  route.destination = to.destination;
  route.flow_entropy = flow_entropy;
  route.service_level = to.service_level;
  route.traffic_class = to.traffic_class;
  route.hop_limit = to.hop_limit;
  route.flow_label = to.flow_label;
  return route;
}

void Adapter::address_segment(const PortState& port, const verbs::AddressVector& to,
                              Datagram& out) {
  out.flow_entropy = out.tcp.source_port;
  port::roce_v2.set_path(route_to(port, to, out.flow_entropy), out.path);
  wire::IpUdp& ip = out.ip();
  ip.destination_port = out.tcp.destination_port;
  ip.traffic_class = static_cast<std::uint8_t>((to.traffic_class & ~ecn_mask) |
                                               (out.ecn_capable ? ecn_capable : 0));
}

void Datagram::finish_frame(std::uint16_t identification) {
  if (auto* udp = std::get_if<wire::IpUdp>(&path)) udp->identification = identification;
  framing->encode(path, packet, {pieces.data(), piece_count}, frame);
}

void Adapter::add_to_turns(QueuePair& qp, const Agenda& agenda) {
  if (qp.transport.scheduled_by != transport::ScheduledBy::adapter) [[unlikely]]
    return schedule_elsewhere(qp);
  port_of(qp).turns.add(qp, agenda.answers);
}

void Adapter::schedule_elsewhere(QueuePair& qp) {
  if (qp.transport.scheduled_by == transport::ScheduledBy::peers) return attend_peers();
  raw_packets_->make_ready(qp);
}

void Adapter::watch_deadline(QueuePair& qp, Time deadline) {
  if (deadline >= qp.timer_armed_at) return;
  qp.timer_armed_at = deadline;
  hot_.timers.add(deadline, qp.number);
}

// Some entries had no room in the queue of timers.
void Adapter::handle_all_deadlines(Time now) {
  hot_.qps_by_number.for_each([&](QueuePair* qp) { handle_deadline_of(now, *qp); });
  const Time next = completion_events_.raise_due(now);
  if (next != Time::never()) hot_.timers.add(next, held_events);
}

void Adapter::handle_deadline_of(Time now, QueuePair& qp) {
  qp.timer_armed_at = Time::never();
  Agenda agenda = qp.agenda();
  if (agenda.deadline <= now) {
    qp.handle_deadline(now);
    agenda = qp.agenda();
    schedule(qp, agenda);
  }
  watch_deadline(qp, agenda.deadline);
}

void Adapter::rebase(Time by) {
  qps_.for_each([by](QueuePair& qp) { qp.rebase(by); });
  environment_.rebase(by);
  completion_events_.rebase(by);
  hot_.timers.rebase(by);
  for (std::uint8_t i = 1; i <= configuration_.ports; ++i) at(i).port.rebase(by);
}

void Adapter::handle_deadline(Time now) {
  while (hot_.timers.next() <= now && !hot_.timers.empty()) {
    const TimerQueue::Entry entry = hot_.timers.pop();
    if (entry.qp == TimerQueue::all_queue_pairs) [[unlikely]] {
      handle_all_deadlines(now);
      continue;
    }
    QueuePair* qp = find_qp(entry.qp);
    // A number without a queue pair may mark held events. Otherwise the queue pair is gone, or an
    // earlier entry has replaced this one.
    if (qp == nullptr && entry.qp == held_events) {
      const Time next = completion_events_.raise_due(now);
      if (next != Time::never()) hot_.timers.add(next, held_events);
    }
    if (qp == nullptr || qp->timer_armed_at != entry.at) continue;
    handle_deadline_of(now, *qp);
  }
}

bool Adapter::pull_event(Event& event) {
  if (verbs::CompletionQueue* cq = completion_events_.take()) {
    event = {};
    event.cq = cq;
    return true;
  }
  if (environment_.events.empty()) return false;
  const transport::AsyncEvent& next = environment_.events.front();
  event = {Event::Kind::asynchronous, next.type, next.cq, next.qp, next.srq};
  environment_.events.pop();
  return true;
}

const Counters& Adapter::counters() const {
  counters_.transport = environment_.counters;
  return counters_;
}

// --- work ---

VerbsStatus Adapter::post_send(QueuePair& qp, const verbs::SendRequest& request) {
  const VerbsStatus status = qp.post_send(request);
  if (status == VerbsStatus::ok) schedule(qp, qp.agenda());
  return status;
}

VerbsStatus Adapter::post_receive(QueuePair& qp, const verbs::ReceiveRequest& request) {
  if (qp.transport.found_by != transport::FoundBy::tcp_ports) [[likely]]
    return qp.post_receive(request);
  // The program may have read bytes of a socket, so that there is a new window to tell the peer. A
  // queue pair that had work before has been given a turn, or a core of its kernel, already.
  const bool had_work = qp.agenda().work;
  const VerbsStatus status = qp.post_receive(request);
  const transport::Agenda agenda = qp.agenda();
  if (!had_work) schedule(qp, agenda);
  return status;
}

QueuePair* Adapter::find_other_qp(QpNumber number) {
  auto& [last, other] = hot_.recent;
  if (other != nullptr && other->number == number) {
    std::swap(last, other);
    return last;
  }
  QueuePair* found = hot_.qps_by_number.find(number.value);
  if (found != nullptr) other = std::exchange(last, found);
  return found;
}

}  // namespace tulle::device
