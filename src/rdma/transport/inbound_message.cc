#include "rdma/transport/inbound_message.h"

#include <algorithm>
#include <utility>

#include "base/guarded_access.h"
#include "rdma/transport/local_memory.h"
#include "rdma/transport/queue_pair.h"
#include "rdma/transport/tag_matching.h"

namespace tulle::transport {

using verbs::Access;
using wire::Kind;

namespace {

bool needs_receive(const wire::OpcodeInfo& info) {
  if (info.kind == Kind::send) return info.starts_message();
  return info.kind == Kind::write && info.immediate;  // IBTA 9.7.4.1.3: with the last packet
}

}  // namespace

RequestVerdict InboundMessage::check(QueuePair& qp, const wire::Packet& packet, Payload payload) {
  const wire::OpcodeInfo& info = wire::info(packet.opcode);
  if (auto verdict = check_sequence(info); verdict != RequestVerdict::ok) return verdict;
  if (auto verdict = check_allowed(qp, info); verdict != RequestVerdict::ok) return verdict;
  if (auto verdict = check_length(qp, info, packet, payload); verdict != RequestVerdict::ok) {
    return verdict;
  }
  if (auto verdict = check_receive(qp, info, payload); verdict != RequestVerdict::ok) {
    return verdict;
  }
  return check_key(qp, info, packet);
}

// IBTA 9.7.4.1.2, table 36: the opcodes that may follow each other.
inline RequestVerdict InboundMessage::check_sequence(const wire::OpcodeInfo& info) const {
  const bool fits = info.starts_message() ? !in_progress() : kind_ == info.kind;
  return fits ? RequestVerdict::ok : RequestVerdict::invalid_opcode_sequence;
}

// IBTA 9.7.4.1.3: the operations that the queue pair's access flags enable.
inline RequestVerdict InboundMessage::check_allowed(const QueuePair& qp,
                                                    const wire::OpcodeInfo& info) const {
  if (info.kind == Kind::write && !qp.attributes().access.has(Access::remote_write)) {
    return RequestVerdict::unsupported;
  }
  return RequestVerdict::ok;
}

// IBTA 9.7.4.1.4 and .6: FIRST and MIDDLE carry a full path MTU, LAST carries at least one byte,
// and a WRITE carries exactly its DMA length.
inline RequestVerdict InboundMessage::check_length(const QueuePair& qp,
                                                   const wire::OpcodeInfo& info,
                                                   const wire::Packet& packet,
                                                   Payload payload) const {
  const std::uint32_t mtu = qp.mtu_bytes();
  switch (info.position) {
    case wire::Position::only:
      if (payload.bytes > mtu) return RequestVerdict::bad_length;
      break;
    case wire::Position::first:
    case wire::Position::middle:
      if (payload.bytes != mtu) return RequestVerdict::bad_length;
      break;
    case wire::Position::last:
      if (payload.bytes == 0 || payload.bytes > mtu) return RequestVerdict::bad_length;
      break;
  }
  if (info.kind != Kind::write) return RequestVerdict::ok;
  const std::uint32_t remaining = info.starts_message() ? packet.dma_length : write_remaining_;
  if (remaining > dma_length_max) return RequestVerdict::bad_length;
  const bool fits = info.ends_message() ? payload.bytes == remaining : payload.bytes < remaining;
  return fits ? RequestVerdict::ok : RequestVerdict::bad_length;
}

// IBTA 9.7.4.1.7: the message needs a receive request that is long enough.
inline RequestVerdict InboundMessage::check_receive(QueuePair& qp, const wire::OpcodeInfo& info,
                                                    Payload payload) {
  if (needs_receive(info) && !has_receive_) {
    const auto verdict = take_receive(qp, info, payload);
    if (verdict != RequestVerdict::ok) return verdict;
  }
  if (info.kind != Kind::send) return RequestVerdict::ok;
  const std::uint64_t so_far = info.starts_message() ? 0 : received_;
  std::uint64_t room = receive_.length();
  if (tagging_ != Tagging::none) [[unlikely]]
    room = qp.tag_matching->room(tagging_, receive_);
  return so_far + payload.bytes <= room ? RequestVerdict::ok : RequestVerdict::receive_too_short;
}

RequestVerdict InboundMessage::take_receive(QueuePair& qp, const wire::OpcodeInfo& info,
                                            Payload payload) {
  if (qp.tag_matching != nullptr && info.kind == Kind::send) [[unlikely]] {
    has_receive_ = qp.tag_matching->take(qp, payload, receive_, tagging_);
    if (!has_receive_) tagging_ = Tagging::none;
  } else {
    has_receive_ = qp.take_receive(receive_);
  }
  return has_receive_ ? RequestVerdict::ok : RequestVerdict::no_receive;
}

// IBTA 9.7.4.1.5: the key of a WRITE covers the whole message. It is checked again with each
// packet, since a region may go away in between.
inline RequestVerdict InboundMessage::check_key(const QueuePair& qp, const wire::OpcodeInfo& info,
                                                const wire::Packet& packet) const {
  if (info.kind != Kind::write) return RequestVerdict::ok;
  const bool starts = info.starts_message();
  const auto access = qp.environment.keys.remote(
      starts ? packet.rkey : write_key_, *qp.init.pd, qp.number,
      starts ? packet.virtual_address : write_address_,
      starts ? packet.dma_length : write_remaining_, Access::remote_write);
  return access.verdict == verbs::KeyTable::Verdict::ok ? RequestVerdict::ok
                                                        : RequestVerdict::access_denied;
}

bool InboundMessage::find_placement(const QueuePair& qp, const wire::Packet& packet,
                                    std::uint32_t bytes, Placement& out) const {
  if (qp.environment.withheld != nullptr) return false;
  const wire::OpcodeInfo& info = wire::info(packet.opcode);
  const bool starts = info.starts_message();
  if (check_sequence(info) != RequestVerdict::ok || check_allowed(qp, info) != RequestVerdict::ok) {
    return false;
  }
  if (info.kind == Kind::send) {
    if (qp.tag_matching != nullptr) return false;
    const verbs::ReceiveQueue& queue =
        qp.init.srq != nullptr ? qp.init.srq->queue : qp.receive_queue;
    const std::span<const verbs::Sge> sges =
        has_receive_ ? std::span(receive_.sges).first(receive_.sge_count) : queue.front_sges();
    return transport::find_placement(qp, sges, starts ? 0 : received_, bytes, out);
  }
  const std::uint32_t left = starts ? packet.dma_length : write_remaining_;
  const auto access = qp.environment.keys.remote(
      starts ? packet.rkey : write_key_, *qp.init.pd, qp.number,
      starts ? packet.virtual_address : write_address_, left, Access::remote_write);
  if (access.verdict != verbs::KeyTable::Verdict::ok || access.memory == nullptr) return false;
  out.add(access.memory, std::min(left, bytes));
  return true;
}

RequestVerdict InboundMessage::accept(QueuePair& qp, const wire::Packet& packet, Payload payload) {
  const wire::OpcodeInfo& info = wire::info(packet.opcode);
  if (info.starts_message()) {
    kind_ = info.kind;
    received_ = 0;
    if (info.kind == Kind::write) {
      write_address_ = packet.virtual_address;
      write_remaining_ = packet.dma_length;
      write_key_ = packet.rkey;
    }
  }
  if (kind_ == Kind::send) {
    if (!place(qp, payload, info)) return RequestVerdict::local_protection;
  } else if (payload.bytes > 0) {
    const auto access = qp.environment.keys.remote(
        write_key_, *qp.init.pd, qp.number, write_address_, payload.bytes, Access::remote_write);
    if (access.verdict != verbs::KeyTable::Verdict::ok) return RequestVerdict::access_denied;
    if (access.memory != nullptr && payload.data != nullptr &&
        !write(qp, access.memory, payload, info)) {
      return RequestVerdict::access_denied;
    }
    write_address_ += payload.bytes;
    write_remaining_ -= payload.bytes;
  }
  received_ += payload.bytes;
  if (!info.ends_message()) return RequestVerdict::ok;
  if (info.invalidate &&
      !qp.environment.keys.invalidate(packet.invalidate_rkey, *qp.init.pd, qp.number)) {
    return RequestVerdict::invalid_invalidate;
  }
  complete(qp, packet, info);
  return RequestVerdict::ok;
}

// Writes the next bytes of a WRITE. Returns false if the memory is gone.
bool InboundMessage::write(QueuePair& qp, std::byte* memory, Payload payload,
                           const wire::OpcodeInfo& info) {
  Withheld* const withheld = qp.environment.withheld.get();
  if (withheld == nullptr) [[likely]]
    return copy_guarded(memory, payload.data, payload.bytes);
  withheld->release_under(qp.number, memory, payload.bytes);
  if (info.starts_message()) {
    withheld->drop_first_packet(qp.number);  // of one that was abandoned
    if (!info.ends_message() &&
        withheld->keep_first_packet(qp.number, write_key_, write_address_, memory,
                                    {payload.data, payload.bytes})) {
      return true;
    }
  }
  return copy_guarded(memory, payload.data, payload.bytes) &&
         (!info.ends_message() || write_first_packet(qp, *withheld));
}

// Since the packet came, its right may have been revoked, and its key may have become good for
// other memory, as that of a window that was bound again.
bool InboundMessage::write_first_packet(QueuePair& qp, Withheld& withheld) {
  const Withheld::FirstPacket* const packet = withheld.first_packet(qp.number);
  if (packet == nullptr) return true;
  const auto access =
      qp.environment.keys.remote(packet->key, *qp.init.pd, qp.number, packet->address,
                                 packet->bytes.size(), Access::remote_write);
  const bool may_write =
      access.verdict == verbs::KeyTable::Verdict::ok && access.memory == packet->memory;
  if (may_write) return withheld.write_first_packet(qp.number);
  withheld.drop_first_packet(qp.number);
  return false;
}

// Writes the next bytes of a SEND to the receive request.
bool InboundMessage::place(QueuePair& qp, Payload payload, const wire::OpcodeInfo& info) {
  std::uint64_t offset = received_;
  if (tagging_ != Tagging::none) [[unlikely]] {
    if (tagging_ == Tagging::rendezvous) return true;  // the device will read the data
    if (tagging_ == Tagging::eager) offset = TagMatching::skip_header(received_, payload);
    return scatter(qp, receive_, offset, payload);
  }
  return scatter(qp, receive_, offset, payload, {info.starts_message(), info.ends_message()});
}

void InboundMessage::complete(QueuePair& qp, const wire::Packet& packet,
                              const wire::OpcodeInfo& info) {
  const bool is_send = kind_ == Kind::send;
  kind_ = Kind::none;
  if (!is_send && !info.immediate) return;
  verbs::Completion completion;
  completion.wr_id = receive_.wr_id;
  completion.opcode = is_send ? verbs::CompletionOpcode::receive
                              : verbs::CompletionOpcode::receive_write_with_immediate;
  completion.byte_length = static_cast<std::uint32_t>(received_);
  completion.has_immediate = info.immediate;
  completion.immediate = packet.immediate;
  completion.has_invalidate = info.invalidate;
  completion.invalidated_rkey = packet.invalidate_rkey;
  completion.solicited = packet.solicited_event;
  has_receive_ = false;
  if (tagging_ != Tagging::none) [[unlikely]] {
    return qp.tag_matching->received(qp, std::exchange(tagging_, Tagging::none), receive_,
                                     completion);
  }
  qp.complete_receive(completion);
}

}  // namespace tulle::transport
