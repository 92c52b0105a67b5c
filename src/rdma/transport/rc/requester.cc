#include "rdma/transport/rc/requester.h"

#include <algorithm>

#include "rdma/transport/local_memory.h"
#include "rdma/transport/rc/extended.h"

namespace tulle::transport::rc {

using verbs::CompletionStatus;
using verbs::QpState;
using verbs::SendFlag;
using verbs::SendOpcode;
using wire::Operation;
using wire::TransportClass;

namespace {

// The most packets that one READ request asks for, if several may be in flight.
constexpr std::uint32_t read_packets_max = 32;

struct Operations {
  Operation first, middle, last, only;
};

Operations operations_of(SendOpcode opcode) {
  using enum Operation;
  switch (opcode) {
    case SendOpcode::send_with_immediate:
      return {send_first, send_middle, send_last_with_immediate, send_only_with_immediate};
    case SendOpcode::send_with_invalidate:
      return {send_first, send_middle, send_last_with_invalidate, send_only_with_invalidate};
    case SendOpcode::write:
      return {write_first, write_middle, write_last, write_only};
    case SendOpcode::write_with_immediate:
      return {write_first, write_middle, write_last_with_immediate, write_only_with_immediate};
    default:
      return {send_first, send_middle, send_last, send_only};
  }
}

}  // namespace

void Requester::start(QueuePair& qp) {
  reset();
  unacknowledged_ = next_psn_ = sent_end_ = qp.attributes().sq_psn;
  retries_left_ = qp.attributes().retry_count;
  rnr_retries_left_ = qp.attributes().rnr_retry;
  const RecoverySettings& recovery = qp.environment.recovery;
  if (recovery.kind == Recovery::selective_repeat) {
    scoreboard_ = std::make_unique<Scoreboard>(recovery.window_packets, recovery.reordering_packets,
                                               unacknowledged_);
  }
  const bool has_direct = qp.environment.direct != nullptr && qp.transport.has_direct_path;
  if (has_direct) direct_ = qp.environment.direct->connect(qp);
}

bool Requester::drained(const QueuePair& qp) const {
  return qp.send_queue.empty() || (!qp.send_queue[0].started && !direct_at_);
}

bool Requester::pull_packet(Time now, QueuePair& qp, OutgoingPacket& out) {
  const auto may_send = [&] { return qp.state() == QpState::rts || qp.state() == QpState::sqd; };
  if (!may_send() || !rnr_until_.is_never()) return false;
  if (scoreboard_ != nullptr && send_again(now, qp, out)) return true;
  while (may_send() && cursor_ < qp.send_queue.size()) {
    SendWqe& wqe = qp.send_queue[cursor_];
    // This request failed locally. It waits for the requests before it, which may have to be sent
    // again. Nothing behind it is sent.
    if (wqe.status != CompletionStatus::success) return false;
    if (direct_ != 0) {
      const Direct direct = execute_direct(now, qp);
      if (direct == Direct::under_way) return false;
      if (direct == Direct::complete) continue;
    }
    if (!wqe.started) {
      const Begin begun = begin(qp, wqe);
      if (begun == Begin::wait || begun == Begin::failed) return false;
    }
    if (wqe.executed) {
      ++cursor_;
      retire_ready(qp);
      continue;
    }
    if (wqe.is_read_or_atomic() &&
        reads_in_flight_ >= std::min<std::uint32_t>(qp.attributes().max_rd_atomic, reads_max)) {
      return false;
    }
    const std::uint32_t flying = in_flight(qp);
    if (flying > 0 && flying >= qp.congestion.window_packets()) return false;
    return emit(now, qp, wqe, out);
  }
  return false;
}

// Returns true if a request that has not started must wait for earlier ones.
bool Requester::must_wait(const QueuePair& qp, const SendWqe& wqe) const {
  if (qp.state() == QpState::sqd) return true;
  // IBTA 10.8.3.3: a fenced request waits for all earlier READs and atomics.
  if (wqe.flags.has(SendFlag::fence) && reads_in_flight_ > 0) return true;
  // IBTA 10.8.3.3: a local invalidate starts when all earlier requests are done. An earlier request
  // may still need the key in a retry.
  if (wqe.opcode == SendOpcode::local_invalidate && cursor_ > 0) return true;
  // IBTA 9.7.7.2.5: beyond the credits, one message may be sent as a probe when nothing else is in
  // flight.
  if (wqe.consumes_receive() && credits_known_ &&
      static_cast<std::int32_t>(receives_started_ - receives_limit_) >= 0) {
    return in_flight(qp) > 0;
  }
  return false;
}

Requester::Begin Requester::begin(QueuePair& qp, SendWqe& wqe) {
  if (must_wait(qp, wqe)) return Begin::wait;
  if (wqe.is_local()) return execute_local(qp, wqe);
  const bool is_word = wqe.is_read_or_atomic() && wqe.opcode != SendOpcode::read;
  // The responder alone checks the address: a request for one that is not aligned goes out, and is
  // refused with a NAK (IBTA 9.4.5).
  const bool bad_atomic = is_word && wqe.length != 8;
  const bool no_depth = wqe.is_read_or_atomic() && qp.attributes().max_rd_atomic == 0;
  if (bad_atomic || no_depth) {
    fail(qp, wqe, CompletionStatus::local_qp_operation_error);
    return Begin::failed;
  }
  const std::uint32_t mtu = qp.mtu_bytes();
  wqe.packets = wqe.is_atomic() ? 1 : std::max((wqe.length + mtu - 1) / mtu, 1u);
  wqe.first_psn = next_psn_;
  wqe.started = true;
  next_psn_ = next_psn_ + wqe.packets;
  cursor_packet_ = 0;
  // A fenced request may send what the READs before it brought.
  if (wqe.flags.has(SendFlag::fence) && qp.environment.withheld != nullptr) [[unlikely]]
    qp.environment.withheld->release_all(qp.number);
  if (wqe.consumes_receive()) ++receives_started_;
  if (holds_back_direct(wqe)) ++holding_back_direct_;
  return Begin::go;
}

Requester::Begin Requester::execute_local(QueuePair& qp, SendWqe& wqe) {
  const CompletionStatus status = transport::execute_local(qp, wqe);
  if (status != CompletionStatus::success) {
    fail(qp, wqe, status);
    return Begin::failed;
  }
  wqe.started = wqe.executed = true;
  wqe.packets = 0;
  wqe.first_psn = next_psn_;
  return Begin::executed;
}

// Executes a WRITE or READ without packets, if the peer's memory can be reached. No later request
// starts before it is complete. Of the earlier ones only SENDs may not be done, whose receive
// buffers no WRITE or READ concerns; the request completes after them. It takes no PSN, since the
// peer does not learn of it. A refused request must be sent in packets; these also reveal any error
// of the request.
Requester::Direct Requester::execute_direct(Time now, QueuePair& qp) {
  SendWqe& wqe = qp.send_queue[cursor_];
  // After the cursor has gone back, SENDs come before the transfer once more.
  if (direct_at_ ? *direct_at_ != cursor_ : !may_go_direct(qp, wqe)) return Direct::refused;
  const Direct direct = advance_direct(now, qp, wqe);
  if (direct == Direct::under_way) {
    direct_at_ = cursor_;
    return direct;
  }
  direct_at_.reset();
  if (direct == Direct::complete) complete_direct(qp, wqe);
  // A transfer that was refused on its way has not started as far as the peer knows.
  if (qp.state() == QpState::sqd && drained(qp)) qp.sent_all();
  return direct;
}

// Returns true if no transfer may overtake the request: what it writes, reads or invalidates may be
// what the transfer is about.
bool Requester::holds_back_direct(const SendWqe& wqe) {
  return wqe.opcode != SendOpcode::send && wqe.opcode != SendOpcode::send_with_immediate;
}

bool Requester::may_go_direct(const QueuePair& qp, const SendWqe& wqe) const {
  const bool fits = wqe.opcode == SendOpcode::write || wqe.opcode == SendOpcode::read;
  if (holding_back_direct_ > 0 || wqe.started || !fits || wqe.length == 0) return false;
  // A queue pair that may have no READ outstanding must not send one (IBTA 10.8.3.3).
  if (wqe.opcode == SendOpcode::read && qp.attributes().max_rd_atomic == 0) return false;
  return qp.state() == QpState::rts;
}

// Submits the transfer, or moves the one that is under way on. The local keys are checked again for
// each step, since a region may be deregistered between two of them.
Requester::Direct Requester::advance_direct(Time now, QueuePair& qp, const SendWqe& wqe) {
  std::array<std::span<std::byte>, verbs::sges_max> pieces;
  std::size_t count = 0;
  const bool read = wqe.opcode == SendOpcode::read;
  if (wqe.flags.has(SendFlag::inline_data)) {
    pieces[count++] = {const_cast<std::byte*>(qp.send_queue.inline_data(wqe)), wqe.length};
  } else {
    const verbs::Sge* sges = qp.send_queue.sges(wqe);
    for (std::uint32_t i = 0; i < wqe.sge_count; ++i) {
      if (sges[i].length == 0) continue;
      const auto access = qp.environment.keys.local(sges[i].lkey, domain_of(qp, wqe),
                                                    sges[i].address, sges[i].length, read);
      if (access.verdict != verbs::KeyTable::Verdict::ok) return Direct::refused;
      pieces[count++] = {access.memory, sges[i].length};
    }
  }
  const DirectPath::Transfer transfer{
      read, wqe.remote_address, wqe.rkey, wqe.length, {pieces.data(), count}};
  DirectPath& path = *qp.environment.direct;
  const std::uint32_t moved = direct_at_ ? direct_ticket_.moved : 0;
  const bool is_allowed = direct_at_ ? path.step(qp, direct_, transfer, direct_ticket_)
                                     : path.submit(qp, direct_, transfer, direct_ticket_);
  direct_due_ = Time::never();
  if (!is_allowed) return Direct::refused;
  if (direct_ticket_.moved == wqe.length) return Direct::complete;
  // Transfers that have waited longest come first in the next turn: one that was submitted at this
  // moment and has not moved comes before one that has.
  if (direct_ticket_.moved != moved) {
    direct_waits_since_ = now + Time::picoseconds(1);
  } else if (!direct_at_) {
    direct_waits_since_ = now;
  }
  direct_due_ = direct_waits_since_;
  return Direct::under_way;
}

void Requester::complete_direct(QueuePair& qp, SendWqe& wqe) {
  ++qp.environment.counters.direct_transfers;
  qp.environment.counters.direct_bytes += wqe.length;
  wqe.started = wqe.executed = true;
  wqe.packets = 0;
  wqe.first_psn = next_psn_;
  ++cursor_;
  retire_ready(qp);
}

inline bool Requester::emit(Time now, QueuePair& qp, SendWqe& wqe, OutgoingPacket& out) {
  const std::uint32_t psns = fill(qp, wqe, out);
  if (psns == 0) return false;
  advance_cursor(now, qp, wqe, out.packet, psns);
  return true;
}

// Fills in the packet at the cursor. Returns the number of PSNs that it takes, or 0 if the request
// has failed.
std::uint32_t Requester::fill(QueuePair& qp, SendWqe& wqe, OutgoingPacket& out) {
  out.packet = {};
  out.clear_payload();
  out.packet.destination_qp = qp.attributes().destination_qp;
  out.packet.psn = wqe.first_psn + cursor_packet_;
  out.to = &qp.attributes().address;
  std::uint32_t psns = 1;
  if (wqe.opcode == SendOpcode::read) {
    emit_read(qp, wqe, out);
    psns = std::max((out.packet.dma_length + qp.mtu_bytes() - 1) / qp.mtu_bytes(), 1u);
  } else if (wqe.is_atomic()) {
    emit_atomic(wqe, out);
  } else if (wqe.opcode == SendOpcode::atomic_write ? !emit_atomic_write(qp, wqe, out)
                                                    : !emit_data(qp, wqe, out)) {
    fail(qp, wqe, CompletionStatus::local_protection_error);
    return 0;
  }
  if (qp.transport.receives == Receives::nothing) [[unlikely]]
    extended::mark_request(qp, wqe, out.packet);
  return psns;
}

inline bool Requester::emit_data(QueuePair& qp, const SendWqe& wqe, OutgoingPacket& out) {
  const std::uint32_t mtu = qp.mtu_bytes();
  const std::uint32_t offset = cursor_packet_ * mtu;
  const std::uint32_t bytes = std::min(wqe.length - offset, mtu);
  const bool first = cursor_packet_ == 0;
  const bool last = cursor_packet_ + 1 == wqe.packets;
  const Operations operations = operations_of(wqe.opcode);
  const Operation operation = first ? (last ? operations.only : operations.first)
                                    : (last ? operations.last : operations.middle);
  wire::Packet& packet = out.packet;
  packet.opcode = wire::opcode(TransportClass::rc, operation);
  packet.pad_count = static_cast<std::uint8_t>(-bytes & 3);
  if (first && wqe.is_write()) {
    packet.virtual_address = wqe.remote_address;
    packet.rkey = wqe.rkey;
    packet.dma_length = wqe.length;
  }
  if (last) {
    const wire::OpcodeInfo& info = wire::info(packet.opcode);
    if (info.immediate) packet.immediate = wqe.immediate;
    if (info.invalidate) packet.invalidate_rkey = wqe.invalidate_rkey;
    packet.solicited_event = wqe.flags.has(SendFlag::solicited);
  }
  packet.ack_request = wants_ack(qp, wqe);
  if (!gather(qp, wqe, offset, bytes, out)) return false;
  // Only these queue pairs tell the driver before their requests are flushed.
  if (!wqe.flags.has(SendFlag::inline_data) && qp.transport.has_direct_path) {
    out.lasting_bytes = wqe.length;
    out.lasting_for = qp.number;
  }
  return true;
}

bool Requester::wants_ack(const QueuePair& qp, const SendWqe& wqe) const {
  if (cursor_packet_ + 1 == wqe.packets) return true;
  if (since_ack_request_ + 1 >= qp.environment.congestion.packets_per_ack_request) return true;
  return in_flight(qp) + 1 >= qp.congestion.window_packets();
}

void Requester::emit_read(const QueuePair& qp, const SendWqe& wqe, OutgoingPacket& out) {
  const std::uint32_t mtu = qp.mtu_bytes();
  const std::uint32_t offset = cursor_packet_ * mtu;
  const std::uint32_t room =
      qp.congestion.window_packets() - std::min(in_flight(qp), qp.congestion.window_packets());
  // If only one READ may be in flight, each small piece would cost a round trip.
  const std::uint32_t most =
      qp.attributes().max_rd_atomic > 1 ? read_packets_max : congestion::Window::unlimited;
  std::uint32_t packets = std::max(std::min({wqe.packets - cursor_packet_, room, most}), 1u);
  if (reads_in_flight_ < reads_known_) {
    const Psn end = reads_[(reads_first_ + reads_in_flight_) % reads_max];
    packets = static_cast<std::uint32_t>(end.distance_from(out.packet.psn));
  }
  out.packet.opcode = wire::opcode(TransportClass::rc, Operation::read_request);
  out.packet.virtual_address = wqe.remote_address + offset;
  out.packet.rkey = wqe.rkey;
  const std::uint64_t bytes = std::uint64_t{packets} * mtu;
  out.packet.dma_length =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(wqe.length - offset, bytes));
  out.packet.ack_request = true;
}

