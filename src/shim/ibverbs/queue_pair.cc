// Queue pairs: creates them, and takes them up and down the ladder of states.

#include <array>

#include "os/cancellation.h"
#include "shim/ibverbs/access.h"
#include "shim/ibverbs/errors.h"
#include "shim/ibverbs/known.h"
#include "shim/ibverbs/objects.h"
#include "shim/ibverbs/reasons.h"

namespace tulle::shim {
namespace {

using transport::QueuePairAttributes;
using verbs::QpAttribute;
using verbs::QpState;
using verbs::QpType;
using verbs::VerbsStatus;

struct AttributeName {
  int c_api;
  QpAttribute attribute;
};
constexpr std::array<AttributeName, 22> attribute_names = {{
    {IBV_QP_STATE, QpAttribute::state},
    {IBV_QP_CUR_STATE, QpAttribute::current_state},
    {IBV_QP_EN_SQD_ASYNC_NOTIFY, QpAttribute::sqd_async_notify},
    {IBV_QP_ACCESS_FLAGS, QpAttribute::access_flags},
    {IBV_QP_PKEY_INDEX, QpAttribute::pkey_index},
    {IBV_QP_PORT, QpAttribute::port},
    {IBV_QP_QKEY, QpAttribute::qkey},
    {IBV_QP_AV, QpAttribute::address_vector},
    {IBV_QP_PATH_MTU, QpAttribute::path_mtu},
    {IBV_QP_TIMEOUT, QpAttribute::timeout},
    {IBV_QP_RETRY_CNT, QpAttribute::retry_count},
    {IBV_QP_RNR_RETRY, QpAttribute::rnr_retry},
    {IBV_QP_RQ_PSN, QpAttribute::rq_psn},
    {IBV_QP_MAX_QP_RD_ATOMIC, QpAttribute::max_rd_atomic},
    {IBV_QP_ALT_PATH, QpAttribute::alternate_path},
    {IBV_QP_MIN_RNR_TIMER, QpAttribute::min_rnr_timer},
    {IBV_QP_SQ_PSN, QpAttribute::sq_psn},
    {IBV_QP_MAX_DEST_RD_ATOMIC, QpAttribute::max_dest_rd_atomic},
    {IBV_QP_PATH_MIG_STATE, QpAttribute::path_migration_state},
    {IBV_QP_CAP, QpAttribute::capabilities},
    {IBV_QP_DEST_QPN, QpAttribute::destination_qp},
    {IBV_QP_RATE_LIMIT, QpAttribute::rate_limit},
}};

// States in the order of verbs::QpState.
constexpr std::array<ibv_qp_state, 7> states = {
    IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_SQE, IBV_QPS_ERR};
static_assert(static_cast<std::size_t>(QpState::error) + 1 == states.size());

ibv_qp_state from_state(QpState state) { return states[static_cast<std::size_t>(state)]; }

}  // namespace

bool to_state(ibv_qp_state from, QpState& to) {
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (states[i] != from) continue;
    to = static_cast<QpState>(i);
    return true;
  }
  return false;
}

bool to_mask(int from, verbs::QpAttributeMask& to) {
  for (const AttributeName& name : attribute_names) {
    if ((from & name.c_api) == 0) continue;
    to |= name.attribute;
    from &= ~name.c_api;
  }
  return from == 0;
}

