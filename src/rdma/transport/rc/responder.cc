#include "rdma/transport/rc/responder.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/guarded_access.h"
#include "base/pause.h"
#include "rdma/transport/queue_pair.h"
#include "rdma/transport/rc/extended.h"
#include "rdma/transport/rc/requester.h"

namespace tulle::transport::rc {

using verbs::Access;
using wire::Kind;
using wire::NakCode;

namespace {

// A device that withholds payload (rdma/transport/withheld.h) leaves a processor the time to write
// between the two halves of an atomic operation.
constexpr int pauses_within_atomic = 20;
constexpr std::int32_t answers_age_max = 1 << 22;  // PSNs

// True if an atomic operation may touch the word. Addresses that are aligned in a region may name
// memory that is not, if the application has chosen the region's first address
// (ibv_reg_mr_iova(3)). The processor must then not be asked.
bool is_aligned(const std::byte* word) { return reinterpret_cast<std::uintptr_t>(word) % 8 == 0; }

// Calls operation(word). The operation is atomic even with respect to the application's own
// processors (IBTA: HCA-wide and beyond), since the region may be shared. Returns false if the word
// is not there.
template <typename Operation>
bool attempt_word(std::byte* memory, Operation operation) {
  const std::span<const std::byte> piece(memory, sizeof(std::uint64_t));
  return attempt({&piece, 1}, [&] {
    operation(std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(memory)));
  });
}

// A READ or an atomic finds what the requests before it brought (IBTA 9.5).
void show_all(const QueuePair& qp) {
  if (qp.environment.withheld != nullptr) [[unlikely]]
    qp.environment.withheld->release_all(qp.number);
}

}  // namespace

void Responder::start(QueuePair& qp) {
  reset();
  answers_end_ = expected_ = qp.attributes().rq_psn;
  const std::uint32_t depth = qp.attributes().max_dest_rd_atomic;
  // There is one extra place: a duplicate may wait in addition to a full set of new requests.
  jobs_ = Ring<Job>(depth + 1);
  atomics_ = Ring<AtomicResult>(std::max(depth, 1u));
  reads_ = Ring<ExecutedRead>(std::max(depth, 1u));
  const RecoverySettings& recovery = qp.environment.recovery;
  if (recovery.kind == Recovery::selective_repeat) {
    early_ = std::make_unique<EarlyPackets>(recovery.window_packets, qp.mtu_bytes());
  }
}

void Responder::handle_request(QueuePair& qp, const wire::Packet& packet, Payload payload) {
  if (!qp.receives()) {
    ++qp.environment.counters.dropped_packets;
    return;
  }
  // IBTA 9.7.4.1.2: a packet is a duplicate, expected, or behind a gap.
  const std::int32_t distance = packet.psn.distance_from(expected_);
  if (distance < 0) {
    ++qp.environment.counters.duplicate_requests;
    handle_duplicate(qp, packet);
    return;
  }
  if (distance > 0) return handle_ahead(qp, packet, payload);
  nak_sent_ = false;
  qp.communication_established();
  handle_expected(qp, packet, payload);
  if (early_ != nullptr) execute_held(qp, packet.psn);
}

bool Responder::find_placement(const QueuePair& qp, const wire::Packet& packet, std::uint32_t bytes,
                               Placement& out) const {
  const bool is_message =
      wire::info(packet.opcode).kind == Kind::send || wire::info(packet.opcode).kind == Kind::write;
  return is_message && qp.receives() && packet.psn == expected_ &&
         inbound_.find_placement(qp, packet, bytes, out);
}

void Responder::handle_ahead(QueuePair& qp, const wire::Packet& packet, Payload payload) {
  if (early_ != nullptr) return hold(qp, packet, payload);
  if (nak_sent_) return;
  nak_sent_ = true;
  if (qp.environment.recovery.kind == Recovery::go_back_0) restart_message(qp);
  ++qp.environment.counters.sequence_naks_sent;
  answer({wire::AckKind::nak, static_cast<std::uint8_t>(NakCode::psn_sequence_error)}, expected_);
}

