#pragma once

// A queue pair's share of the scalable reliable datagram: what it has handed over to the adapter's
// peers, or, of the queue pairs by which an adapter schedules these, what they send.

#include <cstdint>
#include <vector>

#include "transport/send_queue.h"
#include "verbs/receive_queue.h"
#include "verbs/types.h"

namespace tulle::transport {
class QueuePair;
}

namespace tulle::transport::srd {

class Carrier;

class Engine {
 public:
  // An adapter's own queue pair, which has no application.
  Carrier* carrier = nullptr;

  // Work requests go to their peers in the order in which they were posted, not while draining.
  void hand_over(QueuePair& qp);
  // One has completed, in any order; the queue's room is free again when those before it have too.
  void finish(QueuePair& qp, SendWqe& wqe, verbs::CompletionStatus status);
  bool drained() const { return under_way_ == 0; }

  // Receive requests that a message took which never came as a whole go before others.
  void keep(const verbs::Receive& receive) { kept_.push_back(receive); }
  bool has_receive(const QueuePair& qp) const;
  std::uint64_t next_receive_length(const QueuePair& qp) const;
  [[nodiscard]] bool take_receive(QueuePair& qp, verbs::Receive& out);
  [[nodiscard]] bool take_kept(verbs::Receive& out);

  // The queue pair goes, or has failed: its messages end and those that it receives too.
  void forget(QueuePair& qp);
  void reset(QueuePair& qp);

 private:
  std::uint32_t under_way_ = 0;
  std::uint32_t handed_over_ = 0;  // of those in the send queue
  std::vector<verbs::Receive> kept_;
};

}  // namespace tulle::transport::srd
