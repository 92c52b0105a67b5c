#include "rdma/transport/ud/engine.h"

#include <algorithm>
#include <array>

#include "rdma/transport/local_memory.h"
#include "rdma/transport/queue_pair.h"

namespace tulle::transport::ud {

using verbs::CompletionStatus;
using verbs::QpState;
using verbs::SendOpcode;

constinit const Transport transport = {
    .type = verbs::QpType::ud,
    .name = "UD",
    .ladder = verbs::Ladder::datagram,
    .sends = {SendOpcode::send, SendOpcode::send_with_immediate},
    .is_datagram = true,
    .finds_foreign_handles_late = true,
    .takes_multicast = true,
    .make = make_queue_pair<Engine>,
};

void Engine::reset(QueuePair&) {
  next_psn_ = {};
  path_ = marked_from_ = {};
  marked_qp_ = {};
}

bool Engine::pull_packet(QueuePair& qp, OutgoingPacket& out) {
  if (qp.state() != QpState::rts || qp.send_queue.empty()) return false;
  const SendWqe wqe = qp.send_queue.front();
  const DatagramTarget& target = qp.send_queue.datagram_target(wqe);
  path_ = target.to;
  out.packet = {};
  out.clear_payload();
  out.to = &path_;
  const bool immediate = wqe.opcode == SendOpcode::send_with_immediate;
  out.packet.opcode =
      wire::opcode(wire::TransportClass::ud, immediate ? wire::Operation::send_only_with_immediate
                                                       : wire::Operation::send_only);
  out.packet.destination_qp = target.qp;
  out.packet.psn = next_psn_;
  out.packet.pad_count = static_cast<std::uint8_t>(-wqe.length & 3);
  out.packet.solicited_event = wqe.flags.has(verbs::SendFlag::solicited);
  out.packet.qkey = qp.qkey_of(wqe);
  out.packet.source_qp = qp.number;
  if (immediate) out.packet.immediate = wqe.immediate;

  CompletionStatus status = CompletionStatus::success;
  if (target.pd != qp.init.pd) {
    status = CompletionStatus::local_qp_operation_error;
  } else if (wqe.length > qp.mtu_bytes()) {
    status = CompletionStatus::local_length_error;
  } else if (!gather(qp, wqe, 0, wqe.length, out)) {
    status = CompletionStatus::local_protection_error;
  }
  qp.send_queue.pop();
  qp.complete(wqe, status, wqe.length);
  if (status != CompletionStatus::success) {
    qp.enter_send_queue_error();
    return false;
  }
  ++next_psn_;
  if (qp.state() == QpState::sqd) qp.sent_all();
  return true;
}

// When several marked packets come in a row, the notification goes to the sender of the last. A
// switch that marked one packet of a flow marks its next ones too.
bool Engine::handle_mark(const wire::Packet& packet, const wire::Path& path) {
  marked_from_ = {};
  marked_from_.destination = wire::source_of(path);
  marked_qp_ = packet.source_qp;
  return true;
}

void Engine::address_notification(OutgoingPacket& out) const {
  out.packet.destination_qp = marked_qp_;
  out.to = &marked_from_;
}

// IBTA 9.8.3.2: a packet that does not fit is dropped, and its sender is not told.
Agenda Engine::handle_packet(Time, QueuePair& qp, const wire::Packet& packet, Payload payload,
                             const wire::Path& path) {
  const bool is_mine = wire::transport_of(packet.opcode) == wire::TransportClass::ud &&
                       wire::info(packet.opcode).kind == wire::Kind::send;
  if (!is_mine || !qp.receives() || packet.qkey != qp.attributes().qkey ||
      payload.bytes > qp.mtu_bytes()) {
    return drop(qp);
  }
  handle_send(qp, packet, payload, path);
  return agenda(qp);
}

namespace {

void set_source(const QueuePair& qp, const wire::Path& path, verbs::Completion& completion) {
  using verbs::DatagramNetwork;
  const auto* local = std::get_if<wire::LocalPath>(&path);
  if (local == nullptr) {
    completion.network = wire::is_ipv4(path) ? DatagramNetwork::ipv4 : DatagramNetwork::ipv6;
    return;
  }
  completion.network = DatagramNetwork::infiniband;
  const unsigned lids = 1u << qp.environment.port(qp.attributes().port).lmc;
  completion.local = {local->local.source.value, local->local.service_level,
                      static_cast<std::uint8_t>(local->local.destination.value & (lids - 1))};
}

}  // namespace

void Engine::handle_send(QueuePair& qp, const wire::Packet& packet, Payload payload,
                         const wire::Path& path) {
  // A message that does not fit is dropped, and the receive request stays in its queue: a stranger
  // must not be able to end this queue pair (IBTA 9.8.3.2 leaves the choice).
  const std::uint64_t needed = payload.bytes + wire::grh_bytes;
  verbs::Receive receive;
  if (qp.next_receive_length() < needed || !qp.take_receive(receive)) {
    ++qp.environment.counters.dropped_messages;
    return;
  }
  verbs::Completion completion;
  completion.wr_id = receive.wr_id;
  completion.opcode = verbs::CompletionOpcode::receive;
  completion.byte_length = payload.bytes + static_cast<std::uint32_t>(wire::grh_bytes);
  completion.has_grh = wire::has_global_route(path);
  set_source(qp, path, completion);
  completion.has_immediate = wire::info(packet.opcode).immediate;
  completion.immediate = packet.immediate;
  completion.solicited = packet.solicited_event;
  completion.source_qp = packet.source_qp;
  std::array<std::byte, wire::grh_bytes> grh;
  const std::size_t datagram =
      wire::header_bytes(packet.opcode) + payload.bytes + packet.pad_count + wire::icrc_bytes;
  wire::encode_grh(path, datagram, grh);
  // RoCE v2 over IPv4 has the IP header in the last 20 bytes, and leaves the others undefined (IBTA
  // A17.4.5.1). Where no global route header came, all of them are (ibv_post_recv(3)).
  if (qp.environment.withheld != nullptr) [[unlikely]] {
    const bool is_ipv4 = completion.network == verbs::DatagramNetwork::ipv4;
    const std::size_t undefined = !completion.has_grh ? grh.size() : is_ipv4 ? 20 : 0;
    std::fill_n(grh.begin(), undefined, undefined_byte);
  }
  if (!scatter(qp, receive, 0, {grh.data(), static_cast<std::uint32_t>(grh.size())}) ||
      !scatter(qp, receive, wire::grh_bytes, payload, {true, true})) {
    completion.status = CompletionStatus::local_protection_error;
  }
  qp.complete_receive(completion);
  if (completion.status != CompletionStatus::success) qp.enter_error();
}

}  // namespace tulle::transport::ud
