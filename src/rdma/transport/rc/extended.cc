#include "rdma/transport/rc/extended.h"

#include "rdma/transport/queue_pair.h"
#include "rdma/transport/rc/engine.h"

namespace tulle::transport::rc::extended {
namespace {

constexpr std::uint32_t srq_number_max = 0xFF'FFFF;  // 24 bits, as in XRCETH

void become_xrc(wire::Packet& packet) {
  // The opcodes of selective repeat have a separate transport class and stay as they are.
  if (wire::transport_of(packet.opcode) != wire::TransportClass::rc) return;
  packet.opcode = wire::opcode(wire::TransportClass::xrc, wire::operation_of(packet.opcode));
}

}  // namespace

bool names_queue(const verbs::SendRequest& request) {
  return (request.xrc_srq != 0 && request.xrc_srq <= srq_number_max) ||
         request.opcode == verbs::SendOpcode::bind_window ||
         request.opcode == verbs::SendOpcode::local_invalidate;
}

verbs::SharedReceiveQueue* find(const QueuePair& target, std::uint32_t number) {
  verbs::SharedReceiveQueue* found = target.environment.xrc_srqs.find(number);
  return found != nullptr && found->xrc_domain == target.init.xrc_domain ? found : nullptr;
}

// A queue that does not exist or belongs to another domain is an access error, as the names of
// Linux's events for both suggest (drivers/infiniband/hw/hns/hns_roce_qp.c: XRCD_VIOLATION,
// INVALID_XRCETH).
RequestVerdict select(QueuePair& target, const InboundMessage& inbound,
                      const wire::Packet& request) {
  const bool in_use = inbound.in_progress() || inbound.holds_receive();
  verbs::SharedReceiveQueue* current = target.init.srq;
  if (current != nullptr && current->number == request.xrc_srq) return RequestVerdict::ok;
  // All packets of a message name the same queue, and so does a request that is sent again.
  if (in_use) return RequestVerdict::invalid_opcode_sequence;
  verbs::SharedReceiveQueue* found = find(target, request.xrc_srq);
  if (found == nullptr) return RequestVerdict::access_denied;
  target.init.srq = found;
  target.init.pd = found->pd;
  target.init.receive_cq = found->cq;
  return RequestVerdict::ok;
}

void forget(QueuePair& target, const verbs::SharedReceiveQueue& srq) {
  if (target.init.srq != &srq) return;
  target.init.srq = nullptr;
  target.init.pd = nullptr;
  target.init.receive_cq = nullptr;
  static_cast<rc::Engine&>(target.engine()).forget_inbound();
}

void mark_request(const QueuePair& initiator, const SendWqe& wqe, wire::Packet& packet) {
  become_xrc(packet);
  packet.xrc_srq = initiator.send_queue.xrc_srq(wqe);
}

// Responders with a shared receive queue give no credits (IBTA 9.7.7.2.3), and an XRC target has no
// other receive queue.
void mark_answer(wire::Packet& packet) {
  become_xrc(packet);
  if (packet.syndrome.kind == wire::AckKind::ack) packet.syndrome.value = rc::no_credits_code;
}

}  // namespace tulle::transport::rc::extended
