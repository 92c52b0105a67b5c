#pragma once

// Extended reliable connections (IBTA annex A14). The initiator is a reliable connection's
// requester, the target its responder; both are rc::Engine. What differs is here: each request
// names the shared receive queue that it is for, whose protection domain and completion queue then
// stand for the target's, which has none of its own.

#include <cstdint>

#include "transport/inbound_message.h"
#include "transport/send_queue.h"
#include "verbs/receive_queue.h"
#include "wire/packet.h"

namespace tulle::transport {
class QueuePair;
}

namespace tulle::transport::xrc {

// The shared receive queue of that number, if it is of the target's domain; else null.
verbs::SharedReceiveQueue* find(const QueuePair& target, std::uint32_t number);

// From now on the target's protection domain, receive requests and completion queue are those of
// the queue that the request names. Unless ok, nothing has changed.
[[nodiscard]] RequestVerdict select(QueuePair& target, const InboundMessage& inbound,
                                    const wire::Packet& request);
// It goes away: a target that has it selected has none, and has lost what it holds of it.
void forget(QueuePair& target, const verbs::SharedReceiveQueue& srq);

// Makes XRC's of a packet that rc::Engine has filled in.
void mark_request(const QueuePair& initiator, const SendWqe& wqe, wire::Packet& packet);
void mark_answer(wire::Packet& packet);

}  // namespace tulle::transport::xrc
