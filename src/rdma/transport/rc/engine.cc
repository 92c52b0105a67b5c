#include "rdma/transport/rc/engine.h"

#include <algorithm>
#include <utility>

#include "rdma/transport/queue_pair.h"
#include "rdma/transport/rc/extended.h"
#include "rdma/transport/tag_matching.h"

namespace tulle::transport::rc {
namespace {

bool is_response(wire::Kind kind) {
  return kind == wire::Kind::acknowledge || kind == wire::Kind::read_response ||
         kind == wire::Kind::atomic_acknowledge || kind == wire::Kind::selective_acknowledge;
}

}  // namespace

constinit const Transport transport = {
    .type = verbs::QpType::rc,
    .name = "RC",
    .ladder = verbs::Ladder::reliable_connection,
    .sends = verbs::SendOperations::all(),
    .matches_tags = true,
    .has_direct_path = true,
    .notifies_congestion = true,
    .make = make_queue_pair<Engine>,
};

void Engine::reset(QueuePair& qp) {
  requester_.reset();
  responder_.reset();
  becn_due_ = false;
  if (role_ == Role::xrc_target && qp.init.srq != nullptr) extended::forget(qp, *qp.init.srq);
}

verbs::VerbsStatus Engine::check(const QueuePair&, const verbs::SendRequest& request) const {
  if (role_ == Role::xrc_initiator && !extended::names_queue(request)) [[unlikely]] {
    return verbs::VerbsStatus::invalid_argument;
  }
  return verbs::VerbsStatus::ok;
}

// IBTA 9.6.1: the packet's transport must be the queue pair's, and the packet must come from the
// connected peer. An opcode that RC does not define is answered by the responder (9.7.4.1.3).
inline bool Engine::is_mine(const QueuePair& qp, const wire::Packet& packet, const wire::Path& path,
                            bool is_response) const {
  if (!qp.is_from_peer(path)) return false;
  const wire::TransportClass transport = wire::transport_of(packet.opcode);
  const wire::Kind kind = wire::info(packet.opcode).kind;
  if (kind == wire::Kind::selective_acknowledge && requester_.is_selective()) {
    return role_ != Role::xrc_target;
  }
  if (role_ == Role::connection) [[likely]]
    return transport == wire::TransportClass::rc;
  return transport == wire::TransportClass::xrc && kind != wire::Kind::none &&
         is_response == (role_ == Role::xrc_initiator);
}

Agenda Engine::handle_packet(Time now, QueuePair& qp, const wire::Packet& packet, Payload payload,
                             const wire::Path& path) {
  const bool response = is_response(wire::info(packet.opcode).kind);
  if (!is_mine(qp, packet, path, response)) return drop(qp);
  if (response) {
    requester_.handle_response(now, qp, packet, payload);
  } else {
    responder_.handle_request(qp, packet, payload);
  }
  return agenda_of(qp, false);
}

// The queue of an extended connection's message is known only once the message is handled.
bool Engine::find_placement(const QueuePair& qp, const wire::Packet& packet, const wire::Path& path,
                            std::uint32_t bytes, Placement& out) const {
  return role_ == Role::connection && is_mine(qp, packet, path, false) &&
         responder_.find_placement(qp, packet, bytes, out);
}

Agenda Engine::agenda(const QueuePair& qp) const { return agenda_of(qp, false); }

inline Agenda Engine::agenda_of(const QueuePair& qp, bool packet) const {
  Agenda agenda;
  agenda.packet = packet;
  agenda.answers = responder_.has_answers();
  agenda.work = agenda.answers || requester_.has_more(qp);
  agenda.deadline = std::min(requester_.next_deadline(), qp.congestion.next_deadline());
  return agenda;
}

Agenda Engine::pull(Time now, QueuePair& qp, OutgoingPacket& out) {
  const bool packet = pull_packet(now, qp, out);
  return agenda_of(qp, packet);
}

// READ responses and requests take turns. An acknowledgement is sent behind requests that will be
// sent anyway: it is smaller, so it can join the same segmented message there. It does not wait
// indefinitely, since the peer's window waits for it.
inline bool Engine::pull_packet(Time now, QueuePair& qp, OutgoingPacket& out) {
  constexpr std::uint32_t requests_before_acknowledgement = 16;
  std::uint32_t requests_before_answer =
      responder_.has_jobs() ? 1 : requests_before_acknowledgement;
  // With tag matching, the sender's request completes before the sender is told that the data has
  // been read.
  if (qp.tag_matching != nullptr && !responder_.has_jobs()) [[unlikely]]
    requests_before_answer = 0;
  if (requests_in_row_ < requests_before_answer && pull_request(now, qp, out)) {
    ++requests_in_row_;
    return true;
  }
  requests_in_row_ = 0;
  // A direct transfer that is under way moves on by another step when it is asked again.
  return pull_answer(qp, out) || pull_request(now, qp, out);
}

inline bool Engine::pull_answer(QueuePair& qp, OutgoingPacket& out) {
  if (!responder_.pull_packet(qp, out)) return false;
  if (becn_due_) [[unlikely]]
    out.packet.becn = std::exchange(becn_due_, false);
  if (role_ != Role::connection) [[unlikely]]
    extended::mark_answer(out.packet);
  return true;
}

inline bool Engine::pull_request(Time now, QueuePair& qp, OutgoingPacket& out) {
  if (!qp.congestion.may_send(now, [&] { return requester_.has_more(qp); })) return false;
  if (!requester_.has_more(qp) || !requester_.pull_packet(now, qp, out)) return false;
  qp.packet_sent(now, out);
  return true;
}

// IBTA annex A10: a reliable connection's responder sets BECN in the next packet that it sends
// anyway. Its requester, whose next packet may be late, sends a notification for it.
bool Engine::handle_mark(const wire::Packet& packet, const wire::Path&) {
  const bool responds = role_ != Role::xrc_initiator;
  if (!responds || is_response(wire::info(packet.opcode).kind)) return true;
  becn_due_ = true;
  return false;
}

}  // namespace tulle::transport::rc
