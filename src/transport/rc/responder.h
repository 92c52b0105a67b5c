#pragma once

// The responder of a reliable connection (IBTA 9.7.4, 9.7.5): checks each request in the order that
// IBTA gives, executes it once, and answers in PSN order.
//
// Answers wait in a queue of jobs, one for each READ and atomic, and are pulled packet by packet;
// an acknowledgement is one pending word behind them, so that acknowledgements coalesce by
// themselves. A READ that comes again is read again; an atomic that comes again is answered from
// the results kept.

#include <cstdint>
#include <memory>

#include "base/ids.h"
#include "base/ring.h"
#include "base/time.h"
#include "transport/inbound_message.h"
#include "transport/packet_io.h"
#include "transport/rc/early_packets.h"
#include "wire/packet.h"

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
  // False: no answer is due.
  bool pull_packet(QueuePair& qp, OutgoingPacket& out);
  bool has_jobs() const { return !jobs_.empty(); }
  bool has_answers() const {
    return ack_pending_ || has_jobs() || (early_ != nullptr && early_->has_untold());
  }
  // The receive request of a message in progress, when the queue pair fails or is flushed.
  InboundMessage& inbound() { return inbound_; }

 private:
  struct Job {
    bool is_atomic = false;
    bool is_write = false;  // and atomic
    // It was executed before, and may be asked for by a packet that the network delivers late.
    bool again = false;
    Psn first_psn;
    std::uint32_t packets = 1;
    std::uint32_t sent = 0;
    std::uint64_t address = 0;
    RemoteKey rkey;
    std::uint32_t length = 0;
    std::uint64_t original = 0;
    std::uint32_t msn = 0;
    std::uint32_t xrc_srq = 0;  // whose memory it reads

    bool contains(Psn psn) const {
      const std::int32_t at = psn.distance_from(first_psn);
      return at >= 0 && at < static_cast<std::int32_t>(packets);
    }
  };
  struct AtomicResult {
    Psn psn;
    std::uint64_t original = 0;
  };

  void handle_expected(QueuePair& qp, const wire::Packet& packet, Payload payload);
  void handle_ahead(QueuePair& qp, const wire::Packet& packet, Payload payload);
  void restart_message(QueuePair& qp);
  void handle_message(QueuePair& qp, const wire::Packet& packet, Payload payload);
  void handle_read(QueuePair& qp, const wire::Packet& packet);
  void handle_atomic(QueuePair& qp, const wire::Packet& packet);
  void handle_atomic_write(QueuePair& qp, const wire::Packet& packet, Payload payload);
  void remember_atomic(const wire::Packet& packet, std::uint64_t original);
  void handle_duplicate(QueuePair& qp, const wire::Packet& packet);
  void duplicate_read(QueuePair& qp, const wire::Packet& packet);
  void duplicate_atomic(QueuePair& qp, const wire::Packet& packet);
  bool make_room();
  void insert(const Job& job);
  void refuse(QueuePair& qp, RequestVerdict verdict, Psn psn);
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
  Psn answers_end_;        // behind the latest READ or atomic
  std::uint32_t msn_ = 0;  // completed messages (IBTA 9.7.5.1.4)
  bool nak_sent_ =
      false;  // one NAK for a gap; silence until the packet asked for comes (IBTA 9.7.5.2.2)
  bool ack_pending_ = false;
  wire::Syndrome pending_;
  Psn pending_psn_;

  InboundMessage inbound_;
  Ring<Job> jobs_;
  Ring<AtomicResult> atomics_;
  std::unique_ptr<EarlyPackets> early_;  // with selective repeat
};

}  // namespace tulle::transport::rc