void Responder::handle_expected(QueuePair& qp, const wire::Packet& packet, Payload payload) {
  if (qp.transport.receives == Receives::from_named_queue) [[unlikely]] {
    const RequestVerdict verdict = extended::select(qp, inbound_, packet);
    if (verdict != RequestVerdict::ok) return refuse(qp, verdict, packet.psn);
  }
  switch (wire::info(packet.opcode).kind) {
    case Kind::send:
    case Kind::write:
      handle_message(qp, packet, payload);
      break;
    case Kind::read_request:
      show_all(qp);
      handle_read(qp, packet);
      break;
    case Kind::atomic:
      show_all(qp);
      handle_atomic(qp, packet);
      break;
    case Kind::atomic_write:
      handle_atomic_write(qp, packet, payload);
      break;
    default:
      refuse(qp, RequestVerdict::unsupported, packet.psn);
      break;
  }
}

inline void Responder::handle_message(QueuePair& qp, const wire::Packet& packet, Payload payload) {
  RequestVerdict verdict = inbound_.check(qp, packet, payload);
  if (verdict == RequestVerdict::ok) verdict = inbound_.accept(qp, packet, payload);
  if (verdict != RequestVerdict::ok && verdict != RequestVerdict::invalid_invalidate) {
    refuse(qp, verdict, packet.psn);
    return;
  }
  executed(qp, packet, 1);
  if (packet.ack_request) answer(acknowledgement(qp), packet.psn);
  // IBTA 9.9.3, class J: a key that cannot be invalidated is this side's error, and no NAK is sent.
  // The message itself has arrived and is acknowledged, as with Linux's rxe
  // (drivers/infiniband/sw/rxe/rxe_resp.c: RESPST_ERR_INVALIDATE_RKEY).
  if (verdict == RequestVerdict::invalid_invalidate) [[unlikely]] {
    fail(qp, verbs::CompletionStatus::memory_window_bind_error, verbs::EventType::qp_access_error);
  }
}

// IBTA 9.7.4.1: the checks of a READ request, in order.
void Responder::handle_read(QueuePair& qp, const wire::Packet& packet) {
  const std::uint32_t mtu = qp.mtu_bytes();
  if (inbound_.in_progress()) {
    return refuse(qp, RequestVerdict::invalid_opcode_sequence, packet.psn);
  }
  if (!qp.attributes().access.has(Access::remote_read) || jobs_.capacity() < 2) {
    return refuse(qp, RequestVerdict::unsupported, packet.psn);
  }
  if (packet.dma_length > dma_length_max || !make_room()) {
    return refuse(qp, RequestVerdict::bad_length, packet.psn);
  }
  if (qp.environment.keys
          .remote(packet.rkey, *qp.init.pd, qp.number, packet.virtual_address, packet.dma_length,
                  Access::remote_read)
          .verdict != verbs::KeyTable::Verdict::ok) {
    return refuse(qp, RequestVerdict::access_denied, packet.psn);
  }
  const std::uint32_t packets = std::max((packet.dma_length + mtu - 1) / mtu, 1u);
  executed(qp, packet, packets);
  Job& job = jobs_.push();
  job = {};
  job.first_psn = packet.psn;
  job.packets = packets;
  job.address = packet.virtual_address;
  job.rkey = packet.rkey;
  job.length = packet.dma_length;
  job.msn = msn_;
  job.xrc_srq = packet.xrc_srq;
  if (reads_.full()) reads_.pop();
  reads_.push({packet.psn, packets, packet.virtual_address, packet.rkey, packet.dma_length,
               packet.xrc_srq});
}

