// Receive work queues, and raw packet queue pairs that spread what they receive over several: each
// frame goes to the queue that the frame's hash finds in a table.

#include <algorithm>
#include <utility>
#include <vector>

#include "shim/ibverbs/errors.h"
#include "shim/ibverbs/objects.h"

namespace tulle::shim {
namespace {

using device::HashField;
using device::HashFields;
using verbs::QpAttribute;
using verbs::QpState;
using verbs::VerbsStatus;

ibv_wq* create_wq(ibv_context* ibv, ibv_wq_init_attr* attributes) {
  if (ibv == nullptr || attributes == nullptr) return fail(EINVAL);
  const ibv_wq_init_attr& from = *attributes;
  const bool has_flags = (from.comp_mask & IBV_WQ_INIT_ATTR_FLAGS) != 0;
  if ((from.comp_mask & ~std::uint32_t{IBV_WQ_INIT_ATTR_FLAGS}) != 0 ||
      (has_flags && from.create_flags != 0)) {
    return fail(EOPNOTSUPP);
  }
  if (from.wq_type != IBV_WQT_RQ || from.pd == nullptr || from.pd->context != ibv ||
      from.cq == nullptr || from.cq->context != ibv || from.max_wr == 0) {
    return fail(EINVAL);
  }
  Context& context = Context::of(ibv);
  auto wq = std::make_unique<Wq>();
  transport::QueuePairInit init;
  init.type = verbs::QpType::receive_work_queue;
  init.pd = Pd::of(from.pd).pd;
  init.send_cq = init.receive_cq = Cq::of(from.cq).queue;
  init.receive_work_requests = from.max_wr;
  init.receive_sges = std::max(from.max_sge, 1u);
  init.cookie = wq.get();
  const auto guard = context.lock();
  // Only raw packet queue pairs have a use for such a queue.
  if (const int error = context.live->open_packets(); error != 0) return fail(error);
  VerbsStatus status{};
  wq->pair = context.adapter().create_qp(init, status);
  if (wq->pair == nullptr) return fail(to_errno(status));
  const OnThrow undo([&] { (void)to_errno(context.adapter().destroy(wq->pair)); });
  make_room_for_events(context);
  context.wqs.insert(wq.get());
  attributes->max_wr = wq->pair->init.receive_work_requests;
  attributes->max_sge = wq->pair->init.receive_sges;
  // The C API's inline function sets up the other fields.
  wq->context = ibv;
  wq->pd = from.pd;
  wq->cq = from.cq;
  wq->wq_num = wq->pair->number.value;
  wq->handle = context.next_handle++;
  wq->state = IBV_WQS_RESET;
  wq->wq_type = from.wq_type;
  wq->post_recv = post_wq_receive;
  return wq.release();
}

ibv_wq_state state_of(const Wq& wq) {
  switch (wq.pair->state()) {
    case QpState::reset:
      return IBV_WQS_RESET;
    case QpState::error:
      return IBV_WQS_ERR;
    default:
      return IBV_WQS_RDY;
  }
}

// States change as on Linux (drivers/infiniband/core/uverbs_cmd.c and mlx5's modify_wq): not from
// reset to error, and from error only to reset.
int change_state(Context& context, Wq& wq, ibv_wq_state to) {
  const ibv_wq_state from = state_of(wq);
  if (from == to) return 0;
  const auto step = [&](QpState state) {
    transport::QueuePairAttributes attributes;
    attributes.state = state;
    verbs::QpAttributeMask mask = QpAttribute::state;
    if (state == QpState::init) mask |= QpAttribute::port;
    return to_errno(context.adapter().modify(*wq.pair, attributes, mask));
  };
  if (to == IBV_WQS_RESET) return step(QpState::reset);
  if (to == IBV_WQS_ERR) return from == IBV_WQS_RESET ? EINVAL : step(QpState::error);
  if (from != IBV_WQS_RESET) return EINVAL;
  if (const int error = step(QpState::init); error != 0) return error;
  return step(QpState::rtr);
}

int modify_wq(ibv_wq* ibv, ibv_wq_attr* attributes) {
  constexpr std::uint32_t known = IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE | IBV_WQ_ATTR_FLAGS;
  if (ibv == nullptr || attributes == nullptr) return report(EINVAL);
  const std::uint32_t mask = attributes->attr_mask;
  if (mask == 0 || (mask & ~known) != 0) return report(EINVAL);
  if ((mask & IBV_WQ_ATTR_FLAGS) != 0) return report(EOPNOTSUPP);
  Wq& wq = Wq::of(ibv);
  Context& context = Context::of(wq.context);
  const auto guard = context.lock();
  const bool names_current = (mask & IBV_WQ_ATTR_CURR_STATE) != 0;
  if (names_current && attributes->curr_wq_state != state_of(wq)) return report(EINVAL);
  if ((mask & IBV_WQ_ATTR_STATE) != 0) {
    if (static_cast<unsigned>(attributes->wq_state) > IBV_WQS_ERR) return report(EINVAL);
    if (const int error = change_state(context, wq, attributes->wq_state); error != 0)
      return report(error);
  }
  wq.state = state_of(wq);
  context.live->transmit();  // delivers the events of work that was flushed
  return 0;
}

int destroy_wq(ibv_wq* ibv) {
  if (ibv == nullptr) return report(EINVAL);
  Wq& wq = Wq::of(ibv);
  Context& context = Context::of(wq.context);
  std::uint32_t events = 0;
  {
    const auto guard = context.lock();
    const VerbsStatus status = context.adapter().destroy(wq.pair);
    if (status != VerbsStatus::ok) return report(to_errno(status));
    context.wqs.erase(&wq);
    events = wq.asynchronous_events;
  }
  events -= static_cast<std::uint32_t>(context.events->forget(&wq));
  wait_for_acknowledgements(wq.mutex, wq.cond, wq.events_completed, events);
  pthread_cond_destroy(&wq.cond);
  pthread_mutex_destroy(&wq.mutex);
  delete &wq;
  return 0;
}

ibv_rwq_ind_table* create_table(ibv_context* ibv, ibv_rwq_ind_table_init_attr* attributes) {
  constexpr std::uint32_t log_entries_max = 11;
  static_assert(1u << log_entries_max == device::RawPackets::table_entries_max);
  if (ibv == nullptr || attributes == nullptr || attributes->ind_tbl == nullptr ||
      attributes->log_ind_tbl_size > log_entries_max) {
    return fail(EINVAL);
  }
  if (attributes->comp_mask != 0) return fail(EOPNOTSUPP);
  std::vector<transport::QueuePair*> queues;
  for (std::size_t i = 0; i < std::size_t{1} << attributes->log_ind_tbl_size; ++i) {
    ibv_wq* wq = attributes->ind_tbl[i];
    if (wq == nullptr || wq->context != ibv) return fail(EINVAL);
    queues.push_back(Wq::of(wq).pair);
  }
  Context& context = Context::of(ibv);
  auto table = std::make_unique<IndirectionTable>();
  const auto guard = context.lock();
  VerbsStatus status{};
  table->table = context.adapter().raw_packets().create_table(queues, status);
  if (table->table == nullptr) return fail(to_errno(status));
  const OnThrow undo([&] { release(context, *table); });
  context.tables.insert(table.get());
  table->context = ibv;
  table->ind_tbl_handle = table->ind_tbl_num = static_cast<int>(context.next_handle++);
  return table.release();
}

int destroy_table(ibv_rwq_ind_table* ibv) {
  if (ibv == nullptr) return report(EINVAL);
  IndirectionTable& table = IndirectionTable::of(ibv);
  Context& context = Context::of(table.context);
  {
    const auto guard = context.lock();
    const VerbsStatus status = context.adapter().raw_packets().destroy(table.table);
    if (status != VerbsStatus::ok) return report(to_errno(status));
    context.tables.erase(&table);
  }
  delete &table;
  return 0;
}

struct FieldName {
  std::uint64_t c_api;
  HashField field;
};
constexpr std::array<FieldName, 8> field_names = {{
    {IBV_RX_HASH_SRC_IPV4, HashField::source_ipv4},
    {IBV_RX_HASH_DST_IPV4, HashField::destination_ipv4},
    {IBV_RX_HASH_SRC_IPV6, HashField::source_ipv6},
    {IBV_RX_HASH_DST_IPV6, HashField::destination_ipv6},
    {IBV_RX_HASH_SRC_PORT_TCP, HashField::source_port_tcp},
    {IBV_RX_HASH_DST_PORT_TCP, HashField::destination_port_tcp},
    {IBV_RX_HASH_SRC_PORT_UDP, HashField::source_port_udp},
    {IBV_RX_HASH_DST_PORT_UDP, HashField::destination_port_udp},
}};

// Returns 0 or an errno.
int to_hash(const ibv_rx_hash_conf& from, device::ReceiveHash& to) {
  constexpr std::uint64_t ipv4 = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4;
  constexpr std::uint64_t ipv6 = IBV_RX_HASH_SRC_IPV6 | IBV_RX_HASH_DST_IPV6;
  constexpr std::uint64_t tcp = IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_TCP;
  constexpr std::uint64_t udp = IBV_RX_HASH_SRC_PORT_UDP | IBV_RX_HASH_DST_PORT_UDP;
  if (from.rx_hash_function != IBV_RX_HASH_FUNC_TOEPLITZ) return EOPNOTSUPP;
  if (from.rx_hash_key == nullptr || from.rx_hash_key_len != to.key.size()) return EINVAL;
  std::copy_n(from.rx_hash_key, to.key.size(), to.key.begin());
  std::uint64_t left = from.rx_hash_fields_mask;
  // The C API's header says that these exclude each other.
  if (((left & ipv4) != 0 && (left & ipv6) != 0) || ((left & tcp) != 0 && (left & udp) != 0)) {
    return EINVAL;
  }
  for (const FieldName& name : field_names) {
    if ((left & name.c_api) == 0) continue;
    to.fields |= name.field;
    left &= ~name.c_api;
  }
  return left == 0 ? 0 : EOPNOTSUPP;
}

}  // namespace

std::uint64_t hash_fields_offered() {
  std::uint64_t all = 0;
  for (const FieldName& name : field_names) all |= name.c_api;
  return all;
}

// The queue pair has no queues, and is ready from the beginning (mlx5 has it so).
Qp* create_spreading(const ibv_qp_init_attr_ex& from) {
  constexpr std::uint32_t needed =
      IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
  const bool has_queues = from.send_cq != nullptr || from.recv_cq != nullptr || from.srq != nullptr;
  if ((from.comp_mask & needed) != needed || has_queues || from.pd == nullptr ||
      from.rwq_ind_tbl == nullptr || from.rwq_ind_tbl->context != from.pd->context) {
    return fail(EINVAL);
  }
  Context& context = Context::of(from.pd->context);
  device::IndirectionTable& table = *IndirectionTable::of(from.rwq_ind_tbl).table;
  device::ReceiveHash hash;
  if (const int error = to_hash(from.rx_hash_conf, hash); error != 0) return fail(error);
  auto qp = make_object<Qp>(Pd::of(from.pd).allocator);
  if (qp == nullptr) return fail(ENOMEM);
  refuse_all(*qp);
  transport::QueuePairInit init;
  init.type = verbs::QpType::raw_packet;
  init.pd = Pd::of(from.pd).pd;
  init.send_cq = init.receive_cq = table.queues[0]->init.receive_cq;
  init.cookie = qp.get();
  const auto guard = context.lock();
  VerbsStatus status{};
  qp->pair = context.adapter().create_qp(init, status);
  if (qp->pair == nullptr) return fail(to_errno(status));
  const OnThrow undo([&] { (void)to_errno(context.adapter().destroy(qp->pair)); });
  qp->spreads = true;
  qp->qp_base.pd = from.pd;
  context.adapter().raw_packets().spread(*qp->pair, table, hash);
  (void)publish(*qp, context, from.qp_type, from.qp_context);
  return qp.release();
}

void release(Context& context, IndirectionTable& table) {
  (void)to_errno(context.adapter().raw_packets().destroy(table.table));
}

void serve_work_queues(Context& context) {
  context.create_wq = guarded<create_wq>;
  context.modify_wq = guarded<modify_wq>;
  context.destroy_wq = guarded<destroy_wq>;
  context.create_rwq_ind_table = guarded<create_table>;
  context.destroy_rwq_ind_table = guarded<destroy_table>;
}

}  // namespace tulle::shim
