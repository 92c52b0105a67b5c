// Shared receive queues.

#include "os/cancellation.h"
#include "shim/ibverbs/errors.h"
#include "shim/ibverbs/known.h"
#include "shim/ibverbs/objects.h"

namespace tulle::shim {
namespace {

using verbs::VerbsStatus;

// The C API's inline function sends basic queues to ibv_create_srq. Only other requests come here.
ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attributes) {
  if (context == nullptr || attributes == nullptr) return fail(EINVAL);
  if ((attributes->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0 &&
      attributes->srq_type == IBV_SRQT_XRC) {
    return create_xrc_srq(context, *attributes);
  }
  if ((attributes->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0 &&
      attributes->srq_type == IBV_SRQT_TM) {
    return create_tag_srq(context, *attributes);
  }
  constexpr std::uint32_t offered = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
  const bool has_type = (attributes->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0;
  if ((attributes->comp_mask & ~offered) != 0 ||
      (has_type && attributes->srq_type != IBV_SRQT_BASIC)) {
    return fail(EOPNOTSUPP);
  }
  if ((attributes->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0) return fail(EINVAL);
  // The extended struct begins with the fields of the plain one.
  return ibv_create_srq(attributes->pd, reinterpret_cast<ibv_srq_init_attr*>(attributes));
}

}  // namespace

ibv_srq* publish(Srq& srq, Context& context, ibv_pd& pd, void* srq_context,
                 ibv_srq_attr& attributes) {
  make_room_for_events(context);
  context.srqs.insert(&srq);
  attributes.max_wr = srq.queue->queue.capacity();
  attributes.max_sge = srq.queue->queue.sges_per_request();
  srq.context = &context.context;
  srq.srq_context = srq_context;
  srq.pd = &pd;
  srq.handle = context.next_handle++;
  pthread_mutex_init(&srq.mutex, nullptr);
  pthread_cond_init(&srq.cond, nullptr);
  return &srq;
}

void serve_receives(Context& context) { context.create_srq_ex = guarded<create_srq_ex>; }

extern "C" {

ibv_srq* ibv_create_srq(ibv_pd* ibv_pd, ibv_srq_init_attr* attributes) try {
  const NoCancellation no_cancellation;
  if (!is_known(ibv_pd) || attributes == nullptr) return fail(EINVAL);
  Pd& pd = Pd::of(ibv_pd);
  Context& context = Context::of(pd.context);
  auto srq = make_object<Srq>(pd.allocator);
  if (srq == nullptr) return fail(ENOMEM);
  const auto guard = context.lock();
  VerbsStatus status{};
  srq->queue = context.adapter().objects().create_srq(*pd.pd, attributes->attr.max_wr,
                                                      attributes->attr.max_sge, srq.get(), status);
  if (srq->queue == nullptr) return fail(to_errno(status));
  const OnThrow undo([&] { (void)to_errno(context.adapter().objects().destroy(srq->queue)); });
  (void)publish(*srq, context, pd, attributes->srq_context, attributes->attr);
  return srq.release();
} catch (const std::bad_alloc&) {
  return fail(ENOMEM);
}

int ibv_modify_srq(ibv_srq* ibv, ibv_srq_attr* attributes, int mask) try {
  const NoCancellation no_cancellation;
  constexpr int known = IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT;
  if (!is_known(ibv) || attributes == nullptr || (mask & ~known) != 0) return report(EINVAL);
  Context& context = Context::of(ibv->context);
  const auto guard = context.lock();
  const VerbsStatus status = context.adapter().objects().modify(
      *Srq::of(ibv).queue, (mask & IBV_SRQ_MAX_WR) != 0 ? &attributes->max_wr : nullptr,
      (mask & IBV_SRQ_LIMIT) != 0 ? &attributes->srq_limit : nullptr);
  return report(to_errno(status));
} catch (const std::bad_alloc&) {
  return report(ENOMEM);
}

int ibv_query_srq(ibv_srq* ibv, ibv_srq_attr* out) {
  const NoCancellation no_cancellation;
  if (!is_known(ibv) || out == nullptr) return report(EINVAL);
  Context& context = Context::of(ibv->context);
  const auto guard = context.lock();
  const verbs::SharedReceiveQueue& srq = *Srq::of(ibv).queue;
  out->max_wr = srq.queue.capacity();
  out->max_sge = srq.queue.sges_per_request();
  out->srq_limit = srq.limit;
  return 0;
}

int ibv_destroy_srq(ibv_srq* ibv) {
  const NoCancellation no_cancellation;
  if (!is_known(ibv)) return report(EINVAL);
  Srq& srq = Srq::of(ibv);
  Context& context = Context::of(ibv->context);
  std::uint32_t events = 0;
  {
    const auto guard = context.lock();
    const VerbsStatus status = context.adapter().objects().destroy(srq.queue);
    if (status != VerbsStatus::ok) return report(to_errno(status));
    context.srqs.erase(&srq);
    if (srq.xrcd != nullptr) --srq.xrcd->users;
    events = srq.asynchronous_events;
  }
  events -= static_cast<std::uint32_t>(context.events->forget(&srq));
  wait_for_acknowledgements(srq.mutex, srq.cond, srq.events_completed, events);
  pthread_cond_destroy(&srq.cond);
  pthread_mutex_destroy(&srq.mutex);
  free_object(&srq);
  return 0;
}

}  // extern "C"

}  // namespace tulle::shim
