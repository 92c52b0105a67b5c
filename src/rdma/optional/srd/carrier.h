#pragma once

// A carrier sends the SRD packets of one service level: answers first, then the packets of the
// peers, round robin. The adapter schedules it like a queue pair.

#include <cstdint>
#include <vector>

#include "base/growing_ring.h"
#include "base/time.h"
#include "rdma/optional/srd/inbound.h"
#include "rdma/optional/srd/outbound.h"
#include "rdma/transport/packet_io.h"

namespace tulle::transport::srd {

class Peers;

class Carrier {
 public:
  explicit Carrier(Peers& peers) : peers_(peers) {}

  bool has_answers() const { return !answers_.empty(); }
  bool has_work() const { return has_answers() || first_ != nullptr; }
  bool pull(Time now, OutgoingPacket& out);
  Time next_deadline() const { return timers_.empty() ? Time::never() : timers_.front().at; }
  void handle_deadline(Time now);
  void rebase(Time by);

  void answer(const Answer& answer) { answers_.push(answer); }
  // `outbound` may have something to send, or another deadline.
  void attend(Outbound& outbound);

 private:
  struct Timer {
    Time at;
    std::uint32_t order = 0;  // decides between timers of equal time
    Outbound* outbound = nullptr;
  };
  static bool is_later(const Timer& a, const Timer& b) {
    return a.at != b.at ? a.at > b.at : a.order > b.order;
  }
  void activate(Outbound& outbound);
  void leave_first();
  void watch(Outbound& outbound);

  Peers& peers_;
  GrowingRing<Answer> answers_;
  Outbound* first_ = nullptr;  // list of those that may have something to send, which take turns
  Outbound* last_ = nullptr;
  std::vector<Timer> timers_;  // a heap whose entries do not change, as in device::TimerQueue
  std::uint32_t timer_order_ = 0;
};

}  // namespace tulle::transport::srd
