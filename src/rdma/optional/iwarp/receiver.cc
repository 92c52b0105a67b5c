// The receiving half of the engine: it checks what comes in order, places it and completes
// requests.

#include <algorithm>
#include <limits>

#include "base/guarded_access.h"
#include "rdma/optional/iwarp/protocol.h"
#include "rdma/transport/local_memory.h"
#include "rdma/transport/queue_pair.h"

namespace tulle::transport::iwarp {

using verbs::Access;
using verbs::CompletionStatus;
using verbs::EventType;
using verbs::KeyTable;
using verbs::QpState;
using verbs::SendOpcode;
using wire::rdmap::Opcode;

namespace ddp = wire::ddp;
namespace rdmap = wire::rdmap;
namespace error = wire::rdmap::error;

namespace {

// RFC 5041 7.1: returns the error of the memory that a tagged segment names. RDMAP checks the
// access rights (RFC 5040 7.2).
rdmap::TerminateCode tagged_error(KeyTable::Refusal refusal) {
  switch (refusal) {
    case KeyTable::Refusal::unknown_key:
      return error::tagged_invalid_stag;
    case KeyTable::Refusal::foreign:
      return error::tagged_stag_not_associated;
    case KeyTable::Refusal::out_of_bounds:
      return error::tagged_bounds;
    case KeyTable::Refusal::not_permitted:
      break;
  }
  return error::access_rights;
}

// RFC 5040 7.2: returns the error of the memory that a READ request names.
rdmap::TerminateCode source_error(KeyTable::Refusal refusal) {
  switch (refusal) {
    case KeyTable::Refusal::unknown_key:
      return error::invalid_stag;
    case KeyTable::Refusal::foreign:
      return error::stag_not_associated;
    case KeyTable::Refusal::out_of_bounds:
      return error::bounds;
    case KeyTable::Refusal::not_permitted:
      break;
  }
  return error::access_rights;
}

bool wraps(std::uint64_t offset, std::uint32_t bytes) {
  return bytes > 0 && offset > std::numeric_limits<std::uint64_t>::max() - (bytes - 1);
}

// Returns the data behind the header. Headers are bytes even if the data are ghosts.
Payload data_behind(const Ulpdu& ulpdu, std::uint32_t header_bytes) {
  const std::uint32_t bytes = ulpdu.size() - header_bytes;
  const bool is_ghost = ulpdu.ghost_bytes > 0;
  return {is_ghost || bytes == 0 ? nullptr : ulpdu.bytes.data() + header_bytes, bytes};
}

bool is_protection_error(rdmap::TerminateCode code) {
  return code.layer != rdmap::Layer::mpa && code.type == 1;
}

// Returns the index of the request that the error is about, if the headers in the TERMINATE name it
// and it is not done yet. Most often it is done, since the stream had acknowledged it. So many
// requests have begun.
std::optional<std::uint32_t> find_blamed(const SendQueue& requests, std::uint32_t begun,
                                         const rdmap::Terminate& terminate) {
  if (!terminate.ddp_header) return std::nullopt;
  const ddp::Header& header = *terminate.ddp_header;
  for (std::uint32_t i = 0; i < std::min(begun, requests.size()); ++i) {
    const SendWqe& wqe = requests[i];
    if (wqe.executed) continue;
    const bool is_send = wqe.opcode != SendOpcode::write && wqe.opcode != SendOpcode::read;
    const bool same_send = is_send && !header.tagged && header.queue == rdmap::send_queue &&
                           header.sequence == wqe.packets;
    const bool same_write = wqe.opcode == SendOpcode::write && header.tagged &&
                            header.stag == wqe.rkey &&
                            header.tagged_offset - wqe.remote_address <= wqe.length;
    const bool same_read = wqe.opcode == SendOpcode::read && !header.tagged &&
                           header.queue == rdmap::read_request_queue &&
                           header.sequence == wqe.packets;
    if (same_send || same_write || same_read) return i;
  }
  return std::nullopt;
}

}  // namespace

void Protocol::receive(QueuePair& qp, StreamPart part) {
  while (qp.receives()) {
    Ulpdu ulpdu;
    switch (deframer_.next(part, agreed_.crc, ulpdu)) {
      case Deframer::Found::nothing:
        return;
      case Deframer::Found::ulpdu:
        qp.communication_established();
        handle(qp, ulpdu);
        break;
      case Deframer::Found::bad_crc:  // RFC 5044 8: what follows cannot be found
        return refuse(qp, error::crc);
      case Deframer::Found::bad_ghost:
        TULLE_CHECK(false);
    }
  }
  qp.environment.counters.dropped_packets += part.size() > 0;
}

// Runs the checks of RFC 5041 7.1 for any segment, then those of RFC 5040 7.2 for any message.
void Protocol::handle(QueuePair& qp, const Ulpdu& ulpdu) {
  ddp::Header header;
  if (!ddp::decode(ulpdu.bytes, header)) return refuse(qp, error::stream_catastrophic);
  const std::uint32_t bytes = ulpdu.size();
  if (header.version != ddp::version) {
    return refuse(qp, header.tagged ? error::tagged_ddp_version : error::untagged_ddp_version,
                  &header, bytes);
  }
  if (!header.tagged && header.queue > rdmap::terminate_queue) {
    return refuse(qp, error::untagged_queue, &header, bytes);
  }
  const auto control = rdmap::Control::decoded(header.ulp_control);
  if (control.version != rdmap::version) return refuse(qp, error::rdmap_version, &header, bytes);
  const rdmap::OpcodeInfo* info = rdmap::info(control.opcode);
  const bool fits = info != nullptr && info->tagged == header.tagged &&
                    (header.tagged || info->queue == header.queue);
  if (!fits) return refuse(qp, error::unexpected_opcode, &header, bytes);
  if (header.tagged) {
    handle_tagged(qp, header, data_behind(ulpdu, header.bytes()));
  } else {
    handle_untagged(qp, header, ulpdu);
  }
}

void Protocol::handle_tagged(QueuePair& qp, const ddp::Header& header, Payload data) {
  const std::uint32_t bytes = header.bytes() + data.bytes;
  if (wraps(header.tagged_offset, data.bytes)) {
    return refuse(qp, error::tagged_offset_wraps, &header, bytes);
  }
  if (rdmap::Control::decoded(header.ulp_control).opcode == Opcode::write) {
    handle_write(qp, header, data);
  } else {
    handle_read_response(qp, header, data);
  }
}

// Each segment is handled by itself: nothing says how long the message is.
void Protocol::handle_write(QueuePair& qp, const ddp::Header& header, Payload data) {
  const std::uint32_t bytes = header.bytes() + data.bytes;
  if (!qp.attributes().access.has(Access::remote_write)) {
    return refuse(qp, error::access_rights, &header, bytes);
  }
  const auto& keys = qp.environment.keys;
  const auto access = keys.remote(header.stag, *qp.init.pd, qp.number, header.tagged_offset,
                                  data.bytes, Access::remote_write);
  if (access.verdict != KeyTable::Verdict::ok) {
    const auto why = keys.why_denied(header.stag, *qp.init.pd, qp.number, Access::remote_write);
    return refuse(qp, tagged_error(why), &header, bytes);
  }
  if (access.memory != nullptr && data.data != nullptr &&
      !copy_guarded(access.memory, data.data, data.bytes)) {
    return refuse(qp, tagged_error(KeyTable::Refusal::out_of_bounds), &header, bytes);
  }
}

// Answers come in the order of requests (RFC 5040 5.5). Each must be exactly what was asked for.
void Protocol::handle_read_response(QueuePair& qp, const ddp::Header& header, Payload data) {
  const std::uint32_t bytes = header.bytes() + data.bytes;
  if (reads_.empty()) return refuse(qp, error::unexpected_opcode, &header, bytes);
  OutstandingRead& read = reads_.front();
  const auto index = static_cast<std::uint32_t>(read.request - retired_);
  SendWqe& wqe = qp.send_queue[index];
  if (wqe.status != CompletionStatus::success) return;  // the READ has failed already
  const verbs::Sge* sges = qp.send_queue.sges(wqe);
  const RemoteKey stag(wqe.sge_count > 0 ? sges[0].lkey.value : 0);
  const std::uint64_t sink = wqe.sge_count > 0 ? sges[0].address : 0;
  if (header.stag != stag) return refuse(qp, error::tagged_invalid_stag, &header, bytes);
  const bool too_long = data.bytes > wqe.length - read.received;
  if (header.tagged_offset != sink + read.received || too_long ||
      header.last != (read.received + data.bytes == wqe.length)) {
    return refuse(qp, error::tagged_bounds, &header, bytes);
  }
  if (!scatter(qp, wqe, read.received, data)) {
    return fail_request(qp, wqe, CompletionStatus::local_protection_error);
  }
  read.received += data.bytes;
  if (!header.last) return;
  reads_.pop();
  wqe.executed = true;
  retire_done(qp);
}

// RFC 5041 4.3: the messages of a queue are numbered. Their segments come in order here, since the
// stream is in order.
void Protocol::handle_untagged(QueuePair& qp, const ddp::Header& header, const Ulpdu& ulpdu) {
  const std::uint32_t bytes = ulpdu.size();
  const std::array<std::uint32_t, 3> expected = {expected_send_, expected_read_, 1};
  if (header.sequence != expected[header.queue]) {
    return refuse(qp, error::untagged_sequence, &header, bytes);
  }
  const Payload data = data_behind(ulpdu, header.bytes());
  if (header.queue == rdmap::send_queue) return handle_send(qp, header, data);
  if (header.message_offset != 0) return refuse(qp, error::untagged_offset, &header, bytes);
  // The other queues have short messages of one segment, whose content is never a ghost.
  const auto content = ulpdu.bytes.subspan(header.bytes());
  if (header.queue == rdmap::terminate_queue) return handle_terminate(qp, content);
  if (!header.last || content.size() != rdmap::read_request_bytes) {
    return refuse(qp, error::untagged_too_long, &header, bytes);
  }
  handle_read_request(qp, header, content);
}

void Protocol::handle_send(QueuePair& qp, const ddp::Header& header, Payload data) {
  const std::uint32_t bytes = header.bytes() + data.bytes;
  const auto opcode = rdmap::Control::decoded(header.ulp_control).opcode;
  const std::uint32_t so_far = inbound_.in_progress ? inbound_.received : 0;
  if (header.message_offset != so_far) return refuse(qp, error::untagged_offset, &header, bytes);
  if (inbound_.in_progress && inbound_.opcode != opcode) {
    return refuse(qp, error::unexpected_opcode, &header, bytes);
  }
  if (!inbound_.in_progress) {
    if (!qp.take_receive(inbound_.receive)) {
      return refuse(qp, error::untagged_no_buffer, &header, bytes);
    }
    inbound_.in_progress = inbound_.has_receive = true;
    inbound_.opcode = opcode;
    inbound_.received = 0;
  }
  if (std::uint64_t{so_far} + data.bytes > inbound_.receive.length()) {
    return refuse(qp, error::untagged_too_long, &header, bytes);
  }
  if (!scatter(qp, inbound_.receive, so_far, data)) {
    verbs::Completion completion;
    completion.wr_id = inbound_.receive.wr_id;
    completion.opcode = verbs::CompletionOpcode::receive;
    completion.status = CompletionStatus::local_protection_error;
    inbound_.has_receive = false;
    qp.complete_receive(completion);
    return refuse(qp, error::local_catastrophic, &header, bytes);
  }
  inbound_.received = so_far + data.bytes;
  if (header.last) complete_send(qp, header);
}

void Protocol::complete_send(QueuePair& qp, const ddp::Header& header) {
  const rdmap::OpcodeInfo& info = *rdmap::info(inbound_.opcode);
  const RemoteKey key(header.ulp_word);
  if (info.invalidate && !qp.environment.keys.invalidate(key, *qp.init.pd, qp.number)) {
    return refuse(qp, error::cannot_invalidate, &header, header.bytes());
  }
  ++expected_send_;
  inbound_.in_progress = inbound_.has_receive = false;
  verbs::Completion completion;
  completion.wr_id = inbound_.receive.wr_id;
  completion.opcode = verbs::CompletionOpcode::receive;
  completion.byte_length = inbound_.received;
  completion.has_invalidate = info.invalidate;
  completion.invalidated_rkey = info.invalidate ? key : RemoteKey{};
  completion.solicited = info.solicited;
  qp.complete_receive(completion);
}

// The buffers of this queue are the READs that this end has agreed to answer at one time (IRD).
// Beyond them there is no buffer (RFC 5040 6.5 leaves the error to the rules of the queue).
void Protocol::handle_read_request(QueuePair& qp, const ddp::Header& header,
                                   std::span<const std::byte> data) {
  const auto read = rdmap::decode_read_request(data.first<rdmap::read_request_bytes>());
  const auto bytes = static_cast<std::uint32_t>(header.bytes() + data.size());
  if (answers_.full()) return refuse(qp, error::untagged_no_buffer, &header, bytes);
  const auto& keys = qp.environment.keys;
  if (!qp.attributes().access.has(Access::remote_read)) {
    return refuse(qp, error::access_rights, &header, bytes, &read);
  }
  if (wraps(read.source_offset, read.bytes)) {
    return refuse(qp, error::offset_wraps, &header, bytes, &read);
  }
  const auto access = keys.remote(read.source_stag, *qp.init.pd, qp.number, read.source_offset,
                                  read.bytes, Access::remote_read);
  if (access.verdict != KeyTable::Verdict::ok) {
    const auto why = keys.why_denied(read.source_stag, *qp.init.pd, qp.number, Access::remote_read);
    return refuse(qp, source_error(why), &header, bytes, &read);
  }
  ++expected_read_;
  answers_.push({read, 0});
}

// RFC 5040 5.4: nothing comes behind a TERMINATE.
void Protocol::handle_terminate(QueuePair& qp, std::span<const std::byte> data) {
  std::size_t used = 0;
  terminated_ = rdmap::decode_terminate(data, used);
  if (!terminated_) terminated_.emplace();
  ++qp.environment.counters.remote_errors_received;
  blame(qp, *terminated_);
  qp.raise(EventType::qp_fatal);
  qp.enter_error();
}

void Protocol::blame(QueuePair& qp, const rdmap::Terminate& terminate) {
  const std::uint32_t begun = cursor_ + (sending_ == Sending::request ? 1 : 0);
  const auto index = find_blamed(qp.send_queue, begun, terminate);
  if (!index) return;
  const rdmap::TerminateCode code = terminate.code;
  auto status = CompletionStatus::remote_invalid_request_error;
  if (is_protection_error(code)) status = CompletionStatus::remote_access_error;
  if (code == error::local_catastrophic) status = CompletionStatus::remote_operation_error;
  retire_through(qp, *index, status);
}

// RFC 5040 7.1 and 4.8 say for each layer of errors which headers the TERMINATE carries. Here it
// carries all headers that are known.
void Protocol::refuse(QueuePair& qp, rdmap::TerminateCode code, const ddp::Header* header,
                      std::uint32_t segment_bytes, const rdmap::ReadRequest* read) {
  rdmap::Terminate terminate;
  terminate.code = code;
  if (header != nullptr) {
    terminate.segment_bytes = static_cast<std::uint16_t>(segment_bytes);
    terminate.ddp_header = *header;
  }
  if (read != nullptr) terminate.read_request = *read;
  terminate_bytes_ = static_cast<std::uint32_t>(rdmap::encode(terminate, terminate_));
  terminate_due_ = true;
  terminated_ = terminate;
  ++qp.environment.counters.remote_errors_sent;
  // A local error is reported by the completion of the request or receive request.
  if (code != error::local_catastrophic) {
    qp.raise(is_protection_error(code) ? EventType::qp_access_error : EventType::qp_request_error);
  }
  qp.enter_error();
}

void Protocol::connection_lost(QueuePair& qp) {
  if (qp.state() == QpState::error) return;
  terminated_.emplace();
  terminated_->code = error::connection_lost;
  // The oldest request that is not done completes with the time-out's error, as with RC.
  if (cursor_ > 0) retire_through(qp, 0, CompletionStatus::retry_exceeded_error);
  qp.raise(EventType::qp_fatal);
  qp.enter_error();
}

}  // namespace tulle::transport::iwarp
