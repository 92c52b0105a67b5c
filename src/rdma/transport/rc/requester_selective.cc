// The requester's part of selective repeat (IRN, SIGCOMM 2018, 3.1). The cursor continues with new
// packets, while packets that the scoreboard considers lost are sent again one by one. In some
// cases a reliable connection must go back anyway: after an RNR NAK, or when a READ's answer is
// missing. The cursor then moves back as in go-back-N, and the scoreboard considers only packets
// before it.

#include <cstdint>
#include <optional>

#include "rdma/transport/rc/requester.h"

namespace tulle::transport::rc {
namespace {

// Returns the index of the started request with that PSN.
std::optional<std::uint32_t> request_of(const SendQueue& requests, Psn psn) {
  for (std::uint32_t i = 0; i < requests.size(); ++i) {
    const SendWqe& wqe = requests[i];
    if (!wqe.started || psn.before(wqe.first_psn)) return std::nullopt;
    if (wqe.packets > 0 && !psn.after(wqe.last_psn())) return i;
  }
  return std::nullopt;
}

}  // namespace

// Returns false if no packet has to be sent again.
bool Requester::send_again(Time now, QueuePair& qp, OutgoingPacket& out) {
  const std::optional<Psn> lost = scoreboard_->lost(cursor_psn(qp));
  if (!lost) return false;
  const std::uint32_t cursor = cursor_;
  const std::uint32_t cursor_packet = cursor_packet_;
  const std::uint32_t reads = reads_.in_flight();
  if (!move_cursor(qp, *lost)) return false;
  const std::uint32_t psns = fill(qp, qp.send_queue[cursor_], out);
  // If the request fails locally, the cursor stays at it, so nothing behind it is sent any more.
  if (psns == 0) return false;
  out.packet.ack_request = true;
  cursor_ = cursor;
  cursor_packet_ = cursor_packet;
  reads_.restore(reads);
  scoreboard_->sent_again(*lost + psns);
  qp.environment.counters.retransmitted_packets += 1;
  if (timer_.is_never()) arm_timer(now, qp);
  return true;
}

// Moves the cursor to a packet that was sent before. Returns false if no started request contains
// it.
bool Requester::move_cursor(const QueuePair& qp, Psn psn) {
  const std::optional<std::uint32_t> index = request_of(qp.send_queue, psn);
  if (!index) return false;
  const SendWqe& wqe = qp.send_queue[*index];
  cursor_ = *index;
  cursor_packet_ = static_cast<std::uint32_t>(psn.distance_from(wqe.first_psn));
  if (wqe.is_read_or_atomic()) reads_.move_to(psn);
  return true;
}

// Returns the number of PSNs that an early request packet covers. A READ request may cover several.
std::uint32_t Requester::psns_of_request(const QueuePair& qp, Psn psn) const {
  const std::optional<Psn> end = reads_.end_of(psn);
  const std::optional<std::uint32_t> index = request_of(qp.send_queue, psn);
  if (!end || !index || qp.send_queue[*index].opcode != verbs::SendOpcode::read) return 1;
  return static_cast<std::uint32_t>(end->distance_from(psn));
}

void Requester::handle_selective_acknowledge(Time now, QueuePair& qp, const wire::Packet& packet) {
  if (!acknowledge_or_retry(now, qp, packet.psn - 1)) return;
  // The queue pair may have ended when the acknowledged requests completed.
  if (scoreboard_ == nullptr) return;
  ++qp.environment.counters.sequence_naks_received;
  const Psn early = packet.early_psn;
  if (!early.after(unacknowledged_) || !early.before(sent_end_)) return;
  scoreboard_->arrived(early, psns_of_request(qp, early));
  if (scoreboard_->begin(cursor_psn(qp), sent_end_)) qp.congestion.lost();
}

Time Requester::loss_timeout(const QueuePair& qp) const {
  const RecoverySettings& recovery = qp.environment.recovery;
  return in_flight(qp) <= recovery.few_packets ? recovery.timeout_low : recovery.timeout_high;
}

// IRN's time-outs send one packet again. As with go-back-N, the application decides how long the
// peer may be silent before the connection fails (IBTA 9.9.2.1.1): its time-out, which grows as
// with go-back-N (recovery.h), times its retries.
void Requester::arm_loss_timer(Time now, const QueuePair& qp) {
  retry_over_ = retries_.due(now, qp);
  timer_began_ = now;
  timer_ = now + loss_timeout(qp);
}

void Requester::handle_loss_timeout(Time now, QueuePair& qp) {
  // More may be in flight than when the timer was set.
  if (now < timer_began_ + loss_timeout(qp)) {
    timer_ = timer_began_ + loss_timeout(qp);
    return;
  }
  ++qp.environment.counters.ack_timeouts;
  if (now >= retry_over_) {
    retry_over_ = retries_.excused_until(now, retry_over_, qp).value_or(retry_over_);
  }
  if (now >= retry_over_) {
    if (!retries_.take(qp)) {
      if (qp.send_queue.front().started) {
        retire(qp, verbs::CompletionStatus::retry_exceeded_error, 0);
      }
      return;
    }
    retries_.begin_timeout();
    retry_over_ = retries_.due(now, qp);
  }
  rewound_ = false;
  qp.congestion.lost();
  scoreboard_->timed_out(sent_end_);
  timer_began_ = now;
  timer_ = now + loss_timeout(qp);
}

}  // namespace tulle::transport::rc
