#pragma once

// The checker. It knows what was posted, which completions the applications saw and what the memory
// holds, and nothing of how the transports work. It holds the transports to what the verbs promise.

#include <cstdint>
#include <vector>

#include "base/random.h"
#include "rdma/verbs/types.h"
#include "tests/scenarios/end.h"

namespace tulle::scenarios {

class Promises {
 public:
  Promises(const Plan& plan, std::vector<NodeState>& nodes)
      : plan_(plan), nodes_(nodes), random_(plan.seed ^ 0xC4EC'4E12) {}

  void send_completed(Time now, End& end, const verbs::Completion& completion);
  // `buffer` is the pool's buffer whose wr_id the completion carries.
  void receive_completed(End& end, ReceivePool::Buffer& buffer,
                         const verbs::Completion& completion);
  // Both queue pairs of a channel were reset, so that outstanding requests have no completions. The
  // caller calls was_reset() for both ends, then was_forgotten() for both.
  void was_reset(End& end);
  void was_forgotten(End& end);
  // To be called when everything that can finish has finished and the network is empty.
  void check_finished(End& end);
  // To be called after the queue pairs were moved to error and everything was flushed.
  void check_flushed(const End& end);
  void check_memory(End& end);
  void check_receives(ReceivePool& pool);
  void check_node(NodeState& node);

  // True while the completions that are checked had no event, though the queue was armed for
  // solicited completions.
  bool unannounced = false;

 private:
  void succeeded(Time now, End& end, std::size_t index);
  void failed(End& end, std::size_t index);
  bool may_fail_over_iwarp(const End& end, verbs::CompletionStatus status) const;
  bool may_fail(const End& end, std::size_t index, verbs::CompletionStatus status) const;
  bool fails_as_planned(const End& end, std::size_t index, verbs::CompletionStatus status) const;
  bool lossy() const { return plan_.weather != Weather::perfect; }
  void check_write(End& end, std::size_t index);
  void check_mishap(const End& end);
  void recycle(End& end, std::size_t index);
  void read_arrived(End& end, std::size_t index);
  void check_hot(End& end, std::size_t oldest, std::span<const std::byte> content);
  void message_arrived(End& receiver, ReceivePool::Buffer& buffer,
                       const verbs::Completion& completion);
  std::size_t which_message(End& receiver, const ReceivePool::Buffer& buffer,
                            const verbs::Completion& completion);
  bool carries(End& receiver, std::size_t index, const ReceivePool::Buffer& buffer,
               const verbs::Completion& completion) const;
  void receive_failed(End& receiver, ReceivePool::Buffer& buffer,
                      const verbs::Completion& completion);
  bool explain(End& receiver, const ReceivePool::Buffer& buffer);
  bool receive_may_fail(const End& receiver, verbs::CompletionStatus status) const;

  const Plan& plan_;
  std::vector<NodeState>& nodes_;
  Random random_;
};

}  // namespace tulle::scenarios
