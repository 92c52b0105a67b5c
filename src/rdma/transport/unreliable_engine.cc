#include "rdma/transport/unreliable_engine.h"

#include "rdma/transport/queue_pair.h"

namespace tulle::transport {

void UnreliableEngine::start_sending(QueuePair& qp) { next_psn_ = qp.attributes().sq_psn; }

Agenda UnreliableEngine::agenda(const QueuePair& qp) const {
  return {.work = !qp.send_queue.empty(), .deadline = qp.congestion.next_deadline()};
}

Agenda UnreliableEngine::pull(Time now, QueuePair& qp, OutgoingPacket& out) {
  const bool packet =
      qp.congestion.may_send(now, [&] { return !qp.send_queue.empty(); }) && pull_packet(qp, out);
  if (packet) qp.packet_sent(now, out);
  return pulled(qp, packet);
}

}  // namespace tulle::transport
