#pragma once

// The queue pairs of the scalable reliable datagram (SRD). An application's queue pair (Engine)
// hands its requests over to the adapter's peers (peers.h). The packets of the peers leave through
// queue pairs that the adapter makes for itself, one for each service level (CarrierEngine).

#include <cstdint>
#include <vector>

#include "rdma/transport/engine.h"
#include "rdma/transport/send_queue.h"
#include "rdma/transport/transport.h"
#include "rdma/verbs/receive_queue.h"
#include "rdma/verbs/types.h"

namespace tulle::transport::srd {

class Carrier;

extern const Transport transport;

class Engine final : public transport::Engine {
 public:
  static Engine& of(QueuePair& qp);

  // --- for the peers ---

  // A request has completed; requests complete in any order. Its place in the queue is free again
  // when all requests before it have completed too.
  void finish(QueuePair& qp, SendWqe& wqe, verbs::CompletionStatus status);
  // Keeps a receive request that was taken for a message which never came completely; it is used
  // before those in the queue.
  void keep(const verbs::Receive& receive) { kept_.push_back(receive); }
  bool has_receive(const QueuePair& qp) const;
  std::uint64_t next_receive_length(const QueuePair& qp) const;
  [[nodiscard]] bool take_receive(QueuePair& qp, verbs::Receive& out);

  // --- for the queue pair ---

  void resume_sending(QueuePair& qp) override { hand_over(qp); }
  bool drained(const QueuePair&) const override { return under_way_ == 0; }
  // Ends the messages to and from the queue pair.
  void stop_sending(QueuePair& qp) override;
  void reset(QueuePair& qp) override;
  void send_posted(QueuePair& qp) override { hand_over(qp); }
  bool release_receive(QueuePair& qp, std::uint64_t& wr_id) override;
  Agenda handle_packet(Time now, QueuePair& qp, const wire::Packet& packet, Payload payload,
                       const wire::Path& path) override;
  Agenda pull(Time, QueuePair& qp, OutgoingPacket&) override { return agenda(qp); }
  Agenda agenda(const QueuePair& qp) const override;

 private:
  void hand_over(QueuePair& qp);
  bool take_kept(verbs::Receive& out);

  std::uint32_t under_way_ = 0;
  std::uint32_t handed_over_ = 0;  // requests in the send queue that the peers were given
  std::vector<verbs::Receive> kept_;
};

}  // namespace tulle::transport::srd
