#include "transport/tcp/engine.h"

#include "transport/queue_pair.h"

namespace tulle::transport::tcp {

constinit const Transport transport = {
    .type = verbs::QpType::stream,
    .name = "TCP",
    .ladder = verbs::Ladder::reliable_connection,
    .sends = {verbs::SendOpcode::send},
    .receives = Receives::from_own_queue,
    .found_by = FoundBy::tcp_ports,
    .make = make_queue_pair<Engine>,
};

Stream* Engine::stream_of(QueuePair& qp) {
  if (&qp.transport != &transport) return nullptr;
  return static_cast<Engine&>(qp.engine()).stream_.get();
}

void Engine::start_receiving(QueuePair& qp) {
  stream_ = std::make_unique<Stream>(qp);
  stream_->posted_receive(qp, qp.receive_queue.length());
}

// A stream counts the bytes that its reads wait for.
void Engine::receive_posted(QueuePair& qp, const verbs::ReceiveRequest& request) {
  std::uint64_t bytes = 0;
  for (const verbs::Sge& sge : request.sges) bytes += sge.length;
  if (stream_ != nullptr) stream_->posted_receive(qp, bytes);
}

bool Engine::release_receive(QueuePair&, std::uint64_t& wr_id) {
  if (stream_ == nullptr || !stream_->holds_receive()) return false;
  wr_id = stream_->receive().wr_id;
  stream_->forget_receive();
  return true;
}

Agenda Engine::agenda(const QueuePair& qp) const {
  if (stream_ == nullptr) return {};
  const bool lives = qp.state() != verbs::QpState::error;
  return {.work = stream_->has_work(qp),
          .deadline = lives ? stream_->next_deadline() : Time::never()};
}

Agenda Engine::handle_segment(Time now, QueuePair& qp, const wire::Tcp& header, Payload payload,
                              const wire::Path& path) {
  if (stream_ == nullptr || !qp.receives()) return drop(qp);
  stream_->handle_segment(now, qp, header, payload, wire::is_marked(path));
  return agenda(qp);
}

Agenda Engine::pull(Time now, QueuePair& qp, OutgoingPacket& out) {
  return pulled(qp, stream_ != nullptr && stream_->pull_packet(now, qp, out));
}

void Engine::handle_deadline(Time now, QueuePair& qp) {
  if (stream_ != nullptr) stream_->handle_deadline(now, qp);
}

}  // namespace tulle::transport::tcp
