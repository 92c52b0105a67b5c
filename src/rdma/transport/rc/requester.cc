#include "rdma/transport/rc/requester.h"

#include <algorithm>

#include "rdma/transport/local_memory.h"
#include "rdma/transport/rc/request_packets.h"

namespace tulle::transport::rc {

using verbs::CompletionStatus;
using verbs::QpState;
using verbs::SendFlag;
using verbs::SendOpcode;

namespace {

// The most packets that one READ request asks for, if several may be in flight.
constexpr std::uint32_t read_packets_max = 32;

}  // namespace

void Requester::start(QueuePair& qp) {
  reset();
  unacknowledged_ = next_psn_ = sent_end_ = qp.attributes().sq_psn;
  retries_.restart(qp.attributes());
  const RecoverySettings& recovery = qp.environment.recovery;
  if (recovery.kind == Recovery::selective_repeat) {
    scoreboard_ = std::make_unique<Scoreboard>(recovery.window_packets, recovery.reordering_packets,
                                               unacknowledged_);
  }
  direct_.connect(qp);
}

bool Requester::drained(const QueuePair& qp) const {
  return qp.send_queue.empty() || (!qp.send_queue[0].started && !direct_.is_under_way());
}

bool Requester::pull_packet(Time now, QueuePair& qp, OutgoingPacket& out) {
  const auto may_send = [&] { return qp.state() == QpState::rts || qp.state() == QpState::sqd; };
  if (!may_send() || !rnr_until_.is_never()) return false;
  if (scoreboard_ != nullptr && send_again(now, qp, out)) return true;
  while (may_send() && cursor_ < qp.send_queue.size()) {
    SendWqe& wqe = qp.send_queue[cursor_];
    // This request failed locally. It waits for the requests before it, which may have to be sent
    // again. Nothing behind it is sent.
    if (wqe.status != CompletionStatus::success) return false;
    if (direct_.is_connected()) {
      const DirectTransfer::Outcome outcome = execute_direct(now, qp);
      if (outcome == DirectTransfer::Outcome::under_way) return false;
      if (outcome == DirectTransfer::Outcome::complete) continue;
    }
    if (!wqe.started) {
      const Begin begun = begin(qp, wqe);
      if (begun == Begin::wait || begun == Begin::failed) return false;
    }
    if (wqe.executed) {
      ++cursor_;
      retire_ready(qp);
      continue;
    }
    const std::uint32_t reads_max =
        std::min<std::uint32_t>(qp.attributes().max_rd_atomic, OutstandingReads::most);
    if (wqe.is_read_or_atomic() && reads_.in_flight() >= reads_max) return false;
    const std::uint32_t flying = in_flight(qp);
    if (flying > 0 && flying >= qp.congestion.window_packets()) return false;
    return emit(now, qp, wqe, out);
  }
  return false;
}

// Returns true if a request that has not started must wait for earlier ones.
bool Requester::must_wait(const QueuePair& qp, const SendWqe& wqe) const {
  if (qp.state() == QpState::sqd) return true;
  // IBTA 10.8.3.3: a fenced request waits for all earlier READs and atomics.
  if (wqe.flags.has(SendFlag::fence) && reads_.in_flight() > 0) return true;
  // IBTA 10.8.3.3: a local invalidate starts when all earlier requests are done. An earlier request
  // may still need the key in a retry.
  if (wqe.opcode == SendOpcode::local_invalidate && cursor_ > 0) return true;
  // IBTA 9.7.7.2.5: beyond the credits, one message may be sent as a probe when nothing else is in
  // flight.
  if (wqe.consumes_receive() && credits_.are_used_up()) return in_flight(qp) > 0;
  return false;
}

Requester::Begin Requester::begin(QueuePair& qp, SendWqe& wqe) {
  if (must_wait(qp, wqe)) return Begin::wait;
  if (wqe.is_local()) return execute_local(qp, wqe);
  const bool is_word = wqe.is_read_or_atomic() && wqe.opcode != SendOpcode::read;
  // The responder alone checks the address: a request for one that is not aligned goes out, and is
  // refused with a NAK (IBTA 9.4.5).
  const bool bad_atomic = is_word && wqe.length != 8;
  const bool no_depth = wqe.is_read_or_atomic() && qp.attributes().max_rd_atomic == 0;
  if (bad_atomic || no_depth) {
    fail(qp, wqe, CompletionStatus::local_qp_operation_error);
    return Begin::failed;
  }
  const std::uint32_t mtu = qp.mtu_bytes();
  wqe.packets = wqe.is_atomic() ? 1 : std::max((wqe.length + mtu - 1) / mtu, 1u);
  wqe.first_psn = next_psn_;
  wqe.started = true;
  next_psn_ = next_psn_ + wqe.packets;
  cursor_packet_ = 0;
  // A fenced request may send what the READs before it brought.
  if (wqe.flags.has(SendFlag::fence) && qp.environment.withheld != nullptr) [[unlikely]]
    qp.environment.withheld->release_all(qp.number);
  if (wqe.consumes_receive()) credits_.message_started();
  direct_.request_started(wqe);
  return Begin::go;
}

Requester::Begin Requester::execute_local(QueuePair& qp, SendWqe& wqe) {
  const CompletionStatus status = transport::execute_local(qp, wqe);
  if (status != CompletionStatus::success) {
    fail(qp, wqe, status);
    return Begin::failed;
  }
  wqe.started = wqe.executed = true;
  wqe.packets = 0;
  wqe.first_psn = next_psn_;
  return Begin::executed;
}

// Executes the request at the cursor by the direct path. It completes after the earlier ones.
DirectTransfer::Outcome Requester::execute_direct(Time now, QueuePair& qp) {
  // After the cursor has gone back, SENDs come before the transfer once more.
  const DirectTransfer::Outcome outcome = direct_.execute(now, qp, cursor_);
  using enum DirectTransfer::Outcome;
  if (outcome == not_direct || outcome == under_way) return outcome;
  if (outcome == complete) complete_direct(qp, qp.send_queue[cursor_]);
  // A transfer that was refused on its way has not started as far as the peer knows.
  if (qp.state() == QpState::sqd && drained(qp)) qp.sent_all();
  return outcome;
}

void Requester::complete_direct(QueuePair& qp, SendWqe& wqe) {
  ++qp.environment.counters.direct_transfers;
  qp.environment.counters.direct_bytes += wqe.length;
  wqe.started = wqe.executed = true;
  wqe.packets = 0;
  wqe.first_psn = next_psn_;
  ++cursor_;
  retire_ready(qp);
}

inline bool Requester::emit(Time now, QueuePair& qp, SendWqe& wqe, OutgoingPacket& out) {
  const std::uint32_t psns = fill(qp, wqe, out);
  if (psns == 0) return false;
  advance_cursor(now, qp, wqe, out.packet, psns);
  return true;
}

// Fills in the packet at the cursor. Returns the number of PSNs that it takes, or 0 if the request
// has failed.
std::uint32_t Requester::fill(QueuePair& qp, SendWqe& wqe, OutgoingPacket& out) {
  const std::uint32_t asked = wqe.opcode == SendOpcode::read ? packets_of_read(qp, wqe) : 1;
  const std::uint32_t psns = put_request(qp, wqe, cursor_packet_, asked, wants_ack(qp, wqe), out);
  if (psns == 0) fail(qp, wqe, CompletionStatus::local_protection_error);
  return psns;
}

bool Requester::wants_ack(const QueuePair& qp, const SendWqe& wqe) const {
  if (cursor_packet_ + 1 == wqe.packets) return true;
  if (since_ack_request_ + 1 >= qp.environment.congestion.packets_per_ack_request) return true;
  return in_flight(qp) + 1 >= qp.congestion.window_packets();
}

// Returns the number of packets for which the next request of a READ asks.
std::uint32_t Requester::packets_of_read(const QueuePair& qp, const SendWqe& wqe) const {
  if (const auto end = reads_.next_end()) {
    return static_cast<std::uint32_t>(end->distance_from(wqe.first_psn + cursor_packet_));
  }
  const std::uint32_t room =
      qp.congestion.window_packets() - std::min(in_flight(qp), qp.congestion.window_packets());
  // If only one READ may be in flight, each small piece would cost a round trip.
  const std::uint32_t most =
      qp.attributes().max_rd_atomic > 1 ? read_packets_max : congestion::Window::unlimited;
  return std::max(std::min({wqe.packets - cursor_packet_, room, most}), 1u);
}

inline void Requester::advance_cursor(Time now, QueuePair& qp, const SendWqe& wqe,
                                      const wire::Packet& sent, std::uint32_t psns) {
  const Psn end = sent.psn + psns;
  if (wqe.is_read_or_atomic()) reads_.sent(end);
  if (sent.psn.before(sent_end_)) qp.environment.counters.retransmitted_packets += 1;
  if (end.after(sent_end_)) sent_end_ = end;
  since_ack_request_ = sent.ack_request ? 0 : since_ack_request_ + 1;
  cursor_packet_ += psns;
  if (cursor_packet_ >= wqe.packets) {
    ++cursor_;
    cursor_packet_ = 0;
  }
  if (timer_.is_never()) arm_timer(now, qp);
}

// IBTA 9.9.2.1: a request that fails locally completes after all earlier ones. Nothing behind it is
// sent.
void Requester::fail(QueuePair& qp, SendWqe& wqe, CompletionStatus status) {
  wqe.status = status;
  retire_ready(qp);
}

}  // namespace tulle::transport::rc