void Responder::handle_atomic(QueuePair& qp, const wire::Packet& packet) {
  if (inbound_.in_progress()) {
    return refuse(qp, RequestVerdict::invalid_opcode_sequence, packet.psn);
  }
  if (!qp.attributes().access.has(Access::remote_atomic) || jobs_.capacity() < 2) {
    return refuse(qp, RequestVerdict::unsupported, packet.psn);
  }
  // IBTA 9.4.5: an atomic's address is on an 8-byte boundary.
  if (packet.virtual_address % 8 != 0 || !make_room()) {
    return refuse(qp, RequestVerdict::bad_length, packet.psn);
  }
  const auto access = qp.environment.keys.remote(packet.rkey, *qp.init.pd, qp.number,
                                                 packet.virtual_address, 8, Access::remote_atomic);
  if (access.verdict != verbs::KeyTable::Verdict::ok) {
    return refuse(qp, RequestVerdict::access_denied, packet.psn);
  }
  if (!is_aligned(access.memory)) return refuse(qp, RequestVerdict::bad_length, packet.psn);
  std::uint64_t original = 0;
  if (access.memory != nullptr) {
    const bool is_swap = wire::operation_of(packet.opcode) == wire::Operation::compare_swap;
    const bool is_there = attempt_word(access.memory, [&](auto word) {
      if (qp.environment.withheld != nullptr) [[unlikely]] {
        original = word.load();
        for (int i = 0; i < pauses_within_atomic; ++i) pause_processor();
        if (!is_swap) word.store(original + packet.swap_or_add);
        if (is_swap && original == packet.compare) word.store(packet.swap_or_add);
      } else if (is_swap) {
        original = packet.compare;
        word.compare_exchange_strong(original, packet.swap_or_add);
      } else {
        original = word.fetch_add(packet.swap_or_add);
      }
    });
    if (!is_there) return refuse(qp, RequestVerdict::access_denied, packet.psn);
  }
  executed(qp, packet, 1);
  remember_atomic(packet, original);
}

// IBTA A19: an atomic write stores 8 bytes at once, on an 8-byte boundary. It needs the access
// right of a WRITE.
void Responder::handle_atomic_write(QueuePair& qp, const wire::Packet& packet, Payload payload) {
  if (inbound_.in_progress()) {
    return refuse(qp, RequestVerdict::invalid_opcode_sequence, packet.psn);
  }
  if (!qp.attributes().access.has(Access::remote_write) || jobs_.capacity() < 2) {
    return refuse(qp, RequestVerdict::unsupported, packet.psn);
  }
  std::uint64_t value = 0;
  const bool fits = payload.bytes == sizeof(value) && packet.dma_length == sizeof(value) &&
                    packet.virtual_address % sizeof(value) == 0;
  if (!fits || !make_room()) return refuse(qp, RequestVerdict::bad_length, packet.psn);
  const auto access =
      qp.environment.keys.remote(packet.rkey, *qp.init.pd, qp.number, packet.virtual_address,
                                 sizeof(value), Access::remote_write);
  if (access.verdict != verbs::KeyTable::Verdict::ok) {
    return refuse(qp, RequestVerdict::access_denied, packet.psn);
  }
  if (!is_aligned(access.memory)) return refuse(qp, RequestVerdict::bad_length, packet.psn);
  if (access.memory != nullptr && payload.data != nullptr) {
    std::memcpy(&value, payload.data, sizeof(value));
    const bool is_there = attempt_word(access.memory, [&](auto word) { word.store(value); });
    if (!is_there) return refuse(qp, RequestVerdict::access_denied, packet.psn);
  }
  executed(qp, packet, 1);
  remember_atomic(packet);
}

// Keeps the result, so that a repeated request is not executed again, and queues the answer.
void Responder::remember_atomic(const wire::Packet& packet, std::uint64_t original) {
  if (atomics_.full()) atomics_.pop();
  atomics_.push({packet.psn, original});
  Job& job = jobs_.push();
  job = {};
  job.is_atomic = true;
  job.is_write = wire::info(packet.opcode).kind == Kind::atomic_write;
  job.first_psn = packet.psn;
  job.original = original;
  job.msn = msn_;
}

inline void Responder::executed(QueuePair&, const wire::Packet& packet, std::uint32_t psns) {
  expected_ = packet.psn + psns;
  const wire::OpcodeInfo& info = wire::info(packet.opcode);
  if (info.ends_message()) msn_ = (msn_ + 1) & Psn::mask;
  if (info.kind != Kind::send && info.kind != Kind::write) answers_end_ = expected_;
  // Two PSNs can be compared only if they are less than 2^23 apart.
  if (expected_.distance_from(answers_end_) > answers_age_max) {
    answers_end_ = expected_ - answers_age_max;
  }
}

