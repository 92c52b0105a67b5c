#include "device/adapter.h"

#include <algorithm>

namespace tulle::device {

using transport::QueuePair;
using verbs::QpAttribute;
using verbs::VerbsStatus;

namespace {

// Packets that one queue pair may send before the next has its turn: what one segmented call to the kernel holds.
constexpr std::uint32_t packets_per_turn = 16;

constexpr std::uint16_t pkey_base_mask =
    0x7FFF;  // IBTA 10.9.3: the top bit tells full from limited members

}  // namespace

Adapter::Adapter(const Configuration& configuration)
    : configuration_(configuration), environment_(configuration.seed) {
  environment_.congestion = configuration.congestion;
  TULLE_CHECK(configuration.qp_count > 0);
  Random random(configuration.seed ^ configuration.first_qp.value);
  next_qp_offset_ = static_cast<std::uint32_t>(random.below(configuration.qp_count));
}

Adapter::~Adapter() = default;

void Adapter::set_gids(std::span<const Gid> gids) {
  gids_.assign(gids.begin(), gids.begin() + std::min<std::size_t>(gids.size(), 256));
}

// --- packets and time ---

link::Verdict Adapter::handle_datagram(Time now, const wire::IpUdp& ip, bool identification_known,
                                       std::span<const std::byte> udp_payload) {
  wire::Packet packet;
  std::span<const std::byte> payload;
  const link::Verdict verdict =
      link::decode(ip, identification_known, udp_payload, packet, payload);
  ++counters_.packets_received;
  counters_.bytes_received += udp_payload.size();
  ++counters_.received_by_verdict[static_cast<std::size_t>(verdict)];
  if (verdict != link::Verdict::ok) return verdict;
  handle_packet(now, packet, {payload.data(), static_cast<std::uint32_t>(payload.size())}, ip);
  return verdict;
}

void Adapter::handle_packet(Time now, const wire::Packet& packet, transport::Payload payload,
                            const wire::IpUdp& ip) {
  if (packet.opcode == wire::congestion_notification) {
    ++counters_.congestion_notifications;
    return;
  }
  QueuePair* qp = find_qp(packet.destination_qp);
  if (qp == nullptr) {
    ++counters_.unknown_queue_pair;
    return;
  }
  if ((packet.pkey.value & pkey_base_mask) != (default_pkey.value & pkey_base_mask)) {
    ++environment_.counters.dropped_packets;
    return;
  }
  qp->handle_packet(now, packet, payload, ip);
  schedule(*qp);
  watch_deadline(*qp);
}

bool Adapter::pull_datagram(Time now, Datagram& out) {
  while (ready_.first != nullptr) {
    QueuePair& qp = *ready_.first;
    if (!qp.pull_packet(now, out)) {
      unschedule(qp);
      watch_deadline(qp);
      continue;
    }
    address(qp, out);
    ++counters_.packets_sent;
    counters_.bytes_sent += out.udp_payload_bytes();
    watch_deadline(qp);
    if (++turn_packets_ >= packets_per_turn && qp.next_scheduled != nullptr) {
      unschedule(qp);
      schedule(qp);
    }
    return true;
  }
  return false;
}

void Adapter::address(const QueuePair& qp, Datagram& out) const {
  const verbs::AddressVector& path = *out.path;
  out.ip = {};
  if (path.source_gid_index < gids_.size()) out.ip.source = gids_[path.source_gid_index];
  out.ip.destination = path.destination;
  out.ip.traffic_class = path.traffic_class;
  out.ip.hop_limit = path.hop_limit;
  out.ip.flow_label = path.flow_label;
  out.ip.source_port = link::source_port(path.flow_label, qp.number, out.packet.destination_qp);
}

void Adapter::finish_frame(Datagram& datagram, std::uint16_t identification) {
  datagram.ip.identification = identification;
  link::encode(datagram.ip, datagram.packet, {datagram.pieces.data(), datagram.piece_count},
               datagram.frame);
}

void Adapter::schedule(QueuePair& qp) {
  if (qp.scheduled) return;
  qp.scheduled = true;
  qp.next_scheduled = nullptr;
  (ready_.last != nullptr ? ready_.last->next_scheduled : ready_.first) = &qp;
  ready_.last = &qp;
}

void Adapter::unschedule(QueuePair& qp) {
  if (!qp.scheduled) return;
  if (ready_.first == &qp) turn_packets_ = 0;
  QueuePair* previous = nullptr;
  for (QueuePair* at = ready_.first; at != &qp; at = at->next_scheduled) previous = at;
  (previous != nullptr ? previous->next_scheduled : ready_.first) = qp.next_scheduled;
  if (ready_.last == &qp) ready_.last = previous;
  qp.scheduled = false;
  qp.next_scheduled = nullptr;
}

void Adapter::watch_deadline(QueuePair& qp) {
  const Time deadline = qp.next_deadline();
  if (deadline >= qp.timer_armed_at) return;
  qp.timer_armed_at = deadline;
  timers_.add(deadline, qp.number);
}

Time Adapter::next_deadline() const { return timers_.next(); }

void Adapter::handle_deadline(Time now) {
  while (timers_.next() <= now && !timers_.empty()) {
    const TimerQueue::Entry entry = timers_.pop();
    QueuePair* qp = find_qp(entry.qp);
    // A number that was given again, or an entry that an earlier one has replaced.
    if (qp == nullptr || qp->timer_armed_at != entry.at) continue;
    qp->timer_armed_at = Time::never();
    if (qp->next_deadline() <= now) {
      qp->handle_deadline(now);
      schedule(*qp);
    }
    watch_deadline(*qp);
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
  environment_.events.pop_front();
  return true;
}

const Counters& Adapter::counters() {
  counters_.transport = environment_.counters;
  return counters_;
}

// --- work ---

VerbsStatus Adapter::post_send(QueuePair& qp, Time, const verbs::SendRequest& request) {
  const VerbsStatus status = qp.post_send(request);
  if (status == VerbsStatus::ok) schedule(qp);
  return status;
}

VerbsStatus Adapter::post_receive(QueuePair& qp, const verbs::ReceiveRequest& request) {
  return qp.post_receive(request);
}

VerbsStatus Adapter::post_receive(verbs::SharedReceiveQueue& srq,
                                  const verbs::ReceiveRequest& request) {
  return srq.queue.post(request);
}

void Adapter::request_notification(verbs::CompletionQueue& cq, bool solicited_only) {
  cq.arm(solicited_only);
}

QueuePair* Adapter::find_qp(QpNumber number) { return qps_by_number_.find(number.value); }

}  // namespace tulle::device
