#pragma once

// The requester of a reliable connection (IBTA 9.7.3 to 9.7.7).
//
// One cursor reads the send queue. Everything before it is in flight or done. A request gets its
// PSNs when it starts and keeps them when it is sent again. Acknowledgement is cumulative, so
// recovery is one move: the cursor goes back to the oldest unacknowledged packet (go-back-N), which
// is always in the request at the head of the queue.
//
// A READ longer than the congestion window is sent as several READ requests with consecutive PSNs,
// like those of a partial retry. This bounds what the responder may send at once, although the
// responder knows nothing of the window.

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/ids.h"
#include "base/time.h"
#include "rdma/transport/congestion/window.h"
#include "rdma/transport/direct_path.h"
#include "rdma/transport/packet_io.h"
#include "rdma/transport/queue_pair.h"
#include "rdma/transport/rc/scoreboard.h"
#include "rdma/transport/send_queue.h"
#include "rdma/wire/packet.h"

namespace tulle::transport::rc {

class Requester {
 public:
  // RTR to RTS: the first PSN is known. Asks whether the peer can be reached by the direct path.
  void start(QueuePair& qp);
  void reset() { *this = {}; }

  // Returns false if there is nothing to send now, or nothing may be sent.
  bool pull_packet(Time now, QueuePair& qp, OutgoingPacket& out);
  // Handles acknowledgements, NAKs, READ responses and atomic responses.
  void handle_response(Time now, QueuePair& qp, const wire::Packet& packet, Payload payload);

  Time next_deadline() const { return std::min(std::min(timer_, rnr_until_), direct_due_); }
  void handle_deadline(Time now, QueuePair& qp);
  void rebase(Time by) {
    tulle::rebase(by, timer_, rnr_until_, direct_waits_since_, direct_due_, timer_began_,
                  retry_over_);
  }

  // Returns true if some request has not been sent completely, or a lost packet must be sent again.
  bool has_more(const QueuePair& qp) const {
    return cursor_ < qp.send_queue.size() ||
           (scoreboard_ != nullptr && scoreboard_->lost(cursor_psn(qp)));
  }
  // Returns true if every request that has started is done (IBTA 10.3.1.5, SQD).
  bool drained(const QueuePair& qp) const;

  // Returns true if the requester uses selective repeat and handles its NACKs.
  bool is_selective() const { return scoreboard_ != nullptr; }

 private:
  // The most READ and atomic requests outstanding. IBTA bounds them by max_rd_atomic.
  static constexpr std::uint32_t reads_max = 16;

  enum class Begin : std::uint8_t { go, wait, executed, failed };

  // requester.cc: sending
  Begin begin(QueuePair& qp, SendWqe& wqe);
  Begin execute_local(QueuePair& qp, SendWqe& wqe);
  enum class Direct : std::uint8_t { refused, under_way, complete };
  Direct execute_direct(Time now, QueuePair& qp);
  static bool holds_back_direct(const SendWqe& wqe);
  bool may_go_direct(const QueuePair& qp, const SendWqe& wqe) const;
  Direct advance_direct(Time now, QueuePair& qp, const SendWqe& wqe);
  void complete_direct(QueuePair& qp, SendWqe& wqe);
  bool must_wait(const QueuePair& qp, const SendWqe& wqe) const;
  bool emit(Time now, QueuePair& qp, SendWqe& wqe, OutgoingPacket& out);
  std::uint32_t fill(QueuePair& qp, SendWqe& wqe, OutgoingPacket& out);
  bool emit_data(QueuePair& qp, const SendWqe& wqe, OutgoingPacket& out);
  void emit_read(const QueuePair& qp, const SendWqe& wqe, OutgoingPacket& out);
  void emit_atomic(const SendWqe& wqe, OutgoingPacket& out);
  bool emit_atomic_write(const QueuePair& qp, const SendWqe& wqe, OutgoingPacket& out);
  void advance_cursor(Time now, QueuePair& qp, const SendWqe& wqe, const wire::Packet& sent,
                      std::uint32_t psns);
  void fail(QueuePair& qp, SendWqe& wqe, verbs::CompletionStatus status);
  bool wants_ack(const QueuePair& qp, const SendWqe& wqe) const;
  void read_sent(Psn end);
  Psn cursor_psn(const QueuePair& qp) const {
    if (cursor_ >= qp.send_queue.size()) return next_psn_;
    const SendWqe& wqe = qp.send_queue[cursor_];
    return wqe.started ? wqe.first_psn + cursor_packet_ : next_psn_;
  }
  std::uint32_t in_flight(const QueuePair& qp) const {
    return static_cast<std::uint32_t>(std::max(cursor_psn(qp).distance_from(unacknowledged_), 0));
  }

