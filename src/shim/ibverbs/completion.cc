// Completion queues.

#include <algorithm>
#include <array>
#include <utility>

#include "os/cancellation.h"
#include "shim/ibverbs/errors.h"
#include "shim/ibverbs/known.h"
#include "shim/ibverbs/objects.h"

namespace tulle::shim {
namespace {

using verbs::CompletionOpcode;
using verbs::CompletionStatus;
using verbs::VerbsStatus;

// Opcodes in the order of verbs::CompletionOpcode.
constexpr std::array<ibv_wc_opcode, 15> opcodes = {
    IBV_WC_SEND,      IBV_WC_RDMA_WRITE,
    IBV_WC_RDMA_READ, IBV_WC_COMP_SWAP,
    IBV_WC_FETCH_ADD, IBV_WC_ATOMIC_WRITE,
    IBV_WC_BIND_MW,   IBV_WC_LOCAL_INV,
    IBV_WC_RECV,      IBV_WC_RECV_RDMA_WITH_IMM,
    IBV_WC_TM_ADD,    IBV_WC_TM_DEL,
    IBV_WC_TM_SYNC,   IBV_WC_TM_RECV,
    IBV_WC_TM_NO_TAG,
};
static_assert(static_cast<std::size_t>(CompletionOpcode::no_tag_receive) + 1 == opcodes.size());

// Statuses in the order of verbs::CompletionStatus.
constexpr std::array<ibv_wc_status, 15> statuses = {
    IBV_WC_SUCCESS,        IBV_WC_LOC_LEN_ERR,       IBV_WC_LOC_QP_OP_ERR,  IBV_WC_LOC_EEC_OP_ERR,
    IBV_WC_LOC_PROT_ERR,   IBV_WC_WR_FLUSH_ERR,      IBV_WC_MW_BIND_ERR,    IBV_WC_BAD_RESP_ERR,
    IBV_WC_LOC_ACCESS_ERR, IBV_WC_REM_INV_REQ_ERR,   IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_OP_ERR,
    IBV_WC_RETRY_EXC_ERR,  IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_TM_ERR,
};
static_assert(static_cast<std::size_t>(CompletionStatus::tag_error) + 1 == statuses.size());

void translate(const verbs::Completion& from, ibv_wc& to) {
  to.wr_id = from.wr_id;
  to.status = to_wc_status(from.status);
  to.opcode = to_wc_opcode(from.opcode);
  to.vendor_err = 0;
  to.byte_len = from.byte_length;
  if (from.has_invalidate) {
    to.invalidated_rkey = from.invalidated_rkey.value;
  } else {
    to.imm_data = from.immediate;
  }
  to.qp_num = from.qp.value;
  to.src_qp = from.source_qp.value;
  to.wc_flags = to_wc_flags(from);
  to.pkey_index = 0;
  const verbs::LocalSource source = to_local_source(from);
  to.slid = source.lid;
  to.sl = to_service_level(from);
  to.dlid_path_bits = source.path_bits;
}

int poll_cq(ibv_cq* ibv, int capacity, ibv_wc* out) {
  if (capacity < 0 || (out == nullptr && capacity > 0)) return -EINVAL;
  Cq& cq = Cq::of(ibv);
  Context& context = Context::of(ibv->context);
  const auto wanted = static_cast<std::uint32_t>(capacity);
  auto guard = context.lock_for_work();
  std::uint32_t done = 0;
  for (bool progressed = false; done < wanted;) {
    const auto room = std::min<std::size_t>(wanted - done, context.polled.size());
    const std::uint32_t count = take(context, *cq.queue, {context.polled.data(), room});
    for (std::uint32_t i = 0; i < count; ++i) translate(context.polled[i], out[done + i]);
    if (context.is_strict) [[unlikely]] {
      for (std::uint32_t i = 0; i < count; ++i) {
        note_polled(context, context.polled[i]);
        blur(context, context.polled[i], out[done + i]);
      }
    }
    done += count;
    if (count > 0) continue;
    if (done > 0 || (progressed && !may_have_come(cq, guard))) break;
    context.live->progress();
    progressed = true;
  }
  if (done > 0) cq.is_being_drained = true;
  return static_cast<int>(done);
}

int request_notification(ibv_cq* ibv, int solicited_only) {
  if (ibv == nullptr) return report(EINVAL);
  Context& context = Context::of(ibv->context);
  const auto guard = context.lock();
  context.adapter().objects().request_notification(*Cq::of(ibv).queue, solicited_only != 0);
  context.live->hand_over();
  if (ibv->channel != nullptr) context.live->expect_sleeper(*Channel::of(ibv->channel).events);
  return 0;
}

Cq* create(Context& context, std::uint32_t entries, void* cq_context, ibv_comp_channel* channel,
           std::uint32_t vector, const std::shared_ptr<Allocator>& allocator = nullptr) {
  const bool known_vector = vector < static_cast<std::uint32_t>(context.context.num_comp_vectors);
  if (!known_vector || (channel != nullptr && channel->context != &context.context)) {
    return fail(EINVAL);
  }
  auto cq = make_object<Cq>(allocator);
  if (cq == nullptr) return fail(ENOMEM);
  refuse_all(*cq);
  serve_polling(*cq);
  const auto guard = context.lock();
  VerbsStatus status{};
  cq->queue = context.adapter().objects().create_cq(entries, cq.get(), status);
  if (cq->queue == nullptr) return fail(to_errno(status));
  const OnThrow undo([&] { (void)to_errno(context.adapter().objects().destroy(cq->queue)); });
  if (channel != nullptr) Channel::of(channel).events->reserve(channel->refcnt + 1u);
  make_room_for_events(context);
  context.cqs.insert(cq.get());
  cq->context = &context.context;
  cq->channel = channel;
  cq->cq_context = cq_context;
  cq->handle = context.next_handle++;
  cq->cqe = static_cast<int>(cq->queue->capacity());
  pthread_mutex_init(&cq->mutex, nullptr);
  pthread_cond_init(&cq->cond, nullptr);
  if (channel != nullptr) ++channel->refcnt;
  return cq.release();
}

constexpr std::uint64_t times =
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
// Fields that completions do not carry (VLANs, flow tags) are not offered.
constexpr std::uint64_t offered_fields =
    IBV_WC_STANDARD_FLAGS | times | std::uint64_t{IBV_WC_EX_WITH_TM_INFO};
constexpr std::uint32_t known_flags =
    IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;

ibv_cq_ex* create_cq_ex(ibv_context* ibv, ibv_cq_init_attr_ex* attributes) {
  if (ibv == nullptr || attributes == nullptr) return fail(EINVAL);
  if ((attributes->wc_flags & ~offered_fields) != 0) return fail(EOPNOTSUPP);
  constexpr std::uint32_t known_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
  if ((attributes->comp_mask & ~known_mask) != 0) return fail(EOPNOTSUPP);
  Pd* domain = nullptr;
  if ((attributes->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0) {
    if (attributes->parent_domain == nullptr) return fail(EINVAL);
    domain = &Pd::of(attributes->parent_domain);
    if (domain->base == nullptr || domain->context != ibv) return fail(EINVAL);
  }
  const bool has_flags = (attributes->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0;
  const std::uint32_t flags = has_flags ? attributes->flags : 0;
  if ((flags & ~known_flags) != 0) return fail(EINVAL);
  // An overrun always ends the queue. Losing a completion silently is not offered.
  if ((flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) != 0) return fail(EOPNOTSUPP);
  Cq* cq = create(Context::of(ibv), attributes->cqe, attributes->cq_context, attributes->channel,
                  attributes->comp_vector, domain != nullptr ? domain->allocator : nullptr);
  if (cq == nullptr) return nullptr;
  const OnThrow undo([&] { (void)ibv_destroy_cq(cq->as_cq()); });
  if ((attributes->wc_flags & times) != 0) serve_times(*cq);
  if ((attributes->wc_flags & IBV_WC_EX_WITH_TM_INFO) != 0) serve_tags(*cq);
  cq->single_threaded = (flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED) != 0;
  return cq;
}

int modify_cq(ibv_cq* ibv, ibv_modify_cq_attr* attributes) {
  if (ibv == nullptr || attributes == nullptr) return report(EINVAL);
  if ((attributes->attr_mask & ~static_cast<std::uint32_t>(IBV_CQ_ATTR_MODERATE)) != 0) {
    return report(EINVAL);
  }
  if ((attributes->attr_mask & IBV_CQ_ATTR_MODERATE) == 0) return 0;
  Context& context = Context::of(ibv->context);
  const auto guard = context.lock();
  Cq::of(ibv).queue->moderate(attributes->moderate.cq_count,
                              Time::microseconds(attributes->moderate.cq_period));
  context.live->transmit();  // delivers an event that waits no longer
  return 0;
}

}  // namespace

void serve_completions(Context& context) {
  context.modify_cq = guarded<modify_cq>;
  context.create_cq_ex = guarded<create_cq_ex>;
  context.context.ops.poll_cq = poll_cq;
  context.context.ops.req_notify_cq = guarded<request_notification>;
}

bool may_have_come(Cq& cq, std::unique_lock<std::mutex>& held) {
  live::Device& device = *Context::of(cq.context).live;
  ibv_comp_channel* const channel = cq.channel;
  const bool may_sleep_next = !std::exchange(cq.is_being_drained, false);
  if (may_sleep_next && channel != nullptr &&
      device.look_before_sleep(held, *Channel::of(channel).events, *cq.queue)) {
    return true;
  }
  return device.let_others_run(held);
}

ibv_wc_opcode to_wc_opcode(CompletionOpcode opcode) {
  return opcodes[static_cast<std::size_t>(opcode)];
}

ibv_wc_status to_wc_status(CompletionStatus status) {
  return statuses[static_cast<std::size_t>(status)];
}

unsigned to_wc_flags(const verbs::Completion& completion) {
  unsigned flags = 0;
  if (completion.has_grh) flags |= IBV_WC_GRH;
  if (completion.has_immediate) flags |= IBV_WC_WITH_IMM;
  if (completion.has_invalidate) flags |= IBV_WC_WITH_INV;
  if (completion.tag_flags == 0) [[likely]]
    return flags;
  if (completion.has(verbs::TagFlag::matched)) flags |= IBV_WC_TM_MATCH;
  if (completion.has(verbs::TagFlag::data_valid)) flags |= IBV_WC_TM_DATA_VALID;
  if (completion.has(verbs::TagFlag::behind)) flags |= IBV_WC_TM_SYNC_REQ;
  return flags;
}

std::uint8_t to_service_level(const verbs::Completion& completion) {
  constexpr std::uint8_t over_udp = 8;
  constexpr std::uint8_t ipv6_header = 1;
  constexpr std::uint8_t ipv4_header = 2;
  switch (completion.network) {
    case verbs::DatagramNetwork::none:
      return 0;
    case verbs::DatagramNetwork::ipv4:
      return over_udp | ipv4_header;
    case verbs::DatagramNetwork::ipv6:
      return over_udp | ipv6_header;
    case verbs::DatagramNetwork::infiniband:
      return completion.local.service_level;
  }
  return 0;
}

verbs::LocalSource to_local_source(const verbs::Completion& completion) {
  const bool is_local = completion.network == verbs::DatagramNetwork::infiniband;
  return is_local ? completion.local : verbs::LocalSource{};
}

extern "C" {

ibv_cq* ibv_create_cq(ibv_context* ibv, int entries, void* cq_context, ibv_comp_channel* channel,
                      int vector) try {
  const NoCancellation no_cancellation;
  if (ibv == nullptr || entries <= 0 || vector < 0) return fail(EINVAL);
  Cq* cq = create(Context::of(ibv), static_cast<std::uint32_t>(entries), cq_context, channel,
                  static_cast<std::uint32_t>(vector));
  return cq != nullptr ? cq->as_cq() : nullptr;
} catch (const std::bad_alloc&) {
  return fail(ENOMEM);
}

int ibv_resize_cq(ibv_cq* ibv, int entries) try {
  const NoCancellation no_cancellation;
  if (ibv == nullptr || entries <= 0) return report(EINVAL);
  Cq& cq = Cq::of(ibv);
  Context& context = Context::of(ibv->context);
  const auto guard = context.lock();
  const VerbsStatus status =
      context.adapter().objects().resize(*cq.queue, static_cast<std::uint32_t>(entries));
  cq.cqe = static_cast<int>(cq.queue->capacity());
  return report(to_errno(status));
} catch (const std::bad_alloc&) {
  return report(ENOMEM);
}

int ibv_destroy_cq(ibv_cq* ibv) {
  const NoCancellation no_cancellation;
  if (!is_known(ibv)) return report(EINVAL);
  Cq& cq = Cq::of(ibv);
  Context& context = Context::of(ibv->context);
  std::uint32_t completion_events = 0;
  std::uint32_t asynchronous_events = 0;
  {
    const auto guard = context.lock();
    const VerbsStatus status = context.adapter().objects().destroy(cq.queue);
    if (status != VerbsStatus::ok) return report(to_errno(status));
    context.cqs.erase(&cq);
    completion_events = cq.completion_events;
    asynchronous_events = cq.asynchronous_events;
  }
  if (cq.channel != nullptr) {
    completion_events -= static_cast<std::uint32_t>(Channel::of(cq.channel).events->forget(&cq));
  }
  asynchronous_events -= static_cast<std::uint32_t>(context.events->forget(&cq));
  wait_for_acknowledgements(cq.mutex, cq.cond, cq.comp_events_completed, completion_events);
  wait_for_acknowledgements(cq.mutex, cq.cond, cq.async_events_completed, asynchronous_events);
  if (cq.channel != nullptr) {
    const auto guard = context.lock();
    --cq.channel->refcnt;
  }
  pthread_cond_destroy(&cq.cond);
  pthread_mutex_destroy(&cq.mutex);
  free_object(&cq);
  return 0;
}

}  // extern "C"

}  // namespace tulle::shim
