#pragma once

// Pushes a completion to a completion queue, and reports an overrun of that queue.

#include "rdma/transport/queue_pair.h"
#include "rdma/verbs/completion_queue.h"

namespace tulle::transport {

// Returns false if the queue was full. The application gets one event for that (IBTA 10.2.6.2).
inline bool push(Environment& environment, verbs::CompletionQueue& cq,
                 const verbs::Completion& completion) {
  ++environment.completions;
  if (cq.push(completion)) [[likely]]
    return true;
  if (!cq.overrun_told) {
    cq.overrun_told = true;
    environment.raise({verbs::EventType::cq_error, nullptr, &cq, nullptr});
  }
  return false;
}

}  // namespace tulle::transport
