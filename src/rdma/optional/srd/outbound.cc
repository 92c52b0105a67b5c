#include "rdma/optional/srd/outbound.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "rdma/optional/srd/peers.h"
#include "rdma/transport/local_memory.h"
#include "rdma/transport/nak_status.h"
#include "rdma/transport/queue_pair.h"

namespace tulle::transport::srd {

using verbs::CompletionStatus;
using verbs::SendOpcode;
using wire::Operation;
using wire::TransportClass;

namespace {

constexpr unsigned silences_max = 10;

bool has_immediate(const SendWqe& wqe) {
  return wqe.opcode == SendOpcode::send_with_immediate ||
         wqe.opcode == SendOpcode::write_with_immediate;
}

}  // namespace

Outbound::Outbound(Peers& peers, const PeerKey& key, const verbs::AddressVector& to)
    : key(key),
      peers_(peers),
      paths_(peers.settings().paths, peers.settings().seed ^ key.hash()),
      rate_(peers.settings()),
      to_(to) {}

// --- messages ---

void Outbound::add(MessageRef ref) {
  Message& message = peers_.messages[ref];
  message.next = no_message;
  message.in_line = true;
  (line_last_ != no_message ? peers_.messages[line_last_].next : line_first_) = ref;
  line_last_ = ref;
}

void Outbound::leave_line() {
  Message& message = peers_.messages[line_first_];
  message.in_line = false;
  line_first_ = message.next;
  if (line_first_ == no_message) line_last_ = no_message;
}

// Returns the first message in the line that has a packet to send. Messages that have ended in the
// meantime leave the line.
MessageRef Outbound::next_in_line() {
  while (line_first_ != no_message) {
    const MessageRef ref = line_first_;
    const Message& message = peers_.messages[ref];
    if (message.qp != nullptr || message.ends) return ref;
    leave_line();
    release_or_end(ref);
  }
  return no_message;
}

// Gives back a message that has ended, once it has left the line and all of its packets are
// answered. If the receiver has only a part of it, the receiver is first notified that the message
// ends. This waits until no packet of the message is under way, since a late one would begin the
// message again.
void Outbound::release_or_end(MessageRef ref) {
  Message& message = peers_.messages[ref];
  if (message.unanswered > 0 || message.in_line) return;
  const bool half_there = message.number != 0 && message.sent > 0 && !message.ends;
  if (!half_there) return peers_.messages.give(ref);
  message.ends = true;
  add(ref);
}

void Outbound::forget(MessageRef ref) {
  Message& message = peers_.messages[ref];
  const bool complete = message.sent == message.segments && message.unanswered == 0;
  TULLE_CHECK(!complete);
  message.qp = nullptr;
  release_or_end(ref);
}

void Outbound::fail(MessageRef ref, CompletionStatus status) {
  Message& message = peers_.messages[ref];
  QueuePair* qp = std::exchange(message.qp, nullptr);
  SendWqe* wqe = message.wqe;
  release_or_end(ref);
  if (qp != nullptr) peers_.finish(*qp, *wqe, status);
}

void Outbound::progress(MessageRef ref) {
  Message& message = peers_.messages[ref];
  --message.unanswered;
  if (message.qp == nullptr) return release_or_end(ref);
  if (message.unanswered > 0 || message.sent < message.segments) return;
  QueuePair& qp = *message.qp;
  SendWqe& wqe = *message.wqe;
  peers_.messages.give(ref);
  peers_.finish(qp, wqe, CompletionStatus::success);
}

// --- sending ---

bool Outbound::pull(Time now, OutgoingPacket& out) {
  if (!rate_.may_send(now, flight_.bytes(), frame_bytes_)) return false;
  return pull_again(now, out) || pull_new(now, out);
}

bool Outbound::pull_again(Time now, OutgoingPacket& out) {
  const Sequence sequence = flight_.take_lost();
  if (sequence == no_sequence) return false;
  const Slot& slot = flight_[sequence];
  const MessageRef ref = slot.message;
  if (!fill(ref, slot.segment, out)) {
    // The memory has gone since the packet was first sent. A skip packet takes its place.
    fail(ref, CompletionStatus::local_protection_error);
    fill_skip(peers_.messages[ref], out);
  }
  ++peers_.counters().retransmitted_packets;
  send(now, sequence, paths_.choose(now, slot.path), out);
  return true;
}

bool Outbound::pull_new(Time now, OutgoingPacket& out) {
  for (;;) {
    const MessageRef ref = next_in_line();
    if (ref == no_message || flight_.is_full()) return false;
    Message& message = peers_.messages[ref];
    if (message.qp != nullptr && message.sent == 0 &&
        message.wqe->status != CompletionStatus::success) {
      fail(ref, message.wqe->status);
      continue;
    }
    if (!fill(ref, message.sent, out)) {
      fail(ref, CompletionStatus::local_protection_error);
      continue;
    }
    if (generation_ == 0) generation_ = peers_.name(now, *this);
    if (flight_.empty()) heard_at_ = now;
    const Sequence sequence = flight_.add();
    flight_[sequence].message = ref;
    flight_[sequence].segment = message.sent;
    ++message.unanswered;
    if (message.ends || ++message.sent == message.segments) leave_line();
    send(now, sequence, paths_.choose(now), out);
    return true;
  }
}

void Outbound::send(Time now, Sequence sequence, std::uint8_t path, OutgoingPacket& out) {
  out.packet.psn = psn_of(sequence);
  out.packet.srd_context = context().word();
  out.packet.srd_path = path;
  to_.flow_label = paths_.flow_label(path);
  out.to = &to_;
  frame_bytes_ = out.bth_and_payload_bytes() + peers_.link_overhead_bytes();
  flight_.sent(now, sequence, path, frame_bytes_);
  rate_.sent(now, frame_bytes_);
}

bool Outbound::fill(MessageRef ref, std::uint32_t segment, OutgoingPacket& out) {
  const Message& message = peers_.messages[ref];
  if (message.qp == nullptr) {
    fill_skip(message, out);
    return true;
  }
  out.packet = {};
  out.packet.destination_qp = message.destination;
  out.packet.source_qp = message.source;
  out.packet.pkey = message.pkey;
  if (message.segments > 1 && message.number == 0 && !message.wqe->is_write()) {
    peers_.messages[ref].number = ++numbers_;
  }
  if (message.wqe->opcode == SendOpcode::write_with_immediate && message.number == 0) {
    peers_.messages[ref].number = ++numbers_;
  }
  out.packet.srd_message = message.number;
  out.packet.solicited_event = message.wqe->flags.has(verbs::SendFlag::solicited);
  const bool filled = message.wqe->is_write() ? fill_write(message, segment, out)
                                              : fill_send(message, segment, out);
  out.packet.pad_count = static_cast<std::uint8_t>(-out.payload_bytes & 3);
  return filled;
}

bool Outbound::fill_send(const Message& message, std::uint32_t segment, OutgoingPacket& out) const {
  const SendWqe& wqe = *message.wqe;
  const bool immediate = has_immediate(wqe);
  const std::uint32_t mtu = message.qp->mtu_bytes();
  const std::uint32_t offset = segment * mtu;
  if (message.segments == 1) {
    out.packet.opcode =
        wire::opcode(TransportClass::srd,
                     immediate ? Operation::send_only_with_immediate : Operation::send_only);
  } else {
    out.packet.opcode =
        wire::opcode(TransportClass::srd,
                     immediate ? Operation::send_last_with_immediate : Operation::send_middle);
    out.packet.srd_offset = offset;
    out.packet.dma_length = wqe.length;
  }
  if (immediate) out.packet.immediate = wqe.immediate;
  out.packet.qkey = message.qp->qkey_of(wqe);
  return gather(*message.qp, wqe, offset, std::min(mtu, wqe.length - offset), out);
}

// Each packet carries its address, so that the receiver can place it whenever it comes. The
// immediate value travels in a separate packet behind them, since there is no room for it next to
// the RETH.
bool Outbound::fill_write(const Message& message, std::uint32_t segment,
                          OutgoingPacket& out) const {
  const SendWqe& wqe = *message.wqe;
  out.packet.dma_length = wqe.length;
  if (has_immediate(wqe) && segment + 1 == message.segments) {
    out.packet.opcode = wire::opcode(TransportClass::srd, Operation::write_last_with_immediate);
    out.packet.immediate = wqe.immediate;
    out.packet.qkey = message.qp->qkey_of(wqe);
    out.clear_payload();
    return true;
  }
  const std::uint32_t mtu = message.qp->mtu_bytes();
  const std::uint32_t offset = segment * mtu;
  out.packet.opcode = wire::opcode(TransportClass::srd, Operation::write_middle);
  out.packet.virtual_address = wqe.remote_address + offset;
  out.packet.rkey = wqe.rkey;
  return gather(*message.qp, wqe, offset, std::min(mtu, wqe.length - offset), out);
}

// Fills in a skip packet. It replaces a packet that will not be sent any more, so that no number is
// missing.
void Outbound::fill_skip(const Message& message, OutgoingPacket& out) const {
  out.packet = {};
  out.clear_payload();
  out.packet.opcode = wire::opcode(TransportClass::srd, Operation::skip);
  out.packet.destination_qp = message.destination;
  out.packet.source_qp = message.source;
  out.packet.pkey = message.pkey;
  out.packet.srd_message = message.ends ? message.number : 0;
}

// --- answers ---

void Outbound::handle_acknowledgement(Time now, const wire::Packet& packet) {
  const Sequence before = unwrapped(packet.psn, flight_.next());
  const Sequence answer = unwrapped(packet.early_psn, flight_.next());
  // An answer to a packet that was never sent is not genuine.
  if (before == no_sequence || answer == no_sequence || before > flight_.next() ||
      answer >= flight_.next()) {
    ++peers_.counters().dropped_packets;
    return;
  }
  heard_at_ = now;
  Time round_trip = Time::zero();
  if (flight_.holds(answer)) {
    const Slot& slot = flight_[answer];
    const Time held = Time::nanoseconds(packet.srd_held_ns);
    // If the path is not the one of the last transmission, the answer is to an earlier one.
    const bool is_of_last = slot.state == Slot::State::in_flight && slot.path == packet.srd_path;
    if (is_of_last && now > slot.at + held) round_trip = now - slot.at - held;
    if (packet.syndrome.kind != wire::AckKind::ack) refused(now, answer, packet.syndrome);
  }
  constexpr Sequence answered_bits = 64;
  for (std::uint64_t bits = packet.srd_received; bits != 0; bits &= bits - 1) {
    const auto bit = static_cast<Sequence>(std::countr_zero(bits));
    const Sequence sequence = answer + bit + 1 - answered_bits;
    if (answer + bit + 1 >= answered_bits && flight_.holds(sequence)) {
      answered(now, sequence, sequence == answer ? round_trip : Time::zero());
    }
  }
  while (flight_.first() < before) answered(now, flight_.first(), Time::zero());
  give_up_on_late(now);
}

void Outbound::answered(Time now, Sequence sequence, Time round_trip) {
  const Slot slot = flight_[sequence];
  if (slot.state == Slot::State::acknowledged) return;
  flight_.acknowledged(sequence);
  silences_ = 0;
  if (round_trip > Time::zero()) paths_.acknowledged(now, slot.path, round_trip);
  const bool is_sure = slot.transmissions == 1 || round_trip > Time::zero();
  if (is_sure && slot.state == Slot::State::in_flight) {
    latest_answered_ = std::max(latest_answered_, slot.at);
  }
  rate_.acknowledged(now, is_sure ? slot.at : Time::zero(), round_trip, slot.frame_bytes);
  progress(slot.message);
}

// EFA's devices try again by themselves when the receiver was not ready: as often as the queue
// pair's rnr_retry says, and indefinitely for 7 (rdma-core, efadv_query_device; libfabric's efa
// provider).
void Outbound::refused(Time now, Sequence sequence, wire::Syndrome syndrome) {
  Slot& slot = flight_[sequence];
  if (slot.state != Slot::State::in_flight && slot.state != Slot::State::lost) return;
  Message& message = peers_.messages[slot.message];
  silences_ = 0;
  if (message.qp == nullptr) return flight_.lost(sequence);  // a skip packet will replace it
  if (syndrome.kind == wire::AckKind::rnr_nak) {
    ++peers_.counters().rnr_naks_received;
    constexpr std::uint8_t for_ever = 7;
    if (message.qp->attributes().rnr_retry != for_ever && message.refusals_left-- == 0) {
      flight_.lost(sequence);
      return fail(slot.message, CompletionStatus::rnr_retry_exceeded_error);
    }
    const Settings& settings = peers_.settings();
    const Time wait{std::min(settings.rnr_first.ps << std::min<int>(slot.transmissions - 1, 20),
                             settings.rnr_longest.ps)};
    flight_.wait(sequence, now + wait);
    waits_end_ = std::min(waits_end_, now + wait);
    return;
  }
  ++peers_.counters().remote_errors_received;
  flight_.lost(sequence);
  fail(slot.message, status_of(static_cast<wire::NakCode>(syndrome.value)));
}

// --- time ---

Time Outbound::timeout() const {
  const Settings& settings = peers_.settings();
  if (!rate_.has_measured()) return settings.timeout_first;
  const Time longest = rate_.longest_round_trip();
  return longest + Time{longest.ps / 4} + settings.timeout_margin;
}

// Returns the time after which one packet is sent again to get an answer, although no answer to a
// later packet says that it was lost.
Time Outbound::silence() const {
  return Time{timeout().ps << std::min(silences_ + 1, silences_max)};
}

// Returns true if a packet that was sent later has been answered.
bool Outbound::is_outlived(Sequence sequence) const {
  return flight_[sequence].at < latest_answered_;
}

void Outbound::lose(Time now, Sequence sequence) {
  paths_.lost(now, flight_[sequence].path);
  flight_.lost(sequence);
  rate_.lost();
}

void Outbound::give_up_on_late(Time now) {
  for (Sequence oldest; (oldest = flight_.oldest()) != no_sequence;) {
    if (!is_outlived(oldest) || now < flight_[oldest].at + timeout()) return;
    lose(now, oldest);
  }
}

Time Outbound::next_deadline() const {
  Time next = std::min(rate_.next_deadline(), waits_end_);
  if (flight_.empty()) return next;
  next = std::min(next, heard_at_ + peers_.settings().give_up);
  const Sequence oldest = flight_.oldest();
  if (oldest == no_sequence) return next;
  return std::min(next, flight_[oldest].at + (is_outlived(oldest) ? timeout() : silence()));
}

void Outbound::handle_deadline(Time now) {
  rate_.handle_deadline(now);
  waits_end_ = flight_.end_waits(now);
  give_up_on_late(now);
  if (!flight_.empty() && now >= heard_at_ + peers_.settings().give_up) return fail_all();
  const Sequence oldest = flight_.oldest();
  if (oldest == no_sequence || is_outlived(oldest) || now < flight_[oldest].at + silence()) return;
  ++silences_;
  ++peers_.counters().ack_timeouts;
  lose(now, oldest);
  if (silences_ > 1) rate_.silent(now);  // the first silence may be the loss of a single packet
}

// The peer is gone: all messages to it fail. Later messages begin a new generation of numbers.
void Outbound::fail_all() {
  peers_.forget_name(std::exchange(generation_, 0));
  for (Sequence i = flight_.first(); i < flight_.next(); ++i) {
    const MessageRef ref = flight_[i].message;
    if (flight_[i].state == Slot::State::acknowledged) continue;
    Message& message = peers_.messages[ref];
    message.number = 0;
    --message.unanswered;
    flight_[i].state = Slot::State::acknowledged;
    fail(ref, CompletionStatus::retry_exceeded_error);
  }
  flight_.clear();
  for (MessageRef ref; (ref = line_first_) != no_message;) {
    leave_line();
    fail(ref, CompletionStatus::retry_exceeded_error);
  }
  rate_ = RateControl(peers_.settings());
  latest_answered_ = Time::zero();
  waits_end_ = Time::never();
  silences_ = 0;
}

}  // namespace tulle::transport::srd
