#include "rdma/optional/srd/engine.h"

#include "base/check.h"
#include "rdma/optional/srd/carrier.h"
#include "rdma/optional/srd/peers.h"
#include "rdma/transport/queue_pair.h"

namespace tulle::transport::srd {

using verbs::QpState;
using verbs::SendOpcode;

namespace {

class CarrierEngine final : public transport::Engine {
 public:
  explicit CarrierEngine(Carrier& carrier) : carrier_(carrier) {}

  void reset(QueuePair&) override {}
  Agenda pull(Time now, QueuePair& qp, OutgoingPacket& out) override {
    const bool packet = carrier_.pull(now, out);
    if (packet) qp.set_path(out.packet.pkey, qp.attributes().address.service_level);
    return pulled(qp, packet);
  }
  void handle_deadline(Time now, QueuePair&) override { carrier_.handle_deadline(now); }
  Agenda agenda(const QueuePair&) const override {
    return {.answers = carrier_.has_answers(),
            .work = carrier_.has_work(),
            .deadline = carrier_.next_deadline()};
  }

 private:
  Carrier& carrier_;
};

constinit const Transport carrier_transport = {
    .type = verbs::QpType::srd,
    .name = "SRD_CARRIER",
    .ladder = verbs::Ladder::reliable_datagram,
    .is_datagram = true,
    .make = nullptr,  // Peers::make_carrier makes it
};

// The first SRD queue pair of an adapter creates the peers.
std::unique_ptr<QueuePair> make(const Transport& transport, QpNumber number,
                                const QueuePairInit& init, Environment& environment) {
  if (environment.peers == nullptr) {
    environment.peers = std::make_unique<Peers>(environment, environment.srd_settings);
  }
  return make_queue_pair<Engine>(transport, number, init, environment);
}

}  // namespace

constinit const Transport transport = {
    .type = verbs::QpType::srd,
    .name = "SRD",
    .ladder = verbs::Ladder::reliable_datagram,
    .sends = {SendOpcode::send, SendOpcode::send_with_immediate, SendOpcode::write,
              SendOpcode::write_with_immediate},
    .scheduled_by = ScheduledBy::peers,
    .is_datagram = true,
    .completes_in_any_order = true,
    .make = make,
};

std::unique_ptr<QueuePair> Peers::make_carrier(QpNumber number, std::uint8_t service_level) {
  QueuePairInit init;
  init.type = verbs::QpType::srd;
  auto qp = std::make_unique<QueuePairOf<CarrierEngine>>(carrier_transport, number, init,
                                                         environment_, carrier(service_level));
  qp->set_path(default_pkey, service_level);
  return qp;
}

Engine& Engine::of(QueuePair& qp) {
  TULLE_CHECK(&qp.transport == &transport);
  return static_cast<Engine&>(qp.engine());
}

Agenda Engine::agenda(const QueuePair& qp) const {
  return {.work = Peers::of(qp.environment).wants_attention()};
}

Agenda Engine::handle_packet(Time now, QueuePair& qp, const wire::Packet& packet, Payload payload,
                             const wire::Path& path) {
  const bool is_mine = wire::transport_of(packet.opcode) == wire::TransportClass::srd &&
                       wire::info(packet.opcode).kind != wire::Kind::none;
  if (!is_mine) return drop(qp);
  Peers::of(qp.environment).handle_packet(now, &qp, packet, payload, path);
  return agenda(qp);
}

// Hands requests to their peers in the order in which they were posted. None is handed over while
// the send queue drains.
void Engine::hand_over(QueuePair& qp) {
  if (qp.state() != QpState::rts) return;
  for (; handed_over_ < qp.send_queue.size(); ++handed_over_) {
    ++under_way_;
    Peers::of(qp.environment).post(qp, qp.send_queue[handed_over_]);
  }
}

void Engine::finish(QueuePair& qp, SendWqe& wqe, verbs::CompletionStatus status) {
  wqe.executed = true;
  --under_way_;
  qp.complete(wqe, status, wqe.length);
  while (!qp.send_queue.empty() && qp.send_queue.front().executed) {
    qp.send_queue.pop();
    --handed_over_;
  }
  if (qp.state() == QpState::sqd) qp.sent_all();
}

bool Engine::has_receive(const QueuePair& qp) const {
  return !kept_.empty() || qp.receives_waiting() > 0;
}

std::uint64_t Engine::next_receive_length(const QueuePair& qp) const {
  return kept_.empty() ? qp.next_receive_length() : kept_.front().length();
}

bool Engine::take_receive(QueuePair& qp, verbs::Receive& out) {
  return take_kept(out) || qp.take_receive(out);
}

bool Engine::take_kept(verbs::Receive& out) {
  if (kept_.empty()) return false;
  out = kept_.front();
  kept_.erase(kept_.begin());
  return true;
}

void Engine::stop_sending(QueuePair& qp) {
  Peers::of(qp.environment).forget(qp);
  under_way_ = handed_over_ = 0;
}

void Engine::reset(QueuePair& qp) {
  stop_sending(qp);
  kept_.clear();
}

bool Engine::release_receive(QueuePair&, std::uint64_t& wr_id) {
  verbs::Receive receive;
  if (!take_kept(receive)) return false;
  wr_id = receive.wr_id;
  return true;
}

}  // namespace tulle::transport::srd