  // requester_ack.cc: responses and time
  void handle_acknowledge(Time now, QueuePair& qp, const wire::Packet& packet);
  void handle_nak(Time now, QueuePair& qp, const wire::Packet& packet);
  void handle_rnr(Time now, QueuePair& qp, const wire::Packet& packet);
  void handle_read_response(Time now, QueuePair& qp, const wire::Packet& packet, Payload payload);
  void handle_atomic_response(Time now, QueuePair& qp, const wire::Packet& packet);
  // The responder has everything through `psn`. Returns false if a READ or atomic up to there has
  // not been answered (implied NAK).
  [[nodiscard]] bool acknowledge(Time now, QueuePair& qp, Psn psn);
  [[nodiscard]] bool expects_response(Time now, QueuePair& qp, const wire::Packet& packet);
  void progressed(Time now, QueuePair& qp, std::uint32_t packets);
  void retire(QueuePair& qp, verbs::CompletionStatus status, std::uint32_t bytes);
  void retire_ready(QueuePair& qp);
  void go_back(QueuePair& qp);
  void retry_now(Time now, QueuePair& qp);
  void update_credits(const QueuePair& qp, const wire::Packet& packet);
  void arm_timer(Time now, const QueuePair& qp) {
    is_excused_ = false;
    if (scoreboard_ != nullptr) return arm_loss_timer(now, qp);
    timer_ = retry_due(now, qp);
  }

  // requester_selective.cc: selective repeat
  bool send_again(Time now, QueuePair& qp, OutgoingPacket& out);
  bool move_cursor(const QueuePair& qp, Psn psn);
  void handle_selective_acknowledge(Time now, QueuePair& qp, const wire::Packet& packet);
  std::uint32_t psns_of_request(const QueuePair& qp, Psn psn) const;
  std::uint32_t piece_of(Psn psn) const;
  Time loss_timeout(const QueuePair& qp) const;
  void arm_loss_timer(Time now, const QueuePair& qp);
  // Returns the time at which the time-out that begins now takes a retry.
  Time retry_due(Time now, const QueuePair& qp) const {
    const Time timeout = ack_timeout(qp.attributes().timeout);
    if (timeout.is_never()) return timeout;
    const RecoverySettings& recovery = qp.environment.recovery;
    const Time longest = std::max(timeout, recovery.backed_off_timeout_max);
    const int doublings = std::min<int>(timeouts_in_a_row_, recovery.back_off_doublings);
    return now + std::min(timeout * (1 << doublings), longest);
  }
  // Returns the time until which a time-out that was due runs on, because this end did not run; or
  // nothing if the time-out is over.
  std::optional<Time> excused_until(Time now, Time due, const QueuePair& qp);
  void take_retry();
  bool take_other_path(QueuePair& qp);
  void handle_loss_timeout(Time now, QueuePair& qp);

  Psn unacknowledged_;               // the oldest PSN that is not acknowledged
  Psn next_psn_;                     // first PSN of the next request to start
  Psn sent_end_;                     // PSN behind the highest ever sent
  std::uint32_t cursor_ = 0;         // request being sent, counted from the head of the queue
  std::uint32_t cursor_packet_ = 0;  // next packet (READ: response) of that request

  // READ and atomic requests that were sent and are not answered yet, oldest first. Each is kept as
  // the PSN behind its last response. The first reads_in_flight_ are in flight; the others wait to
  // be sent again. A READ that is sent again ends where it ended before: the responder may not have
  // executed what is behind that end, and it cannot answer a request that is only partly a
  // duplicate.
  std::array<Psn, reads_max> reads_{};
  std::uint32_t reads_first_ = 0;
  std::uint32_t reads_known_ = 0;
  std::uint32_t reads_in_flight_ = 0;

  // End-to-end credits (IBTA 9.7.7.2), counted in receive requests that this side's messages
  // consume.
  std::uint32_t receives_started_ = 0;
  std::uint32_t receives_acknowledged_ = 0;
  std::uint32_t receives_limit_ = 0;
  bool credits_known_ = false;

  Time timer_ = Time::never();      // ACK timeout
  Time rnr_until_ = Time::never();  // end of the RNR timer, while it runs
  std::uint8_t retries_left_ = 0;
  std::uint8_t rnr_retries_left_ = 0;
  std::uint8_t timeouts_in_a_row_ = 0;
  bool is_excused_ = false;  // the timer runs on, because it was handled late
  bool rewound_ = false;     // the cursor went back after unacknowledged_ last moved
  // The direct path.
  std::uint32_t direct_ = 0;  // the direct path's token, or 0
  // The request whose transfer is under way, counted from the head of the queue.
  std::optional<std::uint32_t> direct_at_;
  std::uint32_t holding_back_direct_ = 0;  // started requests that no transfer may overtake
  DirectPath::Ticket direct_ticket_;
  Time direct_waits_since_;          // since the last step that moved bytes
  Time direct_due_ = Time::never();  // when the next step is due
  std::uint32_t since_ack_request_ = 0;

  // Selective repeat.
  std::unique_ptr<Scoreboard> scoreboard_;  // null: go-back-N
  Time timer_began_;                        // time at which timer_ was set
  Time retry_over_ = Time::never();         // from this time on, a time-out takes one retry
};

// Converts a number of receive requests to an AETH credit code (IBTA 9.7.5.1.2, table 44), and
// back. Code 31 means that no credits are given.
inline constexpr std::uint8_t no_credits_code = 31;
std::uint8_t credit_code(std::uint32_t receives);
std::uint32_t credits_of_code(std::uint8_t code);

}  // namespace tulle::transport::rc
