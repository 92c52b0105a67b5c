// Tag matching: shared receive queues with a matching list, and the tag that a completion carries.

#include "shim/ibverbs/errors.h"
#include "shim/ibverbs/objects.h"

namespace tulle::shim {
namespace {

using verbs::TagOperation;
using verbs::VerbsStatus;

// The limit for a rendezvous request: both headers, and what the sender adds for software that
// handles the request. The device sets no limit, but the C API needs one. Linux's mlx5 has 64
// bytes.
constexpr std::uint32_t rendezvous_header_bytes_max = 64;

bool to_kind(ibv_ops_wr_opcode opcode, TagOperation::Kind& out) {
  switch (opcode) {
    case IBV_WR_TAG_ADD:
      out = TagOperation::Kind::add;
      return true;
    case IBV_WR_TAG_DEL:
      out = TagOperation::Kind::remove;
      return true;
    case IBV_WR_TAG_SYNC:
      out = TagOperation::Kind::synchronize;
      return true;
  }
  return false;
}

// Returns 0 or an errno. The caller holds the device's lock.
int operate(Context& context, verbs::SharedReceiveQueue& srq, ibv_ops_wr& wr) {
  constexpr int known_flags = IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC;
  TagOperation operation;
  if (!to_kind(wr.opcode, operation.kind) || (wr.flags & ~known_flags) != 0) return EINVAL;
  operation.wr_id = wr.wr_id;
  operation.signaled = (wr.flags & IBV_OPS_SIGNALED) != 0;
  operation.has_count = (wr.flags & IBV_OPS_TM_SYNC) != 0;
  operation.unexpected = wr.tm.unexpected_cnt;
  operation.handle = wr.tm.handle;
  if (operation.kind == TagOperation::Kind::add) {
    const auto& add = wr.tm.add;
    if (!to_sges(add.sg_list, add.num_sge, context, operation.request.sges)) return EINVAL;
    operation.request.wr_id = add.recv_wr_id;
    operation.request.tag = add.tag;
    operation.request.mask = add.mask;
  }
  const VerbsStatus status = context.adapter().objects().operate(srq, operation);
  if (status == VerbsStatus::ok && operation.kind == TagOperation::Kind::add) {
    wr.tm.handle = operation.handle;
  }
  return to_errno(status);
}

int post_srq_ops(ibv_srq* ibv, ibv_ops_wr* wr, ibv_ops_wr** bad) {
  if (ibv == nullptr) return report(EINVAL);
  Context& context = Context::of(ibv->context);
  const auto guard = context.lock_for_work();
  verbs::SharedReceiveQueue& srq = *Srq::of(ibv).queue;
  int error = srq.tags != nullptr ? 0 : EINVAL;
  try {
    for (; wr != nullptr && error == 0; wr = wr->next) {
      error = operate(context, srq, *wr);
      if (error != 0) break;
    }
  } catch (const std::bad_alloc&) {
    error = ENOMEM;
  }
  if (error != 0 && bad != nullptr) *bad = wr;
  context.live->transmit();  // delivers events
  return report(error);
}

void read_tag(ibv_cq_ex* ibv, ibv_wc_tm_info* out) {
  const verbs::Completion& completion = Cq::of(ibv).current;
  const bool has_tag = completion.has(verbs::TagFlag::has_tag);
  out->tag = has_tag ? completion.tag : 0;
  out->priv = has_tag ? completion.tag_context : 0;
}

}  // namespace

void serve_tags(Context& context) { context.post_srq_ops = guarded<post_srq_ops>; }

void serve_tags(Cq& cq) { cq.read_tm_info = read_tag; }

void fill_tag_capabilities(Context& context, ibv_tm_caps& out) {
  const device::Limits& limits = context.adapter().configuration().limits;
  out.max_rndv_hdr_size = rendezvous_header_bytes_max;
  out.max_num_tags = limits.tags;
  out.flags = IBV_TM_CAP_RC;
  out.max_ops = limits.tag_operations;
  out.max_sge = limits.tag_sges;
}

ibv_srq* create_tag_srq(ibv_context* ibv, ibv_srq_init_attr_ex& attributes) {
  constexpr std::uint32_t needed =
      IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
  if ((attributes.comp_mask & ~needed) != 0) return fail(EOPNOTSUPP);
  if (attributes.comp_mask != needed || attributes.pd == nullptr || attributes.cq == nullptr ||
      attributes.pd->context != ibv || attributes.cq->context != ibv) {
    return fail(EINVAL);
  }
  Context& context = Context::of(ibv);
  if (attributes.tm_cap.max_ops > context.adapter().configuration().limits.tag_operations) {
    return fail(EINVAL);
  }
  auto srq = make_object<Srq>(Pd::of(attributes.pd).allocator);
  if (srq == nullptr) return fail(ENOMEM);
  const auto guard = context.lock();
  VerbsStatus status{};
  srq->queue = context.adapter().objects().create_tag_srq(
      *Pd::of(attributes.pd).pd, *Cq::of(attributes.cq).queue, attributes.attr.max_wr,
      attributes.attr.max_sge, attributes.tm_cap.max_num_tags, srq.get(), status);
  if (srq->queue == nullptr) return fail(to_errno(status));
  const OnThrow undo([&] { (void)to_errno(context.adapter().objects().destroy(srq->queue)); });
  (void)publish(*srq, context, *attributes.pd, attributes.srq_context, attributes.attr);
  return srq.release();
}

}  // namespace tulle::shim
