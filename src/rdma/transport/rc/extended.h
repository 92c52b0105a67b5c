#pragma once

// The differences between an extended reliable connection (IBTA annex A14) and a reliable
// connection. Each request names a shared receive queue at the target. The target has no protection
// domain and no completion queue, and uses those of the shared receive queue.

#include <cstdint>

#include "rdma/transport/inbound_message.h"
#include "rdma/transport/send_queue.h"
#include "rdma/verbs/receive_queue.h"
#include "rdma/wire/packet.h"

namespace tulle::transport {
class QueuePair;
}

namespace tulle::transport::rc::extended {

// True if the request names a shared receive queue, or needs none since it is a local operation.
bool names_queue(const verbs::SendRequest& request);

// Returns the shared receive queue with this number, or null if the target's domain has none.
verbs::SharedReceiveQueue* find(const QueuePair& target, std::uint32_t number);

// Makes the target use the protection domain, receive requests and completion queue of the shared
// receive queue that the request names. Changes nothing unless it returns ok.
[[nodiscard]] RequestVerdict select(QueuePair& target, const InboundMessage& inbound,
                                    const wire::Packet& request);
// The shared receive queue is about to be destroyed. A target that uses it then uses none, and
// drops the message in progress with its receive request.
void forget(QueuePair& target, const verbs::SharedReceiveQueue& srq);

// Turn a packet that rc::Engine has filled in into an XRC packet.
void mark_request(const QueuePair& initiator, const SendWqe& wqe, wire::Packet& packet);
void mark_answer(wire::Packet& packet);

}  // namespace tulle::transport::rc::extended