void Requester::emit_atomic(const SendWqe& wqe, OutgoingPacket& out) {
  const bool swaps = wqe.opcode == SendOpcode::compare_swap;
  out.packet.opcode =
      wire::opcode(TransportClass::rc, swaps ? Operation::compare_swap : Operation::fetch_add);
  out.packet.virtual_address = wqe.remote_address;
  out.packet.rkey = wqe.rkey;
  // IBTA 9.3.5: the operand of fetch-and-add is in the swap field. The compare field is not used.
  out.packet.swap_or_add = swaps ? wqe.swap : wqe.compare_add;
  out.packet.compare = swaps ? wqe.compare_add : 0;
  out.packet.ack_request = true;
}

// IBTA A19: one packet with RETH and 8 bytes.
bool Requester::emit_atomic_write(const QueuePair& qp, const SendWqe& wqe, OutgoingPacket& out) {
  out.packet.opcode = wire::opcode(TransportClass::rc, Operation::atomic_write);
  out.packet.virtual_address = wqe.remote_address;
  out.packet.rkey = wqe.rkey;
  out.packet.dma_length = wqe.length;
  out.packet.ack_request = true;
  if (!wqe.holds_value()) return gather(qp, wqe, 0, wqe.length, out);
  out.payload_bytes = wqe.length;
  out.pieces[out.piece_count++] = {reinterpret_cast<const std::byte*>(&wqe.compare_add),
                                   wqe.length};
  return true;
}

