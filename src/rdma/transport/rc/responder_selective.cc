// The responder's part of selective repeat (IRN, SIGCOMM 2018, 3.1): it holds packets that come
// early, and reports each of them to the requester at once.

#include "rdma/transport/queue_pair.h"
#include "rdma/transport/rc/responder.h"

namespace tulle::transport::rc {

// Holds a packet that came early. Every such packet is reported, even if it came before: the
// requester may not know.
void Responder::hold(QueuePair& qp, const wire::Packet& packet, Payload payload) {
  const auto ahead = static_cast<std::uint32_t>(packet.psn.distance_from(expected_));
  if (ahead >= early_->window() || payload.bytes > qp.mtu_bytes()) {
    ++qp.environment.counters.dropped_packets;
    return;
  }
  early_->hold(packet, payload);
}

// Executes the held packets behind the packet `executed`, up to the next gap. A SEND that finds no
// receive request ends this too; the requester sends that one again.
void Responder::execute_held(QueuePair& qp, Psn executed) {
  const Psn gap_end = expected_;
  while (expected_.after(executed) && qp.state() != verbs::QpState::error) {
    early_->forget(executed, static_cast<std::uint32_t>(expected_.distance_from(executed)));
    executed = expected_;
    const EarlyPackets::Held* held = early_->find(executed);
    if (held == nullptr) break;
    handle_expected(qp, held->packet, held->payload);
  }
  // One acknowledgement covers all of them, even if the last packets did not ask for one.
  if (expected_.after(gap_end) && ack_pending_ && pending_.kind == wire::AckKind::ack) {
    answer(acknowledgement(qp), expected_ - 1);
  }
}

// Returns false if no packet that came early still has to be reported.
bool Responder::emit_selective_acknowledge(QueuePair& qp, OutgoingPacket& out) {
  while (early_->has_untold()) {
    const Psn early = early_->next_untold();
    early_->told();
    if (!early.after(expected_)) continue;
    out.packet = {};
    out.clear_payload();
    out.packet.destination_qp = qp.attributes().destination_qp;
    out.to = &qp.attributes().address;
    out.packet.opcode = wire::selective_acknowledge;
    out.packet.psn = expected_;
    out.packet.syndrome = {wire::AckKind::nak,
                           static_cast<std::uint8_t>(wire::NakCode::psn_sequence_error)};
    out.packet.msn = msn_;
    out.packet.early_psn = early;
    ++qp.environment.counters.sequence_naks_sent;
    return true;
  }
  return false;
}

}  // namespace tulle::transport::rc