namespace {

static_assert(static_cast<int>(verbs::MigrationState::migrated) == IBV_MIG_MIGRATED &&
              static_cast<int>(verbs::MigrationState::rearm) == IBV_MIG_REARM &&
              static_cast<int>(verbs::MigrationState::armed) == IBV_MIG_ARMED);
static_assert(verbs::mtu_code(256) == IBV_MTU_256 && verbs::mtu_code_max == IBV_MTU_4096);

bool to_mtu(ibv_mtu from, verbs::Mtu& to) {
  if (from < IBV_MTU_256 || from > IBV_MTU_4096) return false;
  to = static_cast<verbs::Mtu>(verbs::mtu_bytes(static_cast<std::uint8_t>(from)));
  return true;
}

// Returns 0, or an errno for a type that is not offered or does not exist.
int to_type(ibv_qp_type from, QpType& to) {
  switch (from) {
    case IBV_QPT_RC:
      to = QpType::rc;
      return 0;
    case IBV_QPT_UC:
      to = QpType::uc;
      return 0;
    case IBV_QPT_UD:
      to = QpType::ud;
      return 0;
    case IBV_QPT_XRC_SEND:
      to = QpType::xrc_initiator;
      return 0;
    case IBV_QPT_XRC_RECV:
      to = QpType::xrc_target;
      return 0;
    case IBV_QPT_RAW_PACKET:
      to = QpType::raw_packet;
      return 0;
    case IBV_QPT_DRIVER:
      return EOPNOTSUPP;
  }
  return EINVAL;
}

// Returns false for a value that means nothing. Only attributes that the mask names are checked.
bool to_attributes(const Context& context, const ibv_qp_attr& from, int mask,
                   transport::AlternatePath& alternate, QueuePairAttributes& to) {
  if ((mask & IBV_QP_STATE) != 0 && !to_state(from.qp_state, to.state)) return false;
  if ((mask & IBV_QP_CUR_STATE) != 0 && !to_state(from.cur_qp_state, to.current_state)) {
    return false;
  }
  if ((mask & IBV_QP_ACCESS_FLAGS) != 0 &&
      !to_access(from.qp_access_flags & ~flush_access, to.access)) {
    return false;
  }
  if ((mask & IBV_QP_AV) != 0 && !to_address_vector(context, from.ah_attr, to.address)) {
    return false;
  }
  if ((mask & IBV_QP_ALT_PATH) != 0) {
    // On Ethernet it stays without a LID, and is refused.
    if (context.is_infiniband && !to_address_vector(context, from.alt_ah_attr, alternate.address)) {
      return false;
    }
    alternate.address.port = from.alt_port_num;
    alternate.pkey_index = from.alt_pkey_index;
    alternate.timeout = from.alt_timeout;
    to.alternate = &alternate;
  }
  if ((mask & IBV_QP_PATH_MIG_STATE) != 0) {
    if (from.path_mig_state > IBV_MIG_ARMED) return false;
    to.migration = static_cast<verbs::MigrationState>(from.path_mig_state);
  }
  if ((mask & IBV_QP_PATH_MTU) != 0 && !to_mtu(from.path_mtu, to.path_mtu)) return false;
  to.qkey = Qkey{from.qkey};
  to.rq_psn = Psn{from.rq_psn};
  to.sq_psn = Psn{from.sq_psn};
  to.destination_qp = QpNumber{from.dest_qp_num};
  to.pkey_index = from.pkey_index;
  to.port = from.port_num;
  to.max_rd_atomic = from.max_rd_atomic;
  to.max_dest_rd_atomic = from.max_dest_rd_atomic;
  to.min_rnr_timer = from.min_rnr_timer;
  to.timeout = from.timeout;
  to.retry_count = from.retry_cnt;
  to.rnr_retry = from.rnr_retry;
  to.sqd_async_notify = from.en_sqd_async_notify != 0;
  return true;
}

ibv_qp_cap capabilities_of(const transport::QueuePairInit& init) {
  ibv_qp_cap cap = {};
  cap.max_send_wr = init.send_work_requests;
  cap.max_recv_wr = init.srq != nullptr ? 0 : init.receive_work_requests;
  cap.max_send_sge = init.send_sges;
  cap.max_recv_sge = init.srq != nullptr ? 0 : init.receive_sges;
  cap.max_inline_data = init.inline_bytes;
  return cap;
}

void fill(Qp& qp, ibv_qp_attr& out) {
  const transport::QueuePair& pair = *qp.pair;
  const QueuePairAttributes& from = pair.attributes();
  out = {};
  out.qp_state = out.cur_qp_state = from_state(pair.state());
  out.path_mtu = static_cast<ibv_mtu>(verbs::mtu_code(bytes(from.path_mtu)));
  out.path_mig_state = static_cast<ibv_mig_state>(from.migration);
  if (const transport::AlternatePath* other = transport::PathMigration::alternate(pair);
      other != nullptr) {
    from_address_vector(other->address, out.alt_ah_attr);
    out.alt_pkey_index = other->pkey_index;
    out.alt_port_num = other->address.port;
    out.alt_timeout = other->timeout;
  }
  out.qkey = from.qkey.value;
  out.rq_psn = from.rq_psn.value();
  out.sq_psn = from.sq_psn.value();
  out.dest_qp_num = from.destination_qp.value;
  out.qp_access_flags = from_access(from.access);
  out.cap = capabilities_of(pair.init);
  from_address_vector(from.address, out.ah_attr);
  out.pkey_index = from.pkey_index;
  out.en_sqd_async_notify = from.sqd_async_notify ? 1 : 0;
  out.sq_draining = pair.send_queue_draining() ? 1 : 0;
  out.max_rd_atomic = from.max_rd_atomic;
  out.max_dest_rd_atomic = from.max_dest_rd_atomic;
  out.min_rnr_timer = from.min_rnr_timer;
  out.port_num = from.port;
  out.timeout = from.timeout;
  out.retry_cnt = from.retry_count;
  out.rnr_retry = from.rnr_retry;
}

void fill(Qp& qp, ibv_qp_init_attr& out) {
  const transport::QueuePairInit& init = qp.pair->init;
  out = {};
  out.qp_context = qp.qp_base.qp_context;
  out.send_cq = qp.qp_base.send_cq;
  out.recv_cq = qp.qp_base.recv_cq;
  out.srq = qp.qp_base.srq;
  out.cap = capabilities_of(init);
  out.qp_type = qp.qp_base.qp_type;
  out.sq_sig_all = init.signal_all ? 1 : 0;
}

// Returns true if all objects that the queue pair needs are given and belong to its context. An XRC
// initiator receives nothing.
bool complete(const ibv_pd& pd, const ibv_qp_init_attr& attributes) {
  if (!is_known(attributes.send_cq) || attributes.send_cq->context != pd.context) return false;
  if (attributes.qp_type == IBV_QPT_XRC_SEND) return attributes.srq == nullptr;
  return is_known(attributes.recv_cq) && attributes.recv_cq->context == pd.context &&
         (attributes.srq == nullptr ||
          (is_known(attributes.srq) && attributes.srq->context == pd.context));
}

transport::QueuePairInit to_init(const ibv_pd& pd, const ibv_qp_init_attr& from, QpType type) {
  transport::QueuePairInit init;
  init.type = type;
  init.pd = static_cast<const Pd&>(pd).pd;
  init.send_cq = Cq::of(from.send_cq).queue;
  if (type != QpType::xrc_initiator) init.receive_cq = Cq::of(from.recv_cq).queue;
  init.srq = from.srq != nullptr ? Srq::of(from.srq).queue : nullptr;
  init.send_work_requests = from.cap.max_send_wr;
  init.receive_work_requests = from.srq != nullptr ? 0 : from.cap.max_recv_wr;
  init.send_sges = from.cap.max_send_sge;
  init.receive_sges = from.cap.max_recv_sge;
  init.inline_bytes = from.cap.max_inline_data;
  init.signal_all = from.sq_sig_all != 0;
  return init;
}

Qp* create(ibv_pd* pd, ibv_qp_init_attr& attributes) {
  if (!is_known(pd)) return fail(EINVAL);
  QpType type{};
  if (const int error = to_type(attributes.qp_type, type); error != 0) return fail(error);
  // A target belongs to a domain: create_target() makes it.
  if (type == QpType::xrc_target || !complete(*pd, attributes)) return fail(EINVAL);
  Context& context = Context::of(pd->context);
  auto qp = make_object<Qp>(Pd::of(pd).allocator);
  if (qp == nullptr) return fail(ENOMEM);
  refuse_all(*qp);
  serve_builders(*qp);
  transport::QueuePairInit init = to_init(*pd, attributes, type);
  init.cookie = qp.get();
  const auto guard = context.lock();
  if (type == QpType::raw_packet) {
    if (const int error = context.live->open_packets(); error != 0) return fail(error);
  }
  VerbsStatus status{};
  qp->pair = context.adapter().create_qp(init, status);
  if (qp->pair == nullptr) {
    keep_refusal(context, "ibv_create_qp", to_errno(status), why_not_created(context, attributes));
    return fail(to_errno(status));
  }
  attributes.cap = capabilities_of(qp->pair->init);
  if (context.is_strict && !qp->pair->transport.completes_in_any_order) {
    qp->entries = std::make_unique<SendEntries>(attributes.cap.max_send_wr);
  }
  if (context.is_strict && attributes.srq == nullptr) {
    qp->receive_entries.emplace(attributes.cap.max_recv_wr);
  }
  ibv_qp& base = qp->qp_base;
  base.pd = pd;
  base.send_cq = attributes.send_cq;
  base.recv_cq = attributes.recv_cq;
  base.srq = attributes.srq;
  const OnThrow undo([&] { (void)to_errno(context.adapter().destroy(qp->pair)); });
  (void)publish(*qp, context, attributes.qp_type, attributes.qp_context);
  return qp.release();
}

Qp* create_target(ibv_context* ibv, const ibv_qp_init_attr_ex& attributes) {
  if (attributes.xrcd == nullptr || attributes.xrcd->context != ibv) return fail(EINVAL);
  Context& context = Context::of(ibv);
  Xrcd& xrcd = Xrcd::of(attributes.xrcd);
  transport::QueuePairInit init;
  init.type = QpType::xrc_target;
  const auto guard = context.lock();
  init.xrc_domain = &domain_of(xrcd);
  VerbsStatus status{};
  transport::QueuePair* pair = context.adapter().create_qp(init, status);
  if (pair == nullptr) return fail(to_errno(status));
  const OnThrow undo([&] { (void)to_errno(context.adapter().destroy(pair)); });
  return add_handle(*pair, xrcd, attributes.qp_context);
}

// The operations that ibv_wr_* offers on each transport.
constexpr std::uint64_t ud_operations = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
constexpr std::uint64_t uc_operations = ud_operations | IBV_QP_EX_WITH_RDMA_WRITE |
                                        IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                        IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;
constexpr std::uint64_t rc_operations = uc_operations | IBV_QP_EX_WITH_RDMA_READ |
                                        IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                                        IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
                                        IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_ATOMIC_WRITE;

std::uint64_t operations_of(ibv_qp_type type) {
  if (type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND) return rc_operations;
  if (type == IBV_QPT_XRC_RECV) return 0;
  if (type == IBV_QPT_RAW_PACKET) return IBV_QP_EX_WITH_SEND;
  return type == IBV_QPT_UC ? uc_operations : ud_operations;
}

// Returns the attributes that may be given besides those that all queue pairs have. A queue pair
// that spreads what it receives sends nothing.
std::uint32_t offered_to(const ibv_qp_init_attr_ex& attributes, bool spreads) {
  std::uint32_t offered = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
  if (attributes.qp_type == IBV_QPT_XRC_RECV) offered |= IBV_QP_INIT_ATTR_XRCD;
  if (!spreads) return offered | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  if (attributes.qp_type != IBV_QPT_RAW_PACKET) return offered;
  return offered | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
}

ibv_qp* create_qp_ex(ibv_context* ibv, ibv_qp_init_attr_ex* attributes) {
  if (ibv == nullptr || attributes == nullptr) return fail(EINVAL);
  const bool is_target = attributes->qp_type == IBV_QPT_XRC_RECV;
  const std::uint32_t mask = attributes->comp_mask;
  const bool spreads = (mask & (IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH)) != 0;
  if ((mask & ~offered_to(*attributes, spreads)) != 0) return fail(EOPNOTSUPP);
  const std::uint32_t needed = is_target ? IBV_QP_INIT_ATTR_XRCD : IBV_QP_INIT_ATTR_PD;
  if ((mask & needed) == 0) return fail(EINVAL);
  if ((mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 && attributes->create_flags != 0) {
    return fail(EOPNOTSUPP);
  }
  const bool extended = (mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
  const std::uint64_t operations = extended ? attributes->send_ops_flags : 0;
  if ((operations & ~operations_of(attributes->qp_type)) != 0) return fail(EOPNOTSUPP);
  // The extended struct begins with the fields of the plain one.
  Qp* qp = nullptr;
  if (spreads) {
    qp = create_spreading(*attributes);
  } else if (is_target) {
    qp = create_target(ibv, *attributes);
  } else {
    qp = create(attributes->pd, reinterpret_cast<ibv_qp_init_attr&>(*attributes));
  }
  if (qp == nullptr) return nullptr;
  qp->extended = extended;
  qp->allowed_operations = operations;
  return qp->as_qp();
}

}  // namespace

// Completes a queue pair whose parts are there, and registers it with its context.
Qp* publish(Qp& qp, Context& context, ibv_qp_type type, void* qp_context) {
  make_room_for_events(context);
  context.qps.insert(&qp);
  ibv_qp& base = qp.qp_base;
  base.context = &context.context;
  base.qp_context = qp_context;
  base.handle = context.next_handle++;
  base.qp_num = qp.pair->number.value;
  base.state = from_state(qp.pair->state());
  base.qp_type = type;
  pthread_mutex_init(&base.mutex, nullptr);
  pthread_cond_init(&base.cond, nullptr);
  return &qp;
}

Qp* add_handle(transport::QueuePair& pair, Xrcd& xrcd, void* qp_context) {
  auto qp = make_object<Qp>(nullptr);
  refuse_all(*qp);
  serve_builders(*qp);
  qp->pair = &pair;
  (void)publish(*qp, Context::of(xrcd.context), IBV_QPT_XRC_RECV, qp_context);
  qp->xrcd = &xrcd;
  qp->next_handle = static_cast<Qp*>(pair.init.cookie);
  pair.init.cookie = qp.get();
  ++xrcd.users;
  return qp.release();
}

bool has_flows(Context& context, const Qp& qp) {
  return qp.pair->transport.found_by == transport::FoundBy::flow_rules &&
         context.adapter().raw_packets().is_used(*qp.pair);
}

void release(Context& context, Qp& qp) {
  if (qp.xrcd != nullptr) {
    --qp.xrcd->users;
    auto* first = static_cast<Qp*>(qp.pair->init.cookie);
    if (first == &qp) {
      qp.pair->init.cookie = qp.next_handle;
    } else {
      while (first->next_handle != &qp) first = first->next_handle;
      first->next_handle = qp.next_handle;
    }
    if (qp.pair->init.cookie != nullptr) return;
  }
  (void)to_errno(context.adapter().destroy(qp.pair));
}

void serve_queue_pairs(Context& context) { context.create_qp_ex = guarded<create_qp_ex>; }

extern "C" {

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes) try {
  const NoCancellation no_cancellation;
  if (attributes == nullptr) return fail(EINVAL);
  Qp* qp = create(pd, *attributes);
  return qp != nullptr ? qp->as_qp() : nullptr;
} catch (const std::bad_alloc&) {
  return fail(ENOMEM);
}

ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
  const NoCancellation no_cancellation;
  if (qp == nullptr || !Qp::of(qp).extended) return nullptr;
  return &Qp::of(qp);
}

int ibv_modify_qp(ibv_qp* ibv, ibv_qp_attr* attributes, int mask) try {
  const NoCancellation no_cancellation;
  if (!is_known(ibv) || attributes == nullptr) return report(EINVAL);
  verbs::QpAttributeMask to_change;
  QueuePairAttributes values;
  Context& context = Context::of(ibv->context);
  transport::AlternatePath alternate;
  Qp& qp = Qp::of(ibv);
  const auto refuse = [&](int error) {
    keep_refusal(context, "ibv_modify_qp", error, why_not_modified(context, qp, *attributes, mask));
    return report(error);
  };
  if (!to_mask(mask, to_change) || !to_attributes(context, *attributes, mask, alternate, values)) {
    const auto guard = context.lock();
    return refuse(EINVAL);
  }
  if (qp.spreads) return report(EOPNOTSUPP);  // it has no states
  if ((mask & IBV_QP_AV) != 0) {
    if (const int error = context.live->resolve(values.address); error != 0) {
      keep_refusal(context, "ibv_modify_qp", error, no_way_text);
      return report(error);
    }
  }
  const auto guard = context.lock();
  const auto turn = context.live->memory_turn();
  const VerbsStatus status = context.adapter().modify(*qp.pair, values, to_change);
  if (status != VerbsStatus::ok) return refuse(to_errno(status));
  if ((mask & IBV_QP_STATE) != 0) ibv->state = from_state(qp.pair->state());
  if (ibv->state == IBV_QPS_RESET) clear_entries(qp);
  context.live->transmit();
  return 0;
} catch (const std::bad_alloc&) {
  return report(ENOMEM);
}

int ibv_query_qp(ibv_qp* ibv, ibv_qp_attr* attributes, int mask, ibv_qp_init_attr* init) {
  const NoCancellation no_cancellation;
  if (!is_known(ibv) || attributes == nullptr) return report(EINVAL);
  Qp& qp = Qp::of(ibv);
  if (qp.spreads) return report(EOPNOTSUPP);
  const auto guard = Context::of(ibv->context).lock();
  fill(qp, *attributes);
  if (init != nullptr) fill(qp, *init);
  // The state that programs read from the struct changes only for a caller that asks about it, as
  // with rdma-core (libibverbs/verbs.c). All attributes are filled in, since a provider may give
  // more than the mask asks for (ibv_query_qp(3)).
  if ((mask & IBV_QP_STATE) != 0) ibv->state = attributes->qp_state;
  return 0;
}

int ibv_destroy_qp(ibv_qp* ibv) {
  const NoCancellation no_cancellation;
  if (!is_known(ibv)) return report(EINVAL);
  Qp& qp = Qp::of(ibv);
  Context& context = Context::of(ibv->context);
  std::uint32_t events = 0;
  {
    const auto guard = context.lock_to_end();
    const auto turn = context.live->memory_turn();
    // Linux refuses too until everything is detached.
    if (!qp.groups.empty() || has_flows(context, qp)) return report(EBUSY);
    release(context, qp);
    context.qps.erase(&qp);
    events = qp.asynchronous_events;
    context.live->publish();
  }
  events -= static_cast<std::uint32_t>(context.events->forget(&qp));
  wait_for_acknowledgements(ibv->mutex, ibv->cond, ibv->events_completed, events);
  pthread_cond_destroy(&ibv->cond);
  pthread_mutex_destroy(&ibv->mutex);
  free_object(&qp);
  return 0;
}

// The processor copies a payload, and promises no order within a message.
int ibv_query_qp_data_in_order(ibv_qp*, ibv_wr_opcode, std::uint32_t) { return 0; }

// There are no enhancements that peers of one vendor could agree upon.
int ibv_set_ece(ibv_qp*, ibv_ece*) { return report(EOPNOTSUPP); }
int ibv_query_ece(ibv_qp*, ibv_ece* ece) {
  const NoCancellation no_cancellation;
  if (ece != nullptr) *ece = {};
  return report(EOPNOTSUPP);
}

}  // extern "C"

}  // namespace tulle::shim
