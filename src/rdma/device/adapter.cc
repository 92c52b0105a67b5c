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

// Returns where the numbers of queue pairs begin in their range.
std::uint32_t first_offset(const Configuration& configuration) {
  TULLE_CHECK(configuration.qp_count > 0);
  Random random(configuration.seed ^ configuration.first_qp.value);
  return static_cast<std::uint32_t>(random.below(configuration.qp_count));
}

// Sets what an adapter's queue pairs share.
void set_up(transport::Environment& environment, const Configuration& configuration) {
  environment.congestion = configuration.congestion;
  environment.congestion.dcqcn.line_bits_per_second = configuration.line_bits_per_second;
  environment.congestion.infiniband.line_bits_per_second = configuration.line_bits_per_second;
  // Paced rates count the overhead of RoCE v2 on every link but one with InfiniBand's congestion
  // control, so that the rates of notices on InfiniBand are a little low.
  const port::Framing& paced =
      configuration.congestion.infiniband.enabled ? *configuration.framing : port::roce_v2;
  environment.link_overhead_bytes = paced.overhead.around_transport_bytes();
  if (configuration.srd != nullptr) environment.srd_settings = *configuration.srd;
  environment.srd_settings.seed ^= configuration.seed;
  environment.srd_settings.line_bits_per_second = configuration.line_bits_per_second;
  if (configuration.congestion.infiniband.by_service_level) {
    environment.injections = std::make_unique<std::array<transport::congestion::Injection, 16>>();
  }
  environment.recovery = configuration.recovery;
  TULLE_CHECK(configuration.recovery.kind != transport::Recovery::selective_repeat ||
              configuration.recovery.window_packets > 0);
  if (configuration.recovery.window_packets > 0) {
    environment.congestion.window =
        bounded(configuration.congestion.window, configuration.recovery.window_packets);
  }
}

// Decodes the packet in a frame, which may be decoded already.
port::Verdict decode_frame(const port::Framing& usual, port::Arrival& arrival,
                           std::span<const std::byte> bytes, wire::Packet& decoded,
                           std::span<const std::byte>& payload) {
  if (arrival.packet != nullptr) return port::Verdict::ok;
  if (!arrival.head.empty()) return port::decode_transport(arrival.head, bytes, decoded, payload);
  const port::Framing& framing = arrival.framing != nullptr ? *arrival.framing : usual;
  return framing.decode(bytes, arrival, decoded, payload);
}

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

Adapter::Hot::Hot(const Configuration& configuration)
    : numbers(configuration.first_qp, configuration.qp_count, first_offset(configuration)),
      framing(configuration.framing),
      packets_per_turn(configuration.packets_per_turn),
      has_many_ports(configuration.ports > 1) {}

Adapter::Adapter(const Configuration& configuration)
    : configuration_(configuration),
      environment_(configuration.draw != nullptr ? RandomSource(configuration.draw)
                                                 : RandomSource(configuration.seed),
                   configuration.ports),
      hot_(configuration),
      ports_(configuration),
      lanes_(configuration.lanes),
      objects_(configuration.limits, configuration.first_qp, configuration.qp_count, environment_,
               completion_events_, hot_.numbers.map()),
      handles_(configuration.limits.address_handles) {
  // Completion events have no clock. A timer that is due at once is the first to learn the time.
  completion_events_.tell = [](void* timers) {
    static_cast<TimerQueue*>(timers)->add(Time(), held_events);
  };
  completion_events_.tell_context = &hot_.timers;
  set_up(environment_, configuration);
  if (configuration_.tcp != nullptr) environment_.tcp = configuration_.tcp.get();
  TULLE_CHECK(configuration.ports > 0);
}

Adapter::~Adapter() = default;

void Adapter::set_gids(std::span<const Gid> gids, std::uint8_t port, const OtherFraming& other) {
  ports_[port].set_gids(gids, other, gids_in_use(port));
  environment_.port(port).gids = ports_[port].gids();
}

