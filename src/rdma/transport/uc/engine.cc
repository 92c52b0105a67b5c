#include "rdma/transport/uc/engine.h"

#include <algorithm>

#include "rdma/transport/local_memory.h"
#include "rdma/transport/queue_pair.h"

namespace tulle::transport::uc {

using verbs::CompletionStatus;
using verbs::QpState;
using verbs::SendOpcode;

namespace {

// IBTA 9.8: the opcodes are those of RC with another transport class.
wire::Operation operation_of(SendOpcode opcode, bool first, bool last) {
  using enum wire::Operation;
  const bool immediate =
      opcode == SendOpcode::send_with_immediate || opcode == SendOpcode::write_with_immediate;
  const bool write = opcode == SendOpcode::write || opcode == SendOpcode::write_with_immediate;
  if (write) {
    if (first && last) return immediate ? write_only_with_immediate : write_only;
    if (first) return write_first;
    if (last) return immediate ? write_last_with_immediate : write_last;
    return write_middle;
  }
  if (first && last) return immediate ? send_only_with_immediate : send_only;
  if (first) return send_first;
  if (last) return immediate ? send_last_with_immediate : send_last;
  return send_middle;
}

}  // namespace

constinit const Transport transport = {
    .type = verbs::QpType::uc,
    .name = "UC",
    .ladder = verbs::Ladder::unreliable_connection,
    .sends = {SendOpcode::send, SendOpcode::send_with_immediate, SendOpcode::write,
              SendOpcode::write_with_immediate, SendOpcode::bind_window,
              SendOpcode::local_invalidate},
    .notifies_congestion = true,
    .make = make_queue_pair<Engine>,
};

void Engine::start_receiving(QueuePair& qp) { expected_ = qp.attributes().rq_psn; }

void Engine::reset(QueuePair&) {
  next_psn_ = expected_ = {};
  sent_packets_ = 0;
  inbound_.reset();
}

bool Engine::pull_packet(QueuePair& qp, OutgoingPacket& out) {
  while (!qp.send_queue.empty()) {
    if (qp.state() != QpState::rts && (qp.state() != QpState::sqd || sent_packets_ == 0)) {
      return false;
    }
    SendWqe& wqe = qp.send_queue.front();
    if (wqe.is_local()) {
      if (!execute_local(qp, wqe)) return false;
      continue;
    }
    const std::uint32_t mtu = qp.mtu_bytes();
    wqe.started = true;
    wqe.packets = std::max((wqe.length + mtu - 1) / mtu, 1u);
    const std::uint32_t offset = sent_packets_ * mtu;
    const std::uint32_t bytes = std::min(wqe.length - offset, mtu);
    const bool first = sent_packets_ == 0;
    const bool last = sent_packets_ + 1 == wqe.packets;
    out.packet = {};
    out.clear_payload();
    out.to = &qp.attributes().address;
    out.packet.opcode =
        wire::opcode(wire::TransportClass::uc, operation_of(wqe.opcode, first, last));
    out.packet.destination_qp = qp.attributes().destination_qp;
    out.packet.psn = next_psn_;
    out.packet.pad_count = static_cast<std::uint8_t>(-bytes & 3);
    if (first && wqe.is_write()) {
      out.packet.virtual_address = wqe.remote_address;
      out.packet.rkey = wqe.rkey;
      out.packet.dma_length = wqe.length;
    }
    if (last) {
      out.packet.solicited_event = wqe.flags.has(verbs::SendFlag::solicited);
      if (wire::info(out.packet.opcode).immediate) out.packet.immediate = wqe.immediate;
    }
    const SendWqe copy = wqe;
    if (!gather(qp, wqe, offset, bytes, out)) {
      sent_packets_ = 0;
      qp.send_queue.pop();
      qp.complete(copy, CompletionStatus::local_protection_error);
      qp.enter_send_queue_error();
      return false;
    }
    ++next_psn_;
    ++sent_packets_;
    if (last) {
      sent_packets_ = 0;
      qp.send_queue.pop();
      qp.complete(copy, CompletionStatus::success, copy.length);
      if (qp.state() == QpState::sqd) qp.sent_all();
    }
    return true;
  }
  return false;
}

// UC also binds windows (IBTA table 76). Returns false if the operation failed; the send queue is
// then in error.
bool Engine::execute_local(QueuePair& qp, const SendWqe& wqe) {
  const SendWqe copy = wqe;
  const CompletionStatus status = transport::execute_local(qp, wqe);
  const bool done = status == CompletionStatus::success;
  qp.send_queue.pop();
  qp.complete(copy, status);
  if (!done) qp.enter_send_queue_error();
  return done;
}

Agenda Engine::handle_packet(Time, QueuePair& qp, const wire::Packet& packet, Payload payload,
                             const wire::Path& path) {
  const bool is_mine = wire::transport_of(packet.opcode) == wire::TransportClass::uc &&
                       wire::info(packet.opcode).kind != wire::Kind::none && qp.is_from_peer(path);
  if (!is_mine || !qp.receives()) return drop(qp);
  handle_request(qp, packet, payload);
  return agenda(qp);
}

// IBTA 9.8.2.2: a packet that does not fit drops the message that it belongs to. The sender is not
// told.
void Engine::handle_request(QueuePair& qp, const wire::Packet& packet, Payload payload) {
  auto& counters = qp.environment.counters;
  qp.communication_established();
  const wire::OpcodeInfo& info = wire::info(packet.opcode);
  const bool in_sequence = packet.psn == expected_;
  expected_ = packet.psn + 1;
  if (inbound_.in_progress() && (!in_sequence || info.starts_message())) {
    inbound_.abandon();
    ++counters.dropped_messages;
  }
  if (!info.starts_message() && !inbound_.in_progress()) return;
  RequestVerdict verdict = inbound_.check(qp, packet, payload);
  if (verdict == RequestVerdict::ok) verdict = inbound_.accept(qp, packet, payload);
  if (verdict == RequestVerdict::ok) return;
  inbound_.abandon();
  ++counters.dropped_messages;
  if (verdict == RequestVerdict::local_protection) {
    verbs::Completion completion;
    completion.wr_id = inbound_.receive().wr_id;
    completion.opcode = verbs::CompletionOpcode::receive;
    completion.status = CompletionStatus::local_protection_error;
    inbound_.forget_receive();
    qp.complete_receive(completion);
    qp.enter_error();
  }
}

}  // namespace tulle::transport::uc
