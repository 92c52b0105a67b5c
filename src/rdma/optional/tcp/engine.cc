#include "rdma/optional/tcp/engine.h"

namespace tulle::transport::tcp {

constinit const Transport transport = {
    .type = verbs::QpType::stream,
    .name = "TCP",
    .ladder = verbs::Ladder::reliable_connection,
    .sends = {verbs::SendOpcode::send},
    .receives = Receives::from_own_queue,
    .found_by = FoundBy::tcp_ports,
    .ports = ports_of,
    .make = make_queue_pair<Engine>,
};

void Engine::start_receiving(QueuePair& qp) {
  ConnectionEngine::start_receiving(qp);
  connection_->posted_receive(qp, qp.receive_queue.length());
}

// A stream counts the bytes that its reads wait for.
void Engine::receive_posted(QueuePair& qp, const verbs::ReceiveRequest& request) {
  std::uint64_t bytes = 0;
  for (const verbs::Sge& sge : request.sges) bytes += sge.length;
  if (connection_ != nullptr) connection_->posted_receive(qp, bytes);
}

}  // namespace tulle::transport::tcp