// IBTA 9.7.5.2, table 49: the answer to each error, and its effect on this side.
void Responder::refuse(QueuePair& qp, RequestVerdict verdict, Psn psn) {
  if (verdict == RequestVerdict::no_receive) {
    ++qp.environment.counters.rnr_naks_sent;
    nak_sent_ = true;
    answer({wire::AckKind::rnr_nak, qp.attributes().min_rnr_timer}, psn);
    return;
  }
  NakCode code = NakCode::invalid_request;
  verbs::EventType event = verbs::EventType::qp_request_error;
  auto status = verbs::CompletionStatus::remote_invalid_request_error;
  switch (verdict) {
    case RequestVerdict::access_denied:
      code = NakCode::remote_access_error;
      event = verbs::EventType::qp_access_error;
      // IBTA 11.6.2: a WRITE with immediate, which alone holds a receive request here, fails at
      // this side as a local access. Its request is taken with the last packet (9.7.4.1.3). An
      // earlier packet does not tell that an immediate follows: if it is refused, no request has
      // been taken, and all are flushed.
      status = verbs::CompletionStatus::local_access_error;
      break;
    case RequestVerdict::local_protection:
      code = NakCode::remote_operational_error;
      event = verbs::EventType::qp_fatal;
      status = verbs::CompletionStatus::local_protection_error;
      break;
    case RequestVerdict::receive_too_short:
      status = verbs::CompletionStatus::local_length_error;
      break;
    default:
      break;
  }
  send_nak(qp, code, psn);
  fail(qp, status, event);
}

void Responder::send_nak(QueuePair& qp, NakCode code, Psn psn) {
  ++qp.environment.counters.remote_errors_sent;
  answer({wire::AckKind::nak, static_cast<std::uint8_t>(code)}, psn);
}

// Ends the queue pair. The receive request that the message holds tells the application. If it
// holds none, an event does.
void Responder::fail(QueuePair& qp, verbs::CompletionStatus status, verbs::EventType event) {
  if (inbound_.holds_receive()) {
    verbs::Completion completion;
    completion.wr_id = inbound_.receive().wr_id;
    completion.opcode = verbs::CompletionOpcode::receive;
    completion.status = status;
    inbound_.forget_receive();
    qp.complete_receive(completion);
  } else {
    qp.raise(event);
  }
  qp.enter_error();
}

void Responder::answer(wire::Syndrome syndrome, Psn psn) {
  ack_pending_ = true;
  pending_ = syndrome;
  pending_psn_ = psn;
}

wire::Syndrome Responder::acknowledgement(const QueuePair& qp) const {
  // IBTA 9.7.7.2.3: a shared receive queue gives no credits.
  if (qp.init.srq != nullptr) return {wire::AckKind::ack, no_credits_code};
  return {wire::AckKind::ack, credit_code(qp.receive_queue.size())};
}

// Go-back-0: discards the packets of the message in progress that have arrived.
void Responder::restart_message(QueuePair& qp) {
  expected_ = expected_ - inbound_.packets(qp.mtu_bytes());
  inbound_.abandon();
}

// IBTA 9.7.5.1.5 and 9.7.4.1.2: a request that was executed before is answered, not executed.
void Responder::handle_duplicate(QueuePair& qp, const wire::Packet& packet) {
  switch (wire::info(packet.opcode).kind) {
    case Kind::read_request:
      duplicate_read(qp, packet);
      break;
    case Kind::atomic:
    case Kind::atomic_write:
      duplicate_atomic(qp, packet);
      break;
    case Kind::send:
    case Kind::write:
      // A pending NAK says more, since it also acknowledges everything before it. A NAK that was
      // sent may be lost. The requester's window may end before the gap then, so these packets must
      // be acknowledged to the requester.
      // Behind the latest READ or atomic, everything can be acknowledged at once. Before it, only
      // the packet itself can: an acknowledgement with a READ's PSN asks for the READ again (IBTA
      // 9.7.5.1.3), but Linux's rxe completes the READ without data.
      if (!ack_pending_) {
        answer(acknowledgement(qp), packet.psn.before(answers_end_) ? packet.psn : expected_ - 1);
      }
      break;
    default:
      break;
  }
}

