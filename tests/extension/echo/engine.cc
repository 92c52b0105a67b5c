#include "echo/engine.h"

#include <utility>

#include "rdma/transport/local_memory.h"
#include "rdma/transport/queue_pair.h"

namespace tulle::echo {

using transport::Agenda;
using transport::OutgoingPacket;
using transport::QueuePair;
using verbs::CompletionStatus;

constinit const transport::Transport transport = {
    .type = verbs::QpType::experimental,
    .name = "ECHO",
    .ladder = verbs::Ladder::unreliable_connection,
    .sends = {verbs::SendOpcode::send},
    .make = transport::make_queue_pair<Engine>,
};

namespace {

void address(const QueuePair& qp, wire::Operation operation, OutgoingPacket& out) {
  out.packet = {};
  out.clear_payload();
  out.to = &qp.attributes().address;
  out.packet.opcode = wire::opcode(wire::TransportClass::uc, operation);
  out.packet.destination_qp = qp.attributes().destination_qp;
}

}  // namespace

Agenda Engine::agenda(const QueuePair& qp) const {
  return {.answers = !echoes_.empty(), .work = !echoes_.empty() || !qp.send_queue.empty()};
}

Agenda Engine::handle_packet(Time, QueuePair& qp, const wire::Packet& packet,
                             transport::Payload payload, const wire::Path& path) {
  const bool is_mine = wire::transport_of(packet.opcode) == wire::TransportClass::uc;
  if (!is_mine || !qp.is_from_peer(path) || !qp.receives()) return drop(qp);
  if (wire::info(packet.opcode).immediate) {
    take_echo(qp, payload);
  } else {
    echoes_.emplace_back(payload.data, payload.data + payload.bytes);
  }
  return agenda(qp);
}

void Engine::take_echo(QueuePair& qp, transport::Payload payload) {
  verbs::Receive receive;
  if (qp.next_receive_length() < payload.bytes || !qp.take_receive(receive)) return;
  verbs::Completion completion;
  completion.wr_id = receive.wr_id;
  completion.opcode = verbs::CompletionOpcode::receive;
  completion.byte_length = payload.bytes;
  if (!scatter(qp, receive, 0, payload)) {
    completion.status = CompletionStatus::local_protection_error;
  }
  qp.complete_receive(completion);
}

Agenda Engine::pull(Time, QueuePair& qp, OutgoingPacket& out) {
  return pulled(qp, pull_echo(qp, out) || pull_request(qp, out));
}

bool Engine::pull_echo(const QueuePair& qp, OutgoingPacket& out) {
  if (echoes_.empty()) return false;
  sending_ = std::move(echoes_.front());
  echoes_.pop_front();
  address(qp, wire::Operation::send_only_with_immediate, out);
  out.payload_bytes = static_cast<std::uint32_t>(sending_.size());
  out.pieces[out.piece_count++] = sending_;
  out.packet.pad_count = static_cast<std::uint8_t>(-out.payload_bytes & 3);
  return true;
}

bool Engine::pull_request(QueuePair& qp, OutgoingPacket& out) {
  if (qp.state() != verbs::QpState::rts || qp.send_queue.empty()) return false;
  const transport::SendWqe wqe = qp.send_queue.front();
  address(qp, wire::Operation::send_only, out);
  out.packet.pad_count = static_cast<std::uint8_t>(-wqe.length & 3);
  const bool sent = wqe.length <= qp.mtu_bytes() && gather(qp, wqe, 0, wqe.length, out);
  qp.send_queue.pop();
  qp.complete(wqe, sent ? CompletionStatus::success : CompletionStatus::local_length_error);
  return sent;
}

}  // namespace tulle::echo
