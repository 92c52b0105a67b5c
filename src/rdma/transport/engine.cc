#include "rdma/transport/engine.h"

#include "rdma/transport/queue_pair.h"

namespace tulle::transport {

Agenda Engine::handle_packet(Time, QueuePair& qp, const wire::Packet&, Payload, const wire::Path&) {
  return drop(qp);
}

Agenda Engine::handle_segment(Time, QueuePair& qp, const wire::Tcp&, Payload, const wire::Path&) {
  return drop(qp);
}

Agenda Engine::drop(const QueuePair& qp) const {
  ++qp.environment.counters.dropped_packets;
  return agenda(qp);
}

}  // namespace tulle::transport