inline void Requester::advance_cursor(Time now, QueuePair& qp, const SendWqe& wqe,
                                      const wire::Packet& sent, std::uint32_t psns) {
  const Psn end = sent.psn + psns;
  if (wqe.is_read_or_atomic()) read_sent(end);
  if (sent.psn.before(sent_end_)) qp.environment.counters.retransmitted_packets += 1;
  if (end.after(sent_end_)) sent_end_ = end;
  since_ack_request_ = sent.ack_request ? 0 : since_ack_request_ + 1;
  cursor_packet_ += psns;
  if (cursor_packet_ >= wqe.packets) {
    ++cursor_;
    cursor_packet_ = 0;
  }
  if (timer_.is_never()) arm_timer(now, qp);
}

void Requester::read_sent(Psn end) {
  if (reads_in_flight_ == reads_known_) {
    reads_[(reads_first_ + reads_known_) % reads_max] = end;
    ++reads_known_;
  }
  ++reads_in_flight_;
}

// IBTA 9.9.2.1: a request that fails locally completes after all earlier ones. Nothing behind it is
// sent.
void Requester::fail(QueuePair& qp, SendWqe& wqe, CompletionStatus status) {
  wqe.status = status;
  retire_ready(qp);
}

}  // namespace tulle::transport::rc
