// The second half of the requester: responses, and time-outs when no response comes.

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "rdma/transport/local_memory.h"
#include "rdma/transport/nak_status.h"
#include "rdma/transport/rc/requester.h"

namespace tulle::transport::rc {

using verbs::CompletionStatus;
using verbs::QpState;
using wire::Kind;

namespace {

// Returns true if the queue pair has ended. Completing a request may end it: a request behind it
// had failed locally, or the completion queue is full. The requester has been reset then.
bool has_ended(const QueuePair& qp) {
  return qp.state() != QpState::rts && qp.state() != QpState::sqd;
}

}  // namespace

void Requester::handle_response(Time now, QueuePair& qp, const wire::Packet& packet,
                                Payload payload) {
  if (has_ended(qp)) return;
  // IBTA 9.7.5.1.3: a response outside the range of PSNs in flight is a ghost or a duplicate.
  if (!packet.psn.before(sent_end_) || packet.psn.before(unacknowledged_ - 1)) return;
  switch (wire::info(packet.opcode).kind) {
    case Kind::acknowledge:
      handle_acknowledge(now, qp, packet);
      break;
    case Kind::read_response:
      handle_read_response(now, qp, packet, payload);
      break;
    case Kind::atomic_acknowledge:
      handle_atomic_response(now, qp, packet);
      break;
    case Kind::selective_acknowledge:
      handle_selective_acknowledge(now, qp, packet);
      break;
    default:
      break;
  }
  if (qp.state() == QpState::sqd && drained(qp)) qp.sent_all();
}

inline void Requester::handle_acknowledge(Time now, QueuePair& qp, const wire::Packet& packet) {
  switch (packet.syndrome.kind) {
    case wire::AckKind::ack:
      static_cast<void>(acknowledge_or_retry(now, qp, packet.psn));
      update_credits(qp, packet);
      break;
    case wire::AckKind::rnr_nak:
      handle_rnr(now, qp, packet);
      break;
    case wire::AckKind::nak:
      handle_nak(now, qp, packet);
      break;
    case wire::AckKind::reserved:
      break;
  }
}

void Requester::handle_nak(Time now, QueuePair& qp, const wire::Packet& packet) {
  // A NAK of one PSN acknowledges everything before it (IBTA 9.7.5.1.3).
  if (packet.psn.before(unacknowledged_)) return;
  if (!acknowledge_or_retry(now, qp, packet.psn - 1)) return;
  const auto code = static_cast<wire::NakCode>(packet.syndrome.value);
  if (code == wire::NakCode::psn_sequence_error) {
    ++qp.environment.counters.sequence_naks_received;
    retry_now(now, qp);
    return;
  }
  if (packet.syndrome.value > static_cast<std::uint8_t>(wire::NakCode::invalid_rd_request)) return;
  if (qp.send_queue.empty() || !qp.send_queue.front().started) return;
  ++qp.environment.counters.remote_errors_received;
  retire(qp, status_of(code), 0);
}

void Requester::handle_rnr(Time now, QueuePair& qp, const wire::Packet& packet) {
  if (packet.psn.before(unacknowledged_)) return;
  if (!acknowledge_or_retry(now, qp, packet.psn - 1)) return;
  if (!rnr_until_.is_never()) return;  // a duplicate
  if (qp.send_queue.empty() || !qp.send_queue.front().started) return;
  ++qp.environment.counters.rnr_naks_received;
  if (!retries_.take_rnr(qp.attributes())) {
    retire(qp, CompletionStatus::rnr_retry_exceeded_error, 0);
    return;
  }
  rnr_until_ = now + rnr_timer(packet.syndrome.value);
  timer_ = Time::never();
  go_back(qp);
}

bool Requester::acknowledge_or_retry(Time now, QueuePair& qp, Psn psn) {
  if (acknowledge(now, qp, psn)) return true;
  ++qp.environment.counters.implied_naks;
  retry_now(now, qp);
  return false;
}

bool Requester::acknowledge(Time now, QueuePair& qp, Psn psn) {
  std::uint32_t packets = 0;
  bool complete = true;
  while (!qp.send_queue.empty()) {
    SendWqe& wqe = qp.send_queue.front();
    if (!wqe.started || wqe.packets == 0 || psn.before(unacknowledged_)) break;
    if (wqe.is_read_or_atomic()) {
      complete = false;
      break;
    }
    const Psn through = wqe.last_psn().after(psn) ? psn : wqe.last_psn();
    if (through != wqe.last_psn() && qp.environment.recovery.kind == Recovery::go_back_0) {
      // An acknowledged part of a message does not count. But the responder has begun the message,
      // and may ask for it again from the start.
      rewound_ = false;
      arm_timer(now, qp);
      break;
    }
    packets += static_cast<std::uint32_t>(through.distance_from(unacknowledged_)) + 1;
    unacknowledged_ = through + 1;
    if (through != wqe.last_psn()) break;
    retire(qp, CompletionStatus::success, wqe.length);
    retire_ready(qp);
    if (has_ended(qp)) return true;
  }
  if (packets > 0) progressed(now, qp, packets);
  return complete;
}

inline void Requester::progressed(Time now, QueuePair& qp, std::uint32_t packets) {
  rewound_ = false;
  retries_.restart(qp.attributes());
  qp.congestion.delivered(packets);
  if (scoreboard_ != nullptr) scoreboard_->acknowledged(unacknowledged_);
  reads_.answered_until(unacknowledged_);
  // The answer may have come after the cursor went back. Packets that it covers need not be sent
  // again.
  if (cursor_ < qp.send_queue.size()) {
    const SendWqe& wqe = qp.send_queue[cursor_];
    if (wqe.started && (wqe.first_psn + cursor_packet_).before(unacknowledged_)) {
      cursor_packet_ = static_cast<std::uint32_t>(unacknowledged_.distance_from(wqe.first_psn));
    }
  }
  timer_ = Time::never();
  if (in_flight(qp) > 0) arm_timer(now, qp);
}

// Completes the request at the head of the queue.
void Requester::retire(QueuePair& qp, CompletionStatus status, std::uint32_t bytes) {
  const SendWqe wqe = qp.send_queue.front();
  if (wqe.consumes_receive()) credits_.message_done();
  direct_.request_retired(wqe);
  qp.send_queue.pop();
  if (cursor_ > 0) {
    --cursor_;
  } else {
    cursor_packet_ = 0;
  }
  qp.complete(wqe, status, bytes);
  if (status != CompletionStatus::success) {
    timer_ = rnr_until_ = Time::never();
    qp.enter_error();
  }
}

// Completes what was executed without packets, and a request that failed locally, once they are at
// the head.
void Requester::retire_ready(QueuePair& qp) {
  while (!qp.send_queue.empty()) {
    const SendWqe& wqe = qp.send_queue.front();
    if (wqe.status != CompletionStatus::success) {
      retire(qp, wqe.status, 0);
      return;
    }
    if (!wqe.executed) return;
    retire(qp, CompletionStatus::success, wqe.length);
  }
}

// Returns true if a READ or atomic response is the next one due. A response further ahead means
// that an earlier one was lost.
bool Requester::expects_response(Time now, QueuePair& qp, const wire::Packet& packet) {
  if (packet.psn.before(unacknowledged_)) return false;  // a duplicate
  // IBTA 9.7.5.1.3: a response acknowledges every request before it.
  if (!acknowledge_or_retry(now, qp, packet.psn - 1)) return false;
  if (qp.send_queue.empty() || !qp.send_queue.front().started) return false;
  return packet.psn == unacknowledged_;
}

void Requester::handle_read_response(Time now, QueuePair& qp, const wire::Packet& packet,
                                     Payload payload) {
  if (!expects_response(now, qp, packet)) return;
  const SendWqe& wqe = qp.send_queue.front();
  const std::uint32_t mtu = qp.mtu_bytes();
  // The answer to an atomic write is the response to a READ of zero bytes (IBTA A19).
  const bool is_write = wqe.opcode == verbs::SendOpcode::atomic_write;
  if (wqe.opcode != verbs::SendOpcode::read && !is_write) {
    retire(qp, CompletionStatus::bad_response_error, 0);
    return;
  }
  const auto index = static_cast<std::uint32_t>(packet.psn.distance_from(wqe.first_psn));
  const std::uint32_t offset = index * mtu;
  // IBTA 9.9.2.3: a response of the wrong length is a bad response.
  if (payload.bytes != (is_write ? 0 : std::min(wqe.length - offset, mtu))) {
    retire(qp, CompletionStatus::bad_response_error, 0);
    return;
  }
  const Edges edges = {offset == 0, offset + payload.bytes == wqe.length};
  if (!is_write && !scatter(qp, wqe, offset, payload, edges)) {
    retire(qp, CompletionStatus::local_protection_error, 0);
    return;
  }
  const bool done = packet.psn == wqe.last_psn();
  unacknowledged_ = packet.psn + 1;
  if (done) {
    retire(qp, CompletionStatus::success, wqe.length);
    retire_ready(qp);
  }
  if (has_ended(qp)) return;
  progressed(now, qp, 1);
  if (wire::info(packet.opcode).aeth) update_credits(qp, packet);
}

void Requester::handle_atomic_response(Time now, QueuePair& qp, const wire::Packet& packet) {
  if (!expects_response(now, qp, packet)) return;
  const SendWqe& wqe = qp.send_queue.front();
  if (!wqe.is_atomic()) {
    retire(qp, CompletionStatus::bad_response_error, 0);
    return;
  }
  std::array<std::byte, 8> original;
  std::memcpy(original.data(), &packet.original, original.size());
  if (!scatter(qp, wqe, 0, {original.data(), 8}, {true, true})) {
    retire(qp, CompletionStatus::local_protection_error, 0);
    return;
  }
  unacknowledged_ = packet.psn + 1;
  retire(qp, CompletionStatus::success, 8);
  retire_ready(qp);
  if (has_ended(qp)) return;
  progressed(now, qp, 1);
  update_credits(qp, packet);
}

// Go-back-N: moves the cursor back to the oldest unacknowledged packet.
void Requester::go_back(QueuePair& qp) {
  cursor_ = 0;
  cursor_packet_ = 0;
  reads_.go_back();
  since_ack_request_ = 0;
  if (scoreboard_ != nullptr) scoreboard_->abandon();
  if (!qp.send_queue.empty() && qp.send_queue.front().packets > 0) {
    const SendWqe& head = qp.send_queue.front();
    cursor_packet_ =
        static_cast<std::uint32_t>(std::max(unacknowledged_.distance_from(head.first_psn), 0));
  }
}

// Sends again at once after a loss that the responder reported, but only once for each packet that
// the responder asks for.
void Requester::retry_now(Time now, QueuePair& qp) {
  if (rewound_ || !rnr_until_.is_never()) return;
  rewound_ = true;
  qp.congestion.lost();
  go_back(qp);
  arm_timer(now, qp);
}

inline void Requester::update_credits(const QueuePair& qp, const wire::Packet& packet) {
  if (packet.syndrome.kind != wire::AckKind::ack || qp.state() == QpState::error) return;
  credits_.update(packet.syndrome.value);
}

void Requester::handle_deadline(Time now, QueuePair& qp) {
  direct_.handle_deadline(now);
  if (!rnr_until_.is_never() && rnr_until_ <= now) {
    rnr_until_ = Time::never();
    if (in_flight(qp) > 0) arm_timer(now, qp);
  }
  if (timer_.is_never() || timer_ > now) return;
  const Time due = std::exchange(timer_, Time::never());
  if (sent_end_ == unacknowledged_ || qp.send_queue.empty()) return;
  if (scoreboard_ != nullptr) return handle_loss_timeout(now, qp);
  if (const auto until = retries_.excused_until(now, due, qp)) {
    timer_ = *until;
    return;
  }
  ++qp.environment.counters.ack_timeouts;
  if (!retries_.take(qp)) {
    if (qp.send_queue.front().started) retire(qp, CompletionStatus::retry_exceeded_error, 0);
    return;
  }
  rewound_ = false;
  qp.congestion.lost();
  go_back(qp);
}

}  // namespace tulle::transport::rc
