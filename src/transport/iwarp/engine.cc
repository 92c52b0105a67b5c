#include "transport/iwarp/engine.h"

#include "transport/queue_pair.h"

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
    .make = make_queue_pair<Engine>,
};

Connection* Engine::connection_of(QueuePair& qp) {
  if (&qp.transport != &transport) return nullptr;
  return static_cast<Engine&>(qp.engine()).connection_.get();
}

void Engine::start_receiving(QueuePair& qp) { connection_ = std::make_unique<Connection>(qp); }

bool Engine::drained(const QueuePair&) const {
  return connection_ == nullptr || connection_->protocol().drained();
}

void Engine::stop_sending(QueuePair&) {
  if (connection_ != nullptr) connection_->protocol().reset_sending();
}

void Engine::abort(QueuePair&) {
  if (connection_ != nullptr) connection_->abort();
}

bool Engine::release_receive(QueuePair&, std::uint64_t& wr_id) {
  if (connection_ == nullptr || !connection_->protocol().holds_receive()) return false;
  wr_id = connection_->protocol().held_receive().wr_id;
  connection_->protocol().forget_receive();
  return true;
}

Agenda Engine::agenda(const QueuePair& qp) const {
  if (connection_ == nullptr) return {};
  return {.answers = connection_->has_answers(),
          .work = connection_->has_work(qp),
          .deadline = connection_->next_deadline(qp)};
}

Agenda Engine::handle_segment(Time now, QueuePair& qp, const wire::Tcp& header, Payload payload,
                              const wire::Path& path) {
  if (connection_ == nullptr) return drop(qp);
  connection_->handle_segment(now, qp, header, payload, wire::is_marked(path));
  return agenda(qp);
}

Agenda Engine::pull(Time now, QueuePair& qp, OutgoingPacket& out) {
  return pulled(qp, connection_ != nullptr && connection_->pull_packet(now, qp, out));
}

void Engine::handle_deadline(Time now, QueuePair& qp) {
  if (connection_ != nullptr) connection_->handle_deadline(now, qp);
}

}  // namespace tulle::transport::iwarp
