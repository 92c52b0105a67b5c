// The sending half of the engine: requests, answers to READs and a TERMINATE become FPDUs.

#include <algorithm>
#include <limits>

#include "rdma/optional/iwarp/protocol.h"
#include "rdma/transport/local_memory.h"
#include "rdma/transport/queue_pair.h"

namespace tulle::transport::iwarp {

using verbs::CompletionStatus;
using verbs::QpState;
using verbs::SendFlag;
using verbs::SendOpcode;
using wire::rdmap::Opcode;

namespace ddp = wire::ddp;
namespace mpa = wire::mpa;
namespace rdmap = wire::rdmap;

namespace {

// RFC 5040 4.2. An operation without its own message is refused when it is posted.
Opcode opcode_of(const SendWqe& wqe) {
  const bool solicited = wqe.flags.has(SendFlag::solicited);
  switch (wqe.opcode) {
    case SendOpcode::write:
      return Opcode::write;
    case SendOpcode::read:
      return Opcode::read_request;
    case SendOpcode::send_with_invalidate:
      return solicited ? Opcode::send_with_solicited_event_and_invalidate
                       : Opcode::send_with_invalidate;
    default:
      return solicited ? Opcode::send_with_solicited_event : Opcode::send;
  }
}

ddp::Header header_of(Opcode opcode, bool last) {
  ddp::Header header;
  header.tagged = rdmap::info(opcode)->tagged;
  header.last = last;
  header.ulp_control = rdmap::Control{.opcode = opcode}.encoded();
  if (!header.tagged) header.queue = rdmap::info(opcode)->queue;
  return header;
}

}  // namespace

void Protocol::start(const QueuePair& qp, const Agreed& agreed) {
  agreed_ = agreed;
  answers_ = Ring<Answer>(qp.attributes().max_dest_rd_atomic);
}

void Protocol::start_sending(const QueuePair& qp) {
  reads_ = Ring<OutstandingRead>(qp.attributes().max_rd_atomic);
}

void Protocol::reset_sending() {
  retired_ += cursor_ + 1;  // numbers that records still name are never used again
  cursor_ = cursor_offset_ = 0;
  failing_ = false;
  sending_ = Sending::nothing;
  reads_.clear();
  answers_.clear();
}

// RFC 5044 4.5: returns the number of data bytes that fit into a segment behind its header.
std::uint32_t Protocol::room(bool tagged) const {
  return mpa::ulpdu_bytes_max(agreed_.segment_bytes) -
         (tagged ? ddp::tagged_header_bytes : ddp::untagged_header_bytes);
}

bool Protocol::has_more(const QueuePair& qp) const {
  if (terminate_sent_) return false;
  if (terminate_due_ || !answers_.empty()) return true;
  const QpState state = qp.state();
  if (state != QpState::rts && !(state == QpState::sqd && sending_ == Sending::request))
    return false;
  return !failing_ && cursor_ < qp.send_queue.size() && !must_wait(qp, qp.send_queue[cursor_]);
}

// A message is sent completely before the next one begins. Requests and answers take turns.
bool Protocol::next_record(QueuePair& qp, Record& out) {
  if (terminate_sent_) return false;
  if (terminate_due_) return make_terminate_record(out);
  if (sending_ == Sending::answer) return make_answer_record(qp, out);
  if (sending_ == Sending::request) return make_request_record(qp, out);
  if (!answers_.empty() && !answered_last_) return make_answer_record(qp, out);
  if (begin_request(qp)) return make_request_record(qp, out);
  if (terminate_due_) return make_terminate_record(out);
  return !answers_.empty() && make_answer_record(qp, out);
}

// Returns true if a request must wait, for earlier READs (RFC 5040 5.5 and the fence of verbs) or
// because no more READs may be outstanding (ORD, RFC 5040 6.5).
bool Protocol::must_wait(const QueuePair& qp, const SendWqe& wqe) const {
  if (sending_ == Sending::request) return false;
  if (wqe.flags.has(SendFlag::fence) && !reads_.empty()) return true;
  // Earlier requests may still be sent from the memory of the key, and READs placed in it.
  if (wqe.opcode == SendOpcode::local_invalidate) return cursor_ > 0;
  return wqe.opcode == SendOpcode::read && qp.attributes().max_rd_atomic > 0 && reads_.full();
}

// Moves on to a request that can be sent. Returns false if there is none.
bool Protocol::begin_request(QueuePair& qp) {
  while (qp.state() == QpState::rts && !failing_ && cursor_ < qp.send_queue.size()) {
    SendWqe& wqe = qp.send_queue[cursor_];
    if (must_wait(qp, wqe)) return false;
    wqe.started = true;
    if (!wqe.is_local()) {
      if (wqe.opcode == SendOpcode::read && reads_.capacity() == 0) {
        fail_request(qp, wqe, CompletionStatus::local_qp_operation_error);
        return false;
      }
      cursor_offset_ = 0;
      return true;
    }
    execute_local(qp, wqe);
  }
  return false;
}

void Protocol::execute_local(QueuePair& qp, SendWqe& wqe) {
  const CompletionStatus status = transport::execute_local(qp, wqe);
  if (status != CompletionStatus::success) return fail_request(qp, wqe, status);
  wqe.executed = true;
  ++cursor_;
  retire_done(qp);
}

bool Protocol::make_request_record(QueuePair& qp, Record& out) {
  SendWqe& wqe = qp.send_queue[cursor_];
  MadeRecord made;
  made.source = Source::request;
  made.address = retired_ + cursor_;
  made.offset = cursor_offset_;
  if (wqe.opcode == SendOpcode::read) {
    make_read_request(qp, wqe, made);
    reads_.push({made.address, 0});
  } else {
    const bool tagged = wqe.opcode == SendOpcode::write;
    made.data_bytes = std::min(wqe.length - cursor_offset_, room(tagged));
    OutgoingPacket data;
    if (!gather(qp, wqe, cursor_offset_, made.data_bytes, data)) {
      sending_ = Sending::nothing;
      fail_request(qp, wqe, CompletionStatus::local_protection_error);
      return terminate_due_ && make_terminate_record(out);
    }
    if (cursor_offset_ == 0 && !tagged) wqe.packets = next_send_++;  // its MSN
    made.ends_request = cursor_offset_ + made.data_bytes == wqe.length;
    ddp::Header header = header_of(opcode_of(wqe), made.ends_request);
    header.stag = tagged ? wqe.rkey : RemoteKey{};
    header.tagged_offset = tagged ? wqe.remote_address + cursor_offset_ : 0;
    header.sequence = tagged ? 0 : wqe.packets;
    header.message_offset = tagged ? 0 : cursor_offset_;
    if (rdmap::info(opcode_of(wqe))->invalidate) header.ulp_word = wqe.invalidate_rkey.value;
    made.put_head(header);
  }
  cursor_offset_ += made.data_bytes;
  sending_ = Sending::request;
  if (made.ends_request) {
    ++cursor_;
    sending_ = Sending::nothing;
    answered_last_ = false;
  }
  out = records_.push(made);
  return true;
}

// The request names its first SGE as the sink. The peer returns the sink unchanged (RFC 5040 4.4,
// 4.5), and the answer is placed by the READ that is outstanding.
void Protocol::make_read_request(const QueuePair& qp, SendWqe& wqe, MadeRecord& made) {
  ddp::Header header = header_of(Opcode::read_request, true);
  header.sequence = wqe.packets = next_read_++;
  rdmap::ReadRequest read;
  if (wqe.sge_count > 0) {
    const verbs::Sge& first = qp.send_queue.sges(wqe)[0];
    read.sink_stag = verbs::remote_key(first.lkey);
    read.sink_offset = first.address;
  }
  read.bytes = wqe.length;
  read.source_stag = wqe.rkey;
  read.source_offset = wqe.remote_address;
  made.ends_request = true;
  made.put_head(header, &read);
}

bool Protocol::make_answer_record(QueuePair& qp, Record& out) {
  Answer& answer = answers_.front();
  const rdmap::ReadRequest& read = answer.request;
  MadeRecord made;
  made.source = Source::answer;
  made.data_bytes = std::min(read.bytes - answer.sent, room(true));
  const std::uint64_t address = read.source_offset + answer.sent;
  const auto& keys = qp.environment.keys;
  const auto access = keys.remote(read.source_stag, *qp.init.pd, qp.number, address,
                                  made.data_bytes, verbs::Access::remote_read);
  if (access.verdict != verbs::KeyTable::Verdict::ok) {
    const rdmap::ReadRequest failed = read;
    refuse(qp, rdmap::error::invalid_stag, nullptr, 0, &failed);
    return make_terminate_record(out);
  }
  // A record may have to be sent again after its key has been taken away: the peer has received it
  // then, but its acknowledgement was lost. So the record names the region instead of the key.
  if (made.data_bytes > 0) {
    const auto place = keys.place_of(read.source_stag, address);
    made.key = place.key;
    made.address = place.address;
  }
  const bool last = answer.sent + made.data_bytes == read.bytes;
  ddp::Header header = header_of(Opcode::read_response, last);
  header.stag = read.sink_stag;
  header.tagged_offset = read.sink_offset + answer.sent;
  made.put_head(header);
  answer.sent += made.data_bytes;
  sending_ = last ? Sending::nothing : Sending::answer;
  if (last) {
    answers_.pop();
    answered_last_ = true;
  }
  out = records_.push(made);
  return true;
}

bool Protocol::make_terminate_record(Record& out) {
  terminate_due_ = false;
  terminate_sent_ = true;
  MadeRecord made;
  made.source = Source::terminate;
  made.data_bytes = terminate_bytes_;
  ddp::Header header = header_of(Opcode::terminate, true);
  header.sequence = 1;
  made.put_head(header);
  out = records_.push(made);
  return true;
}

// Fills in the record's data, as pieces from the second on. Returns false if the memory is gone.
bool Protocol::resolve(const QueuePair& qp, const MadeRecord& made, FilledRecord& out) const {
  out.piece_count = 1;
  out.ghost_bytes = 0;
  if (made.data_bytes == 0) return true;
  if (made.source == Source::terminate) {
    out.pieces[out.piece_count++] = std::span(terminate_).first(made.data_bytes);
    return true;
  }
  if (made.source == Source::answer) {
    const auto access =
        qp.environment.keys.local(made.key, *qp.init.pd, made.address, made.data_bytes, false);
    if (access.verdict != verbs::KeyTable::Verdict::ok) return false;
    if (access.memory == nullptr) {
      out.ghost_bytes = made.data_bytes;
    } else {
      out.pieces[out.piece_count++] = {access.memory, made.data_bytes};
    }
    return true;
  }
  if (made.address < retired_ || made.address - retired_ >= qp.send_queue.size()) return false;
  const SendWqe& wqe = qp.send_queue[static_cast<std::uint32_t>(made.address - retired_)];
  OutgoingPacket data;
  if (!gather(qp, wqe, made.offset, made.data_bytes, data)) return false;
  std::uint32_t there = 0;
  for (std::uint8_t i = 0; i < data.piece_count; ++i) {
    out.pieces[out.piece_count++] = data.pieces[i];
    there += static_cast<std::uint32_t>(data.pieces[i].size());
  }
  if (there == 0) out.ghost_bytes = made.data_bytes;
  return there == 0 || there == made.data_bytes;
}

bool Protocol::fill(const QueuePair& qp, std::uint64_t number, FilledRecord& out) const {
  const MadeRecord& made = records_[number];
  out.pieces[0] = std::span(made.head).first(made.head_bytes);
  if (!resolve(qp, made, out)) return false;
  made.end(agreed_.crc, out);
  return true;
}

void Protocol::acknowledged(QueuePair& qp, std::uint64_t bytes) {
  bool done = false;
  while (const auto made = records_.pop_acknowledged(bytes)) {
    if (made->source != Source::request || !made->ends_request) continue;
    if (made->address < retired_) continue;
    const auto index = static_cast<std::uint32_t>(made->address - retired_);
    if (index >= cursor_) continue;  // it was flushed, and another request is in its place
    SendWqe& wqe = qp.send_queue[index];
    if (wqe.opcode == SendOpcode::read) continue;  // a READ is done when its answer has come
    wqe.executed = done = true;
  }
  if (done) retire_done(qp);
}

// Completes requests in the order of posting, including one that has failed.
void Protocol::retire_done(QueuePair& qp) {
  while (!qp.send_queue.empty()) {
    const SendWqe wqe = qp.send_queue.front();
    if (wqe.status != CompletionStatus::success) {
      if (taking_) return;
      failing_ = false;
      retire_through(qp, 0, wqe.status);
      return refuse(qp, rdmap::error::local_catastrophic);
    }
    if (cursor_ == 0 || !wqe.executed) break;
    qp.send_queue.pop();
    ++retired_;
    --cursor_;
    qp.complete(wqe, CompletionStatus::success, wqe.length);
  }
  if (qp.state() == QpState::sqd && drained()) qp.sent_all();
}

void Protocol::end_taking(QueuePair& qp) {
  taking_ = false;
  if (failing_) retire_done(qp);
}

// Completes the requests up to the one that failed. Its error must be reported before the rest is
// flushed (IBTA 10.3.1.7).
void Protocol::retire_through(QueuePair& qp, std::uint32_t index, CompletionStatus status) {
  for (std::uint32_t i = 0; i <= index && !qp.send_queue.empty(); ++i) {
    const SendWqe wqe = qp.send_queue.front();
    qp.send_queue.pop();
    ++retired_;
    const auto otherwise = wqe.executed ? CompletionStatus::success : CompletionStatus::flushed;
    qp.complete(wqe, i == index ? status : otherwise);
  }
}

// A request has failed through a fault of this side. No more requests begin. When all requests
// before it are done, the peer is told that the fault was not the peer's.
void Protocol::fail_request(QueuePair& qp, SendWqe& wqe, CompletionStatus status) {
  failing_ = true;
  wqe.status = status;
  retire_done(qp);
}

}  // namespace tulle::transport::iwarp