bool Responder::ExecutedRead::contains(const wire::Packet& request,
                                       std::uint32_t request_packets) const {
  const std::int32_t at = request.psn.distance_from(first_psn);
  const std::uint64_t skipped = request.virtual_address - address;
  return at >= 0 && static_cast<std::uint32_t>(at) < packets &&
         request_packets <= packets - static_cast<std::uint32_t>(at) && request.rkey == rkey &&
         request.xrc_srq == xrc_srq && skipped <= length && request.dma_length <= length - skipped;
}

bool Responder::was_executed(const wire::Packet& packet, std::uint32_t packets) const {
  for (std::uint32_t i = 0; i < reads_.size(); ++i) {
    if (reads_[i].contains(packet, packets)) return true;
  }
  return false;
}

// The queue pair's right to answer READs may have been withdrawn since the READ was executed.
void Responder::duplicate_read(QueuePair& qp, const wire::Packet& packet) {
  const std::uint32_t mtu = qp.mtu_bytes();
  const std::uint32_t packets = std::max((packet.dma_length + mtu - 1) / mtu, 1u);
  if (packet.dma_length > dma_length_max || !was_executed(packet, packets)) {
    ++qp.environment.counters.dropped_packets;
    return;
  }
  if (!qp.attributes().access.has(Access::remote_read)) {
    if (!ack_pending_) {
      answer({wire::AckKind::nak, static_cast<std::uint8_t>(NakCode::remote_access_error)},
             packet.psn);
    }
    return;
  }
  for (std::uint32_t i = 0; i < jobs_.size(); ++i) {
    Job& job = jobs_[i];
    if (!job.contains(packet.psn)) continue;
    // A response that still waits will be sent anyway. Responses that were sent and lost are sent
    // again, from this PSN on.
    if (job.is_atomic || !(job.first_psn + job.sent).after(packet.psn)) return;
    job.first_psn = packet.psn;
    job.packets = packets;
    job.sent = 0;
    job.address = packet.virtual_address;
    job.rkey = packet.rkey;
    job.length = packet.dma_length;
    job.xrc_srq = packet.xrc_srq;
    return;
  }
  if (jobs_.full()) return;
  Job job;
  job.again = true;
  job.first_psn = packet.psn;
  job.packets = packets;
  job.address = packet.virtual_address;
  job.rkey = packet.rkey;
  job.length = packet.dma_length;
  job.msn = msn_;
  job.xrc_srq = packet.xrc_srq;
  insert(job);
}

void Responder::duplicate_atomic(QueuePair& qp, const wire::Packet& packet) {
  for (std::uint32_t i = 0; i < jobs_.size(); ++i) {
    if (jobs_[i].contains(packet.psn)) return;
  }
  // The newest first: 16 million packets ago, another atomic may have had this PSN.
  for (std::uint32_t i = atomics_.size(); i-- > 0;) {
    if (atomics_[i].psn != packet.psn || jobs_.full()) continue;
    Job job;
    job.again = true;
    job.is_atomic = true;
    job.is_write = wire::info(packet.opcode).kind == Kind::atomic_write;
    job.first_psn = packet.psn;
    job.original = atomics_[i].original;
    job.msn = msn_;
    insert(job);
    return;
  }
  ++qp.environment.counters.dropped_packets;
}

// Makes room for a new request, which the depth promises: a repeated request gives way. If the
// requester still wants its answer, it will ask again.
bool Responder::make_room() {
  if (!jobs_.full()) return true;
  bool dropped = false;
  for (std::uint32_t left = jobs_.size(); left > 0; --left) {
    const Job job = jobs_.front();
    jobs_.pop();
    if (dropped || !job.again) {
      jobs_.push(job);
    } else {
      dropped = true;
    }
  }
  return dropped;
}

// Keeps the jobs in PSN order, since the requester takes an answer that runs ahead as a loss.
void Responder::insert(const Job& job) {
  jobs_.push() = job;
  for (std::uint32_t i = jobs_.size() - 1; i > 0; --i) {
    if (!jobs_[i].first_psn.before(jobs_[i - 1].first_psn)) break;
    std::swap(jobs_[i], jobs_[i - 1]);
  }
}

bool Responder::pull_packet(QueuePair& qp, OutgoingPacket& out) {
  while (!jobs_.empty()) {
    if (emit_job(qp, out)) return true;
  }
  if (ack_pending_) {
    emit_acknowledge(qp, out);
    return true;
  }
  return early_ != nullptr && emit_selective_acknowledge(qp, out);
}

