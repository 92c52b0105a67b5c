#pragma once

// The responder of a reliable connection (IBTA 9.7.4, 9.7.5). It checks each request in the order
// that IBTA gives, executes it once, and answers in PSN order.
//
// Answers to READs and atomics wait in a queue of jobs, one for each request, and are pulled packet
// by packet. An acknowledgement is one pending word behind the jobs, so acknowledgements coalesce
// by themselves. For a repeated READ, or a part of it, the memory is read again. A repeated atomic
// is answered from the results that the responder keeps. It keeps as many of both as the depth.

#include <cstdint>
#include <memory>

#include "base/ids.h"
#include "base/ring.h"
#include "base/time.h"
#include "rdma/transport/inbound_message.h"
#include "rdma/transport/packet_io.h"
#include "rdma/transport/rc/early_packets.h"
#include "rdma/wire/packet.h"

namespace tulle::transport {
class QueuePair;
}

namespace tulle::transport::rc {

class Responder {
 public:
  // INIT to RTR: the first PSN and the depth are known.
  void start(QueuePair& qp);
  void reset() { *this = {}; }

  void handle_request(QueuePair& qp, const wire::Packet& packet, Payload payload);
  // Does what Engine::find_placement() does, for a packet of the peer's.
  bool find_placement(const QueuePair& qp, const wire::Packet& packet, std::uint32_t bytes,
                      Placement& out) const;
  // Returns false if no answer is due.
  bool pull_packet(QueuePair& qp, OutgoingPacket& out);
  bool has_jobs() const { return !jobs_.empty(); }
  bool has_answers() const {
    return ack_pending_ || has_jobs() || (early_ != nullptr && early_->has_untold());
  }
  // The message in progress, which may hold a receive request when the queue pair fails.
  InboundMessage& inbound() { return inbound_; }

 private:
  struct Job {
    bool is_atomic = false;
    bool is_write = false;  // an atomic write; is_atomic is true too
    // The request was executed before. The packet that repeats it may be a late copy.
    bool again = false;
    Psn first_psn;
    std::uint32_t packets = 1;
    std::uint32_t sent = 0;
    std::uint64_t address = 0;
    RemoteKey rkey;
    std::uint32_t length = 0;
    std::uint64_t original = 0;
    std::uint32_t msn = 0;
    std::uint32_t xrc_srq = 0;  // XRC: the shared receive queue that the READ names

    bool contains(Psn psn) const {
      const std::int32_t at = psn.distance_from(first_psn);
      return at >= 0 && at < static_cast<std::int32_t>(packets);
    }
  };
  struct AtomicResult {
    Psn psn;
    std::uint64_t original = 0;
  };
  // A READ that was executed. What asks for anything else with a PSN of the past repeats nothing.
  struct ExecutedRead {
    Psn first_psn;
    std::uint32_t packets = 1;
    std::uint64_t address = 0;
    RemoteKey rkey;
    std::uint32_t length = 0;
    std::uint32_t xrc_srq = 0;

    // Returns true if the request repeats this READ or a part of it.
    bool contains(const wire::Packet& request, std::uint32_t request_packets) const;
  };

  void handle_expected(QueuePair& qp, const wire::Packet& packet, Payload payload);
  void handle_ahead(QueuePair& qp, const wire::Packet& packet, Payload payload);
  void restart_message(QueuePair& qp);
  void handle_message(QueuePair& qp, const wire::Packet& packet, Payload payload);
  void handle_read(QueuePair& qp, const wire::Packet& packet);
  void handle_atomic(QueuePair& qp, const wire::Packet& packet);
  void handle_atomic_write(QueuePair& qp, const wire::Packet& packet, Payload payload);
  void remember_atomic(const wire::Packet& packet, std::uint64_t original = 0);
  void handle_duplicate(QueuePair& qp, const wire::Packet& packet);
  void duplicate_read(QueuePair& qp, const wire::Packet& packet);
  bool was_executed(const wire::Packet& packet, std::uint32_t packets) const;
  void duplicate_atomic(QueuePair& qp, const wire::Packet& packet);
  bool make_room();
  void insert(const Job& job);
  void refuse(QueuePair& qp, RequestVerdict verdict, Psn psn);
  void send_nak(QueuePair& qp, wire::NakCode code, Psn psn);
  void fail(QueuePair& qp, verbs::CompletionStatus status, verbs::EventType event);
  void executed(QueuePair& qp, const wire::Packet& packet, std::uint32_t psns);
  void answer(wire::Syndrome syndrome, Psn psn);
  bool emit_job(QueuePair& qp, OutgoingPacket& out);
  const verbs::ProtectionDomain* domain_of(const QueuePair& qp, const Job& job) const;
  bool emit_read(QueuePair& qp, Job& job, OutgoingPacket& out);
  void emit_acknowledge(QueuePair& qp, OutgoingPacket& out);
  wire::Syndrome acknowledgement(const QueuePair& qp) const;

  // responder_selective.cc: selective repeat
  void hold(QueuePair& qp, const wire::Packet& packet, Payload payload);
  void execute_held(QueuePair& qp, Psn executed);
  bool emit_selective_acknowledge(QueuePair& qp, OutgoingPacket& out);

  Psn expected_;
  Psn answers_end_;        // PSN behind the latest READ or atomic
  std::uint32_t msn_ = 0;  // completed messages (IBTA 9.7.5.1.4)
  // A NAK asked for the expected packet. No further NAK is sent until that packet comes
  // (IBTA 9.7.5.2.2).
  bool nak_sent_ = false;
  bool ack_pending_ = false;
  wire::Syndrome pending_;
  Psn pending_psn_;

  InboundMessage inbound_;
  Ring<Job> jobs_;
  Ring<AtomicResult> atomics_;
  Ring<ExecutedRead> reads_;
  std::unique_ptr<EarlyPackets> early_;  // null without selective repeat
};

}  // namespace tulle::transport::rc
