#include "rdma/optional/srd/inbound.h"

#include <algorithm>

#include "base/guarded_access.h"
#include "rdma/optional/srd/engine.h"
#include "rdma/optional/srd/peers.h"
#include "rdma/transport/local_memory.h"
#include "rdma/transport/queue_pair.h"

namespace tulle::transport::srd {

using verbs::QpState;
using wire::Kind;

namespace {

// A sender has no more partly sent messages than it has packets under way.
constexpr std::uint32_t partials_max = window_packets;

}  // namespace

void Inbound::handle_packet(Time now, QueuePair* qp, const wire::Packet& packet, Payload payload,
                            const wire::Path& path) {
  const Context context = Context::of(packet.srd_context);
  // A stale packet was still in the network when its sender restarted.
  const bool is_stale = generation_ != 0 && context.generation != generation_ &&
                        !context.is_later_than(generation_) &&
                        now < heard_at_ + peers_.settings().give_up;
  const bool is_over = is_over_ && context.generation == generation_;
  if (is_stale || is_over || context.generation == 0) {
    ++peers_.counters().dropped_packets;
    return;
  }
  if (context.generation != generation_) begin(now, context.generation, path);
  heard_at_ = now;
  const Sequence sequence = unwrapped(packet.psn, next_);
  if (sequence == no_sequence || sequence >= next_ + window_packets) {
    ++peers_.counters().dropped_packets;
    return;
  }
  Verdict verdict = Verdict::accepted;
  if (has(sequence)) {
    ++peers_.counters().duplicate_requests;
  } else {
    verdict = accept(qp, packet, payload);
    if (verdict == Verdict::not_ready && peers_.end_silent(now)) {
      verdict = accept(qp, packet, payload);
    }
    if (verdict == Verdict::accepted) mark(sequence);
  }
  if (verdict == Verdict::ignored) {
    ++peers_.counters().dropped_packets;
    return;
  }
  if (verdict == Verdict::not_ready) {
    ++peers_.counters().rnr_naks_sent;
  } else if (verdict != Verdict::accepted) {
    ++peers_.counters().remote_errors_sent;
  }
  peers_.answer(key.service_level, {index_, sequence, now, packet.source_qp, packet.pkey,
                                    packet.srd_path, syndrome_of(verdict)});
}

void Inbound::begin(Time, std::uint32_t generation, const wire::Path& path) {
  drop_partials();
  generation_ = generation;
  is_over_ = false;
  next_ = 0;
  came_ = {};
  to_ = {};
  to_.destination = key.gid;
  to_.service_level = key.service_level;
  // Answers have the differentiated services of the packet, but no ECN bits, so that they are not
  // marked.
  to_.traffic_class = static_cast<std::uint8_t>(wire::traffic_class_of(path) & ~wire::ecn_mask);
  to_.source_gid_index = peers_.gid_index(wire::destination_of(path).gid);
}

wire::Syndrome Inbound::syndrome_of(Verdict verdict) {
  const auto nak = [](wire::NakCode code) {
    return wire::Syndrome{wire::AckKind::nak, static_cast<std::uint8_t>(code)};
  };
  switch (verdict) {
    case Verdict::not_ready:
      return {wire::AckKind::rnr_nak, 0};
    case Verdict::bad_destination:
      return nak(wire::NakCode::invalid_rd_request);
    case Verdict::bad_request:
      return nak(wire::NakCode::invalid_request);
    case Verdict::bad_access:
      return nak(wire::NakCode::remote_access_error);
    case Verdict::failed:
      return nak(wire::NakCode::remote_operational_error);
    default:
      return {wire::AckKind::ack, 0};
  }
}

// --- packets ---

// Checks a new packet in order. EFA's device reports to the sender that a queue pair does not exist
// or is in error, that a receive buffer is too short, that a key is not valid, and that no receive
// request was posted (efa_io_comp_status in rdma-core's providers/efa/efa_io_defs.h).
Inbound::Verdict Inbound::accept(QueuePair* qp, const wire::Packet& packet, Payload payload) {
  const wire::OpcodeInfo& info = wire::info(packet.opcode);
  if (info.kind == Kind::skip) {
    if (packet.srd_message != 0) drop(packet.srd_message);
    return Verdict::accepted;
  }
  if (qp == nullptr || qp->type() != verbs::QpType::srd) return Verdict::bad_destination;
  // The queue pair is still on its way up the ladder: the sender was early.
  if (qp->state() == QpState::init) return Verdict::ignored;
  if (!qp->receives()) return Verdict::bad_destination;
  if (payload.bytes > qp->mtu_bytes()) return Verdict::bad_request;
  if (info.srd_qkey && packet.qkey != qp->attributes().qkey) return Verdict::bad_destination;
  qp->communication_established();
  switch (info.kind) {
    case Kind::send:
      return info.srd_segment ? accept_segment(*qp, packet, payload)
                              : accept_send(*qp, packet, payload);
    case Kind::write:
      return info.immediate ? accept_immediate(*qp, packet) : accept_write(*qp, packet, payload);
    default:
      return Verdict::bad_request;
  }
}

// A receive request that is too short stays in its queue: a stranger must not be able to use them
// up.
Inbound::Verdict Inbound::check_receive(QueuePair& qp, std::uint64_t bytes) {
  if (!Engine::of(qp).has_receive(qp)) return Verdict::not_ready;
  return Engine::of(qp).next_receive_length(qp) < bytes ? Verdict::bad_request : Verdict::accepted;
}

Inbound::Verdict Inbound::accept_send(QueuePair& qp, const wire::Packet& packet, Payload payload) {
  const Verdict verdict = check_receive(qp, payload.bytes);
  if (verdict != Verdict::accepted) return verdict;
  verbs::Receive receive;
  const bool taken = Engine::of(qp).take_receive(qp, receive);
  TULLE_CHECK(taken);
  const bool placed = scatter(qp, receive, 0, payload, {true, true});
  verbs::Completion completion;
  completion.wr_id = receive.wr_id;
  completion.opcode = verbs::CompletionOpcode::receive;
  completion.status =
      placed ? verbs::CompletionStatus::success : verbs::CompletionStatus::local_protection_error;
  completion.byte_length = payload.bytes;
  completion.has_immediate = wire::info(packet.opcode).immediate;
  completion.immediate = packet.immediate;
  completion.solicited = packet.solicited_event;
  completion.source_qp = packet.source_qp;
  qp.complete_receive(completion);
  if (placed) return Verdict::accepted;
  qp.enter_error();
  return Verdict::failed;
}

Inbound::Verdict Inbound::accept_segment(QueuePair& qp, const wire::Packet& packet,
                                         Payload payload) {
  const bool fits = payload.bytes > 0 && packet.srd_message != 0 &&
                    packet.dma_length <= dma_length_max &&
                    std::uint64_t{packet.srd_offset} + payload.bytes <= packet.dma_length;
  if (!fits) return Verdict::bad_request;
  Partial* partial = find(packet.srd_message);
  if (partial == nullptr && partials_ == partials_max) return Verdict::ignored;
  if (partial == nullptr) {
    const Verdict verdict = check_receive(qp, packet.dma_length);
    if (verdict != Verdict::accepted) return verdict;
    partial = &begin_partial(qp, packet);
    partial->holds_receive = Engine::of(qp).take_receive(qp, partial->receive);
    TULLE_CHECK(partial->holds_receive);
  }
  if (partial->qp != &qp || partial->is_write || partial->length != packet.dma_length) {
    return Verdict::bad_request;
  }
  const Edges edges = {packet.srd_offset == 0,
                       packet.srd_offset + payload.bytes == packet.dma_length};
  if (!scatter(qp, partial->receive, packet.srd_offset, payload, edges)) {
    verbs::Completion completion;
    completion.wr_id = partial->receive.wr_id;
    completion.opcode = verbs::CompletionOpcode::receive;
    completion.status = verbs::CompletionStatus::local_protection_error;
    partial->holds_receive = false;
    drop(packet.srd_message);
    qp.complete_receive(completion);
    qp.enter_error();
    return Verdict::failed;
  }
  partial->arrived_bytes += payload.bytes;
  partial->solicited |= packet.solicited_event;
  if (wire::info(packet.opcode).immediate) {
    partial->has_immediate = true;
    partial->immediate = packet.immediate;
  }
  complete_if_there(*partial);
  return Verdict::accepted;
}

// Regions alone decide what may be written: an SRD queue pair has no access flags to set (Linux,
// efa_verbs.c, srd_qp_state_table).
Inbound::Verdict Inbound::accept_write(QueuePair& qp, const wire::Packet& packet, Payload payload) {
  if (packet.dma_length > dma_length_max || payload.bytes > packet.dma_length) {
    return Verdict::bad_request;
  }
  if (payload.bytes > 0) {  // IBTA 9.7.4.1.5: without bytes the key is not checked
    const auto access =
        qp.environment.keys.remote(packet.rkey, *qp.init.pd, qp.number, packet.virtual_address,
                                   payload.bytes, verbs::Access::remote_write);
    if (access.verdict != verbs::KeyTable::Verdict::ok) return Verdict::bad_access;
    if (access.memory != nullptr && payload.data != nullptr &&
        !copy_guarded(access.memory, payload.data, payload.bytes)) {
      return Verdict::bad_access;
    }
  }
  if (packet.srd_message == 0) return Verdict::accepted;
  Partial* partial = find(packet.srd_message);
  if (partial == nullptr && partials_ == partials_max) return Verdict::ignored;
  if (partial == nullptr) partial = &begin_partial(qp, packet);
  if (partial->qp != &qp || !partial->is_write || partial->length != packet.dma_length) {
    return Verdict::bad_request;
  }
  partial->arrived_bytes += payload.bytes;
  complete_if_there(*partial);
  return Verdict::accepted;
}

Inbound::Verdict Inbound::accept_immediate(QueuePair& qp, const wire::Packet& packet) {
  if (packet.srd_message == 0) return Verdict::bad_request;
  if (!Engine::of(qp).has_receive(qp)) return Verdict::not_ready;
  Partial* partial = find(packet.srd_message);
  if (partial == nullptr && partials_ == partials_max) return Verdict::ignored;
  if (partial == nullptr) partial = &begin_partial(qp, packet);
  if (partial->qp != &qp || !partial->is_write || partial->length != packet.dma_length ||
      partial->holds_receive) {
    return Verdict::bad_request;
  }
  partial->holds_receive = Engine::of(qp).take_receive(qp, partial->receive);
  partial->has_immediate = true;
  partial->immediate = packet.immediate;
  partial->solicited = packet.solicited_event;
  complete_if_there(*partial);
  return Verdict::accepted;
}

// --- messages of several packets ---

Partial* Inbound::find(std::uint32_t number) {
  for (std::uint32_t i = first_partial_; i != no_partial; i = peers_.partials[i].next) {
    if (peers_.partials[i].number == number) return &peers_.partials[i];
  }
  return nullptr;
}

Partial& Inbound::begin_partial(QueuePair& qp, const wire::Packet& packet) {
  const std::uint32_t ref = peers_.partials.take();
  ++partials_;
  Partial& partial = peers_.partials[ref];
  partial.qp = &qp;
  partial.number = packet.srd_message;
  partial.length = packet.dma_length;
  partial.is_write = wire::info(packet.opcode).kind == Kind::write;
  partial.source = packet.source_qp;
  partial.next = first_partial_;
  first_partial_ = ref;
  return partial;
}

void Inbound::complete_if_there(Partial& partial) {
  if (partial.arrived_bytes < partial.length || !partial.holds_receive) return;
  QueuePair& qp = *partial.qp;
  verbs::Completion completion;
  completion.wr_id = partial.receive.wr_id;
  completion.opcode = partial.is_write ? verbs::CompletionOpcode::receive_write_with_immediate
                                       : verbs::CompletionOpcode::receive;
  completion.byte_length = partial.length;
  completion.has_immediate = partial.has_immediate;
  completion.immediate = partial.immediate;
  completion.solicited = partial.solicited;
  completion.source_qp = partial.source;
  partial.holds_receive = false;
  drop(partial.number);
  qp.complete_receive(completion);
}

// Drops a partial message. If it held a receive request, this is kept for the next message.
void Inbound::drop(std::uint32_t number) {
  for (std::uint32_t* at = &first_partial_; *at != no_partial; at = &peers_.partials[*at].next) {
    const std::uint32_t ref = *at;
    Partial& partial = peers_.partials[ref];
    if (partial.number != number) continue;
    if (partial.holds_receive) Engine::of(*partial.qp).keep(partial.receive);
    remove(at);
    return;
  }
}

void Inbound::remove(std::uint32_t* at) {
  const std::uint32_t ref = *at;
  *at = peers_.partials[ref].next;
  peers_.partials.give(ref);
  --partials_;
}

void Inbound::drop_partials() {
  while (first_partial_ != no_partial) drop(peers_.partials[first_partial_].number);
}

// A sender fails its messages when it has received nothing for the time of `give_up`. Twice that
// time passes here before it does without them.
bool Inbound::end_if_silent(Time now) {
  const Time give_up = peers_.settings().give_up;
  if (first_partial_ == no_partial || now < heard_at_ + give_up + give_up) return false;
  drop_partials();
  is_over_ = true;
  return true;
}

// Receive requests that the messages held go back to the queue pair, which flushes them.
void Inbound::forget(const QueuePair& qp) {
  for (std::uint32_t* at = &first_partial_; *at != no_partial;) {
    Partial& partial = peers_.partials[*at];
    if (partial.qp != &qp) {
      at = &partial.next;
      continue;
    }
    if (partial.holds_receive) Engine::of(*partial.qp).keep(partial.receive);
    remove(at);
  }
}

// --- packet numbers ---

bool Inbound::has(Sequence sequence) const {
  if (sequence < next_) return true;
  return (came_[sequence / 64 % came_.size()] >> sequence % 64 & 1) != 0;
}

void Inbound::mark(Sequence sequence) {
  came_[sequence / 64 % came_.size()] |= std::uint64_t{1} << sequence % 64;
  for (;;) {
    std::uint64_t& word = came_[next_ / 64 % came_.size()];
    const std::uint64_t bit = std::uint64_t{1} << next_ % 64;
    if ((word & bit) == 0) return;
    word &= ~bit;
    ++next_;
  }
}

// Returns which of the 64 numbers up to `until` have come. Bit 63 is `until`, bit 62 the one
// before.
std::uint64_t Inbound::last_64(Sequence until) const {
  if (until < next_) return ~std::uint64_t{0};
  const auto shift = static_cast<unsigned>(until % 64);
  const std::size_t word = until / 64;
  std::uint64_t bits = came_[word % came_.size()] << (63 - shift);
  if (shift < 63 && word > 0) bits |= came_[(word - 1) % came_.size()] >> (shift + 1);
  // All numbers before the first missing one have come.
  const Sequence behind = until - next_;
  if (behind < 63) bits |= (std::uint64_t{1} << (63 - behind)) - 1;
  return bits;
}

// --- answers ---

void Inbound::fill(Time now, const Answer& answer, OutgoingPacket& out) {
  out.packet = {};
  out.clear_payload();
  out.packet.opcode = wire::opcode(wire::TransportClass::srd, wire::Operation::acknowledge);
  out.packet.destination_qp = answer.source;
  out.packet.pkey = answer.pkey;
  out.packet.psn = psn_of(next_);
  out.packet.early_psn = psn_of(answer.sequence);
  out.packet.srd_context = Context{generation_, key.service_level}.word();
  out.packet.srd_path = answer.path;
  out.packet.syndrome = answer.syndrome;
  constexpr std::int64_t held_max = 0xFF'FFFF;
  out.packet.srd_held_ns =
      static_cast<std::uint32_t>(std::min((now - answer.came_at).to_nanoseconds(), held_max));
  out.packet.srd_received = last_64(answer.sequence);
  to_.flow_label = peers_.answer_label(key, answer.path);
  out.to = &to_;
}

}  // namespace tulle::transport::srd
