// Shared receive queues with tag matching, and the operations of applications on their lists.

#include "rdma/device/objects.h"
#include "rdma/transport/completions.h"

namespace tulle::device {

using verbs::CompletionOpcode;
using verbs::TagOperation;
using verbs::VerbsStatus;

namespace {

CompletionOpcode opcode_of(TagOperation::Kind kind) {
  switch (kind) {
    case TagOperation::Kind::add:
      return CompletionOpcode::tag_add;
    case TagOperation::Kind::remove:
      return CompletionOpcode::tag_remove;
    case TagOperation::Kind::synchronize:
      break;
  }
  return CompletionOpcode::tag_synchronize;
}

}  // namespace

verbs::SharedReceiveQueue* Objects::create_tag_srq(verbs::ProtectionDomain& pd,
                                                   verbs::CompletionQueue& cq,
                                                   std::uint32_t work_requests, std::uint32_t sges,
                                                   std::uint32_t tags, void* cookie,
                                                   VerbsStatus& status) {
  if (tags == 0 || tags > limits_.tags) {
    status = VerbsStatus::invalid_argument;
    return nullptr;
  }
  auto list = std::make_unique<verbs::TagList>(tags);
  verbs::SharedReceiveQueue* srq = create_srq(pd, work_requests, sges, cookie, status);
  if (srq == nullptr) return nullptr;
  srq->tags = std::move(list);
  srq->cq = &cq;
  ++cq.users;
  return srq;
}

VerbsStatus Objects::operate(verbs::SharedReceiveQueue& srq, TagOperation& operation) {
  if (srq.tags == nullptr) return VerbsStatus::invalid_argument;
  verbs::TagList& tags = *srq.tags;
  verbs::Completion completion;
  // The count comes first, so that a request which comes with the missing count can be matched.
  if (operation.has_count) tags.synchronize(operation.unexpected);
  if (operation.kind == TagOperation::Kind::add) {
    const VerbsStatus status = tags.add(operation.request, operation.handle);
    if (status != VerbsStatus::ok) return status;
  }
  if (operation.kind == TagOperation::Kind::remove && !tags.remove(operation.handle)) {
    completion.status = verbs::CompletionStatus::tag_error;
  }
  if (!operation.signaled) return VerbsStatus::ok;
  completion.wr_id = operation.wr_id;
  completion.opcode = opcode_of(operation.kind);
  if (!tags.is_synchronized()) completion.set(verbs::TagFlag::behind);
  transport::push(*environment_, *srq.cq, completion);
  return VerbsStatus::ok;
}

}  // namespace tulle::device
