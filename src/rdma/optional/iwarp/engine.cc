#include "rdma/optional/iwarp/engine.h"

#include "rdma/optional/tcp/stream.h"

namespace tulle::transport::iwarp {

using verbs::SendOpcode;

constinit const Transport transport = {
    .type = verbs::QpType::iwarp,
    .name = "IWARP",
    .ladder = verbs::Ladder::reliable_connection,
    // RFC 5040 4.2. Atomics and immediate data, which RFC 7306 adds, are not offered.
    .sends = {SendOpcode::send, SendOpcode::send_with_invalidate, SendOpcode::write,
              SendOpcode::read, SendOpcode::bind_window, SendOpcode::local_invalidate},
    .refusal = verbs::VerbsStatus::not_supported,
    .found_by = FoundBy::tcp_ports,
    .ports = tcp::ports_of,
    .make = make_queue_pair<Engine>,
};

void Engine::stop_sending(QueuePair&) {
  if (connection_ != nullptr) connection_->protocol().reset_sending();
}

void Engine::abort(QueuePair&) {
  if (connection_ != nullptr) connection_->abort();
}

}  // namespace tulle::transport::iwarp
