#pragma once

// How often a requester sends again before it gives up, and how long its time-outs are.

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/time.h"
#include "rdma/transport/queue_pair.h"
#include "rdma/transport/recovery.h"

namespace tulle::transport::rc {

class Retries {
 public:
  // The responder has acknowledged something, or the connection begins: all retries are left.
  void restart(const QueuePairAttributes& attributes) {
    left_ = attributes.retry_count;
    rnr_left_ = attributes.rnr_retry;
    in_a_row_ = 0;
  }
  // Takes a retry after a time-out, or restarts on the alternate path. Returns false if neither is
  // left.
  [[nodiscard]] bool take(QueuePair& qp) {
    if (left_ > 0) {
      --left_;
      in_a_row_ = static_cast<std::uint8_t>(std::min(in_a_row_ + 1, 200));
      return true;
    }
    if (!PathMigration::migrate(qp)) return false;
    left_ = qp.attributes().retry_count;
    in_a_row_ = 0;
    return true;
  }
  // Takes a retry after an RNR NAK. Returns false if none is left.
  [[nodiscard]] bool take_rnr(const QueuePairAttributes& attributes) {
    constexpr std::uint8_t retry_for_ever = 7;  // IBTA 9.7.5.2.8, RNR retry count
    if (rnr_left_ == 0) return false;
    if (attributes.rnr_retry != retry_for_ever) --rnr_left_;
    return true;
  }
  // Returns the time at which the time-out that begins now takes a retry.
  Time due(Time now, const QueuePair& qp) const {
    const Time timeout = ack_timeout(qp.attributes().timeout);
    if (timeout.is_never()) return timeout;
    const RecoverySettings& recovery = qp.environment.recovery;
    const Time longest = std::max(timeout, recovery.backed_off_timeout_max);
    const int doublings = std::min<int>(in_a_row_, recovery.back_off_doublings);
    return now + std::min(timeout * (1 << doublings), longest);
  }
  // A time-out begins.
  void begin_timeout() { is_excused_ = false; }
  // Returns the time until which a time-out that was due runs on, because this end did not run; or
  // nothing if the time-out is over.
  std::optional<Time> excused_until(Time now, Time due, const QueuePair& qp) {
    const Time late = now - due;
    if (is_excused_ || late < qp.environment.recovery.late_after) return std::nullopt;
    is_excused_ = true;
    return now + std::min(late, ack_timeout(qp.attributes().timeout));
  }

 private:
  std::uint8_t left_ = 0;
  std::uint8_t rnr_left_ = 0;
  std::uint8_t in_a_row_ = 0;  // time-outs without an acknowledgement between them
  bool is_excused_ = false;    // the timer runs on, because it was handled late
};

}  // namespace tulle::transport::rc
