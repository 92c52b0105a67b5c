#pragma once

// Executes a requester's WRITEs and READs without packets, where the direct path reaches the peer's
// memory (rdma/transport/direct_path.h). One transfer is under way at a time.

#include <cstdint>
#include <optional>

#include "base/time.h"
#include "rdma/transport/direct_path.h"
#include "rdma/transport/queue_pair.h"
#include "rdma/transport/send_queue.h"

namespace tulle::transport::rc {

class DirectTransfer {
 public:
  // Of a request: it may not be executed so now; the path refuses it; its transfer is under way; it
  // is complete.
  enum class Outcome : std::uint8_t { not_direct, refused, under_way, complete };

  // Asks whether the peer can be reached.
  void connect(QueuePair& qp) {
    const bool has_direct = qp.environment.direct != nullptr && qp.transport.has_direct_path;
    if (has_direct) token_ = qp.environment.direct->connect(qp);
  }
  bool is_connected() const { return token_ != 0; }
  bool is_under_way() const { return at_.has_value(); }

  // Executes the request at that index of the send queue, or moves its transfer on. No later
  // request may start before it is complete. Of the earlier ones only SENDs may not be done, whose
  // receive buffers no WRITE or READ concerns. It takes no PSN, since the peer does not learn of
  // it. A refused request must be sent in packets; these also reveal any error of the request.
  Outcome execute(Time now, const QueuePair& qp, std::uint32_t index);

  // A request takes its PSNs.
  void request_started(const SendWqe& wqe) {
    if (holds_back(wqe)) ++holding_back_;
  }
  // The request at the head of the queue is done.
  void request_retired(const SendWqe& wqe) {
    if (wqe.started && !wqe.executed && holds_back(wqe)) --holding_back_;
    if (at_ && *at_ > 0) --*at_;
  }

  // Returns when the next step is due.
  Time due() const { return due_; }
  // The next call to execute() moves the transfer on.
  void handle_deadline(Time now) {
    if (due_ <= now) due_ = Time::never();
  }
  void rebase(Time by) { tulle::rebase(by, waits_since_, due_); }

 private:
  static bool holds_back(const SendWqe& wqe);
  bool may_begin(const QueuePair& qp, const SendWqe& wqe) const;
  Outcome advance(Time now, const QueuePair& qp, const SendWqe& wqe);

  std::uint32_t token_ = 0;  // the direct path's, or 0
  // The request whose transfer is under way, counted from the head of the queue.
  std::optional<std::uint32_t> at_;
  std::uint32_t holding_back_ = 0;  // started requests that no transfer may overtake
  DirectPath::Ticket ticket_;
  Time waits_since_;          // since the last step that moved bytes
  Time due_ = Time::never();  // when the next step is due
};

}  // namespace tulle::transport::rc
