#include "rdma/transport/tag_matching.h"

#include <algorithm>
#include <cstring>

#include "rdma/transport/queue_pair.h"
#include "rdma/wire/tag_matching.h"

namespace tulle::transport {

using verbs::CompletionOpcode;
using verbs::CompletionStatus;
using verbs::QpState;
using verbs::SendFlag;
using verbs::SendOpcode;
using verbs::TagFlag;

namespace {

bool has_ended(const QueuePair& qp) {
  return qp.state() == QpState::error || qp.state() == QpState::reset;
}

}  // namespace

SendQueue TagMatching::send_queue_for(const QueuePairInit& init) {
  return {init.send_work_requests + own_sends_max,
          std::max(init.send_sges, verbs::TagList::sges_per_entry),
          std::max(init.inline_bytes, static_cast<std::uint32_t>(sizeof(wire::TagHeader)))};
}

bool TagMatching::is_full_for_application(const QueuePair& qp) const {
  return qp.send_queue.size() - own_sends_ >= qp.init.send_work_requests;
}

// A message has no tag if its header is incomplete, or if its operation is not one that is matched.
bool TagMatching::take(QueuePair& qp, Payload payload, verbs::Receive& out, Tagging& what) {
  what = Tagging::no_tag;
  wire::TagHeader header;
  if (payload.data != nullptr && payload.bytes >= sizeof(header)) {
    std::span<const std::byte> in(payload.data, payload.bytes);
    header = wire::take<wire::TagHeader>(in);
    const auto operation = static_cast<wire::TagOperation>(header.operation);
    if (operation == wire::TagOperation::eager) what = Tagging::eager;
    if (operation == wire::TagOperation::rendezvous &&
        in.size() >= sizeof(wire::RendezvousHeader)) {
      const auto where = wire::take<wire::RendezvousHeader>(in);
      remote_address_ = where.virtual_address;
      rkey_ = RemoteKey(where.rkey);
      length_ = where.length;
      what = Tagging::rendezvous;
    }
  }
  if (what == Tagging::no_tag) return qp.take_receive(out);
  tag_ = header.tag;
  context_ = header.context;
  verbs::TagList& tags = *qp.init.srq->tags;
  if (tags.match(tag_, out)) return true;
  what = Tagging::unexpected;
  if (!qp.take_receive(out)) return false;
  tags.count_unexpected();
  return true;
}

std::uint64_t TagMatching::room(Tagging what, const verbs::Receive& receive) const {
  if (what == Tagging::eager) return sizeof(wire::TagHeader) + receive.length();
  if (what != Tagging::rendezvous) return receive.length();
  // The length of the data must fit; the length of the message does not matter.
  const bool fits = length_ <= std::min(receive.length(), message_bytes_max);
  return fits ? ~std::uint64_t{0} : 0;
}

std::uint64_t TagMatching::skip_header(std::uint64_t offset, Payload& payload) {
  constexpr std::uint32_t header_bytes = sizeof(wire::TagHeader);
  if (offset > 0) return offset - header_bytes;
  payload.data += header_bytes;
  payload.bytes -= header_bytes;
  return 0;
}

void TagMatching::received(QueuePair& qp, Tagging what, const verbs::Receive& receive,
                           verbs::Completion completion) {
  if (what == Tagging::no_tag || what == Tagging::unexpected) {
    completion.opcode =
        what == Tagging::no_tag ? CompletionOpcode::no_tag_receive : CompletionOpcode::tag_receive;
    return qp.complete_receive(completion);
  }
  completion.opcode = CompletionOpcode::tag_receive;
  completion.set(TagFlag::matched);
  completion.set(TagFlag::has_tag);
  completion.tag = tag_;
  completion.tag_context = context_;
  if (what == Tagging::eager) {
    completion.set(TagFlag::data_valid);
    completion.byte_length -= static_cast<std::uint32_t>(sizeof(wire::TagHeader));
    return qp.complete_tagged(completion);
  }
  completion.byte_length = 0;
  qp.complete_tagged(completion);
  if (!has_ended(qp)) start_rendezvous(qp, receive);
}

// --- rendezvous ---

void TagMatching::start_rendezvous(QueuePair& qp, const verbs::Receive& receive) {
  Rendezvous next;
  next.wr_id = receive.wr_id;
  next.tag = tag_;
  next.context = context_;
  next.remote_address = remote_address_;
  next.rkey = rkey_;
  next.length = length_;
  std::uint32_t left = length_;
  for (std::uint32_t i = 0; i < receive.sge_count && left > 0; ++i) {
    verbs::Sge& sge = next.sges[next.sge_count++] = receive.sges[i];
    sge.length = std::min(sge.length, left);
    left -= sge.length;
  }
  rendezvous_.push(next);
  post_reads(qp);
}

void TagMatching::post_reads(QueuePair& qp) {
  while (own_sends_ < own_sends_max && reads_posted_ < rendezvous_.size()) {
    const Rendezvous& next = rendezvous_[reads_posted_];
    verbs::SendRequest read;
    read.opcode = SendOpcode::read;
    read.flags = SendFlag::of_device;
    read.sges = {next.sges.data(), next.sge_count};
    read.remote_address = next.remote_address;
    read.rkey = next.rkey;
    TULLE_CHECK(qp.send_queue.post(read) == verbs::VerbsStatus::ok);
    ++reads_posted_;
    ++own_sends_;
  }
}

// Tells the sender that its data was read. The answer echoes the tag and the context, by which the
// sender tells its messages apart.
void TagMatching::post_answer(QueuePair& qp, const Rendezvous& rendezvous) {
  wire::TagHeader header;
  header.operation = static_cast<std::uint8_t>(wire::TagOperation::finished);
  header.context = rendezvous.context;
  header.tag = rendezvous.tag;
  const std::span<const std::byte> bytes = std::as_bytes(std::span(&header, 1));
  verbs::SendRequest answer;
  answer.opcode = SendOpcode::send;
  answer.flags = verbs::SendFlags(SendFlag::of_device) | SendFlag::inline_data;
  answer.inline_pieces = {&bytes, 1};
  TULLE_CHECK(qp.send_queue.post(answer) == verbs::VerbsStatus::ok);
  ++own_sends_;
}

void TagMatching::sent(QueuePair& qp, const SendWqe& wqe, CompletionStatus status) {
  --own_sends_;
  const bool succeeded = status == CompletionStatus::success;
  if (wqe.opcode == SendOpcode::read) {
    const Rendezvous done = rendezvous_.front();
    rendezvous_.pop();
    --reads_posted_;
    if (succeeded) post_answer(qp, done);  // takes the place of the READ
    finish(qp, done, status);
  } else if (!succeeded && status != CompletionStatus::flushed) {
    // The device's own request has no completion that could report why the queue pair fails.
    qp.raise(verbs::EventType::qp_fatal);
  }
  if (succeeded && !has_ended(qp)) post_reads(qp);
}

void TagMatching::finish(QueuePair& qp, const Rendezvous& rendezvous, CompletionStatus status) {
  verbs::Completion completion;
  completion.wr_id = rendezvous.wr_id;
  completion.opcode = CompletionOpcode::tag_receive;
  completion.status = status;
  if (status == CompletionStatus::success) {
    completion.set(TagFlag::data_valid);
    completion.byte_length = rendezvous.length;
  }
  qp.complete_receive(completion);
}

void TagMatching::flush(QueuePair& qp) {
  while (!rendezvous_.empty()) {
    const Rendezvous lost = rendezvous_.front();
    rendezvous_.pop();
    finish(qp, lost, CompletionStatus::flushed);
  }
}

}  // namespace tulle::transport