bool Responder::emit_job(QueuePair& qp, OutgoingPacket& out) {
  out.packet = {};
  out.clear_payload();
  out.packet.destination_qp = qp.attributes().destination_qp;
  out.to = &qp.attributes().address;
  Job& job = jobs_.front();
  out.packet.psn = job.first_psn + job.sent;
  out.packet.msn = job.msn;
  out.packet.syndrome = acknowledgement(qp);
  if (job.is_atomic) {
    out.packet.opcode =
        wire::opcode(wire::TransportClass::rc, job.is_write ? wire::Operation::read_response_only
                                                            : wire::Operation::atomic_acknowledge);
    out.packet.original = job.original;
    job.sent = 1;
  } else if (!emit_read(qp, job, out)) {
    const Psn psn = job.first_psn + job.sent;
    if (job.again) {
      // The READ was executed while the memory was there, and its repetition may be a late copy. So
      // the queue pair sends a NAK but does not fail.
      jobs_.pop();
      if (!ack_pending_) {
        answer({wire::AckKind::nak, static_cast<std::uint8_t>(NakCode::remote_access_error)}, psn);
      }
      return false;
    }
    // The region went away between request and answer. A message that arrives meanwhile has no part
    // in it, so the receive request that it holds is flushed like the others.
    jobs_.clear();
    send_nak(qp, NakCode::remote_access_error, psn);
    qp.raise(verbs::EventType::qp_access_error);
    qp.enter_error();
    return false;
  }
  const bool last = job.sent == job.packets;
  if (last) {
    // This answer acknowledges everything before it.
    if (ack_pending_ && pending_.kind == wire::AckKind::ack &&
        !pending_psn_.after(out.packet.psn)) {
      ack_pending_ = false;
    }
    jobs_.pop();
  }
  return true;
}

// Returns the queue pair's protection domain; for XRC that of the shared receive queue that the
// request named, or null if this queue is gone.
const verbs::ProtectionDomain* Responder::domain_of(const QueuePair& qp, const Job& job) const {
  if (qp.transport.receives != Receives::from_named_queue) [[likely]]
    return qp.init.pd;
  const verbs::SharedReceiveQueue* srq = extended::find(qp, job.xrc_srq);
  return srq != nullptr ? srq->pd : nullptr;
}

bool Responder::emit_read(QueuePair& qp, Job& job, OutgoingPacket& out) {
  using enum wire::Operation;
  const std::uint32_t mtu = qp.mtu_bytes();
  const std::uint32_t offset = job.sent * mtu;
  const std::uint32_t bytes = std::min(job.length - offset, mtu);
  const verbs::ProtectionDomain* pd = domain_of(qp, job);
  if (pd == nullptr) return false;
  const auto access = qp.environment.keys.remote(job.rkey, *pd, qp.number, job.address + offset,
                                                 bytes, Access::remote_read);
  if (access.verdict != verbs::KeyTable::Verdict::ok) return false;
  const bool first = job.sent == 0;
  const bool last = job.sent + 1 == job.packets;
  out.packet.opcode = wire::opcode(wire::TransportClass::rc,
                                   first ? (last ? read_response_only : read_response_first)
                                         : (last ? read_response_last : read_response_middle));
  out.packet.pad_count = static_cast<std::uint8_t>(-bytes & 3);
  out.payload_bytes = bytes;
  if (access.memory != nullptr && bytes > 0) {
    out.pieces[out.piece_count++] = {access.memory, bytes};
  }
  ++job.sent;
  return true;
}

inline void Responder::emit_acknowledge(QueuePair& qp, OutgoingPacket& out) {
  out.packet = {};
  out.clear_payload();
  out.packet.destination_qp = qp.attributes().destination_qp;
  out.to = &qp.attributes().address;
  out.packet.opcode = wire::opcode(wire::TransportClass::rc, wire::Operation::acknowledge);
  out.packet.psn = pending_psn_;
  out.packet.syndrome = pending_;
  out.packet.msn = msn_;
  ack_pending_ = false;
}

}  // namespace tulle::transport::rc
