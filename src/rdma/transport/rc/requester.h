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
#include <cstdint>
#include <memory>
#include <optional>

#include "base/ids.h"
#include "base/time.h"
#include "rdma/transport/congestion/window.h"
#include "rdma/transport/packet_io.h"
#include "rdma/transport/queue_pair.h"
#include "rdma/transport/rc/credits.h"
#include "rdma/transport/rc/direct_transfer.h"
#include "rdma/transport/rc/outstanding_reads.h"
#include "rdma/transport/rc/retries.h"
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

  Time next_deadline() const { return std::min(std::min(timer_, rnr_until_), direct_.due()); }
  void handle_deadline(Time now, QueuePair& qp);
  void rebase(Time by) {
    tulle::rebase(by, timer_, rnr_until_, timer_began_, retry_over_);
    direct_.rebase(by);
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
  enum class Begin : std::uint8_t { go, wait, executed, failed };

  // requester.cc: sending
  Begin begin(QueuePair& qp, SendWqe& wqe);
  Begin execute_local(QueuePair& qp, SendWqe& wqe);
  DirectTransfer::Outcome execute_direct(Time now, QueuePair& qp);
  void complete_direct(QueuePair& qp, SendWqe& wqe);
  bool must_wait(const QueuePair& qp, const SendWqe& wqe) const;
  bool emit(Time now, QueuePair& qp, SendWqe& wqe, OutgoingPacket& out);
  std::uint32_t fill(QueuePair& qp, SendWqe& wqe, OutgoingPacket& out);
  std::uint32_t packets_of_read(const QueuePair& qp, const SendWqe& wqe) const;
  void advance_cursor(Time now, QueuePair& qp, const SendWqe& wqe, const wire::Packet& sent,
                      std::uint32_t psns);
  void fail(QueuePair& qp, SendWqe& wqe, verbs::CompletionStatus status);
  bool wants_ack(const QueuePair& qp, const SendWqe& wqe) const;
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
  // Does so, and sends again what has not been answered.
  [[nodiscard]] bool acknowledge_or_retry(Time now, QueuePair& qp, Psn psn);
  [[nodiscard]] bool expects_response(Time now, QueuePair& qp, const wire::Packet& packet);
  void progressed(Time now, QueuePair& qp, std::uint32_t packets);
  void retire(QueuePair& qp, verbs::CompletionStatus status, std::uint32_t bytes);
  void retire_ready(QueuePair& qp);
  void go_back(QueuePair& qp);
  void retry_now(Time now, QueuePair& qp);
  void update_credits(const QueuePair& qp, const wire::Packet& packet);
  void arm_timer(Time now, const QueuePair& qp) {
    retries_.begin_timeout();
    if (scoreboard_ != nullptr) return arm_loss_timer(now, qp);
    timer_ = retries_.due(now, qp);
  }

  // requester_selective.cc: selective repeat
  bool send_again(Time now, QueuePair& qp, OutgoingPacket& out);
  bool move_cursor(const QueuePair& qp, Psn psn);
  void handle_selective_acknowledge(Time now, QueuePair& qp, const wire::Packet& packet);
  std::uint32_t psns_of_request(const QueuePair& qp, Psn psn) const;
  Time loss_timeout(const QueuePair& qp) const;
  void arm_loss_timer(Time now, const QueuePair& qp);
  void handle_loss_timeout(Time now, QueuePair& qp);

  Psn unacknowledged_;               // the oldest PSN that is not acknowledged
  Psn next_psn_;                     // first PSN of the next request to start
  Psn sent_end_;                     // PSN behind the highest ever sent
  std::uint32_t cursor_ = 0;         // request being sent, counted from the head of the queue
  std::uint32_t cursor_packet_ = 0;  // next packet (READ: response) of that request

  OutstandingReads reads_;
  Credits credits_;

  Time timer_ = Time::never();      // ACK timeout
  Time rnr_until_ = Time::never();  // end of the RNR timer, while it runs
  Retries retries_;
  bool rewound_ = false;  // the cursor went back after unacknowledged_ last moved
  DirectTransfer direct_;
  std::uint32_t since_ack_request_ = 0;

  // Selective repeat.
  std::unique_ptr<Scoreboard> scoreboard_;  // null: go-back-N
  Time timer_began_;                        // time at which timer_ was set
  Time retry_over_ = Time::never();         // from this time on, a time-out takes one retry
};

}  // namespace tulle::transport::rc
