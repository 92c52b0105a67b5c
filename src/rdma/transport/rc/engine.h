#pragma once

// The reliable connection (IBTA 9.7): a requester that drives the send queue, and a responder that
// executes the peer's requests. Each half of an extended reliable connection uses one of the two
// (xrc/engine.h).

#include <cstdint>

#include "rdma/transport/engine.h"
#include "rdma/transport/rc/requester.h"
#include "rdma/transport/rc/responder.h"
#include "rdma/transport/transport.h"

namespace tulle::transport::rc {

extern const Transport transport;

class Engine final : public transport::Engine {
 public:
  enum class Role : std::uint8_t { connection, xrc_initiator, xrc_target };
  explicit Engine(Role role = Role::connection) : role_(role) {}

  void start_receiving(QueuePair& qp) override { responder_.start(qp); }
  void start_sending(QueuePair& qp) override { requester_.start(qp); }
  bool drained(const QueuePair& qp) const override { return requester_.drained(qp); }
  void stop_sending(QueuePair&) override { requester_.reset(); }
  void abort(QueuePair&) override { responder_.reset(); }
  void reset(QueuePair& qp) override;
  verbs::VerbsStatus check(const QueuePair& qp, const verbs::SendRequest& request) const override;
  bool release_receive(QueuePair&, std::uint64_t& wr_id) override {
    return responder_.inbound().release_receive(wr_id);
  }

  Agenda handle_packet(Time now, QueuePair& qp, const wire::Packet& packet, Payload payload,
                       const wire::Path& path) override;
  bool find_placement(const QueuePair& qp, const wire::Packet& packet, const wire::Path& path,
                      std::uint32_t bytes, Placement& out) const override;
  Agenda pull(Time now, QueuePair& qp, OutgoingPacket& out) override;
  void handle_deadline(Time now, QueuePair& qp) override { requester_.handle_deadline(now, qp); }
  Agenda agenda(const QueuePair& qp) const override;
  void rebase(Time by) override { requester_.rebase(by); }
  bool handle_mark(const wire::Packet& packet, const wire::Path& path) override;

  // XRC: drops the message in progress and the receive request that it took.
  void forget_inbound() { responder_.inbound().reset(); }

 private:
  Agenda agenda_of(const QueuePair& qp, bool packet) const;
  bool is_mine(const QueuePair& qp, const wire::Packet& packet, const wire::Path& path,
               bool is_response) const;
  bool pull_packet(Time now, QueuePair& qp, OutgoingPacket& out);
  bool pull_answer(QueuePair& qp, OutgoingPacket& out);
  bool pull_request(Time now, QueuePair& qp, OutgoingPacket& out);

  const Role role_;
  bool becn_due_ = false;              // the next answer must carry BECN
  std::uint32_t requests_in_row_ = 0;  // requests pulled since the last answer
  Requester requester_;
  Responder responder_;
};

}  // namespace tulle::transport::rc