// Returns the port's GIDs used by address handles and by queue pairs that have a path to their
// peer.
std::bitset<Adapter::gids_max> Adapter::gids_in_use(std::uint8_t port) const {
  std::bitset<gids_max> used;
  hot_.numbers.for_each([&](const QueuePair* qp) {
    const verbs::AddressVector& to = qp->attributes().address;
    if (qp->attributes().port == port && to.destination.gid != Gid{}) used.set(to.source_gid_index);
  });
  handles_.for_each([&](const verbs::AddressHandle& handle) {
    if (handle.to.port == port) used.set(handle.to.source_gid_index);
  });
  return used;
}

void Adapter::set_lid(Lid lid, unsigned lmc, std::uint8_t port) {
  ports_[port].set_lid(lid, lmc);
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
  const port::Verdict verdict =
      decode_frame(*configuration_.framing, arrival, bytes, decoded, payload);
  const std::size_t around =
      arrival.packet == nullptr
          ? 0
          : wire::header_bytes(arrival.packet->opcode) + arrival.packet->pad_count;
  ++counters_.packets_received;
  counters_.bytes_received += bytes.size() + around;
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
  if (!ports_[port].is_way_of(*qp, path)) [[unlikely]] {
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
  QueuePair* qp = streams_.find(header, source);
  if (qp == nullptr) {
    ++counters_.unknown_queue_pair;
    return;
  }
  visit(*qp, qp->handle_segment(now, header, payload, path));
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

void Adapter::handle_multicast(Time now, const wire::Packet& packet, transport::Payload payload,
                               const wire::Path& path, std::uint8_t port) {
  const MulticastGroups::Delivery done = multicast_.deliver(now, packet, payload, path, port);
  if (!done.has_group) ++counters_.unknown_queue_pair;
  counters_.pkey_violations += done.pkey_violations;
  environment_.counters.dropped_packets += done.pkey_violations;
}

bool Adapter::pull_datagram(Time now, Datagram& out, std::uint8_t number) {
  AdapterPort& port = ports_[number];
  if (!port.port.has_credits()) return pull_by_level(now, port, out, port.port.stopped());
  return pull_by_lane(now, port, out);
}

// Pulls a datagram from the level that the port's arbiter chooses among the lanes with something to
// send. Levels without a lane do not wait. A lane that is in no table, or lacks credits for the
// longest frame, holds its levels back.
bool Adapter::pull_by_lane(Time now, AdapterPort& port, Datagram& out) {
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
bool Adapter::pull_by_level(Time now, AdapterPort& port, Datagram& out,
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

inline void Adapter::complete_pull(const AdapterPort& port, const QueuePair& qp, Datagram& out) {
  port.address(qp, *hot_.framing, out);
  ++counters_.packets_sent;
  counters_.bytes_sent +=
      out.headers == Datagram::Headers::bth ? out.udp_payload_bytes() : out.segment_bytes();
}

inline bool Adapter::pull_from(Time now, AdapterPort& port, QueuePair& qp, Datagram& out) {
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

QueuePair* Adapter::take_ready() { return ports_.first().turns.take(); }

bool Adapter::pull_datagram_of(Time now, QueuePair& qp, Datagram& out) {
  const Agenda agenda = qp.pull(now, out);
  if (agenda.packet) complete_pull(ports_.first(), qp, out);
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
bool Adapter::pull_notification(AdapterPort& port, Datagram& out, std::uint32_t held_back_levels) {
  const std::uint8_t level = environment_.congestion.notification_service_level;
  if ((held_back_levels >> level & 1) != 0) return false;
  QueuePair& qp = *port.turns.first_notification();
  port.turns.remove_notification(qp);
  out.headers = Datagram::Headers::bth;
  qp.emit_notification(out);
  port.address(qp, *hot_.framing, out);
  wire::clear_ecn(out.path);
  out.service_level = level;
  ++counters_.packets_sent;
  counters_.bytes_sent += out.udp_payload_bytes();
  return true;
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
  hot_.numbers.for_each([&](QueuePair* qp) { handle_deadline_of(now, *qp); });
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
  ports_.rebase(by);
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

}  // namespace tulle::device
