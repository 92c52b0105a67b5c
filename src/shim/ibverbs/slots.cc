// Programs reach most verbs through function pointers: in ibv_context, in the verbs_context in
// front of it, in ibv_qp_ex and in ibv_cq_ex. None of them may be null, because some inline
// functions of the C API do not check.

#include "shim/ibverbs/errors.h"
#include "shim/ibverbs/objects.h"

namespace tulle::shim {
namespace {

// Holds, for each type of function, one that refuses in the way that its return type allows.
template <typename Function>
struct Refusal;

template <typename Value, typename... Arguments>
struct Refusal<Value* (*)(Arguments...)> {
  static Value* call(Arguments...) { return fail(EOPNOTSUPP); }
};
template <typename... Arguments>
struct Refusal<int (*)(Arguments...)> {
  static int call(Arguments...) { return report(EOPNOTSUPP); }
};
template <typename... Arguments>
struct Refusal<void (*)(Arguments...)> {
  static void call(Arguments...) {}
};
// These functions read a completion's field that the queue was not created to keep.
template <typename Value>
struct Refusal<Value (*)(ibv_cq_ex*)> {
  static Value call(ibv_cq_ex*) { return {}; }
};
template <>
struct Refusal<int (*)(ibv_cq_ex*)> {
  static int call(ibv_cq_ex*) { return report(EOPNOTSUPP); }
};
template <>
struct Refusal<void (*)(ibv_cq_ex*)> {
  static void call(ibv_cq_ex*) {}
};

template <typename... Slots>
void refuse(Slots&... slots) {
  ((slots = &Refusal<Slots>::call), ...);
}

// Builders cannot report an error; ibv_wr_complete reports it for them.
template <typename... Arguments>
void refuse_builder(ibv_qp_ex* qp, Arguments...) {
  Qp::of(qp).staged.error = EOPNOTSUPP;
}
template <typename... Arguments>
void refuse_as_builder(void (*&slot)(ibv_qp_ex*, Arguments...)) {
  slot = &refuse_builder<Arguments...>;
}

// Older headers do not declare these slots. A program that is built with newer headers than this
// library sees by verbs_context's size that it ends before them.
#define TULLE_REFUSE_IF_DECLARED(object, slot)              \
  [](auto& any) {                                           \
    if constexpr (requires { any.slot; }) refuse(any.slot); \
  }(object)

void refuse_newer(verbs_context& c) {
  TULLE_REFUSE_IF_DECLARED(c, alloc_dmah);
  TULLE_REFUSE_IF_DECLARED(c, dealloc_dmah);
  TULLE_REFUSE_IF_DECLARED(c, reg_mr_ex);
  TULLE_REFUSE_IF_DECLARED(c, dm_export_dmabuf_fd);
  TULLE_REFUSE_IF_DECLARED(c, alloc_buf);
  TULLE_REFUSE_IF_DECLARED(c, free_buf);
}

#undef TULLE_REFUSE_IF_DECLARED

void refuse_flush(auto& qp) {
  if constexpr (requires { qp.wr_flush; }) refuse_as_builder(qp.wr_flush);
}

void refuse_operations(ibv_context_ops& ops) {
  refuse(ops._compat_query_device, ops._compat_query_port, ops._compat_alloc_pd,
         ops._compat_dealloc_pd, ops._compat_reg_mr, ops._compat_rereg_mr, ops._compat_dereg_mr,
         ops.alloc_mw, ops.bind_mw, ops.dealloc_mw, ops._compat_create_cq, ops.poll_cq,
         ops.req_notify_cq, ops._compat_cq_event, ops._compat_resize_cq, ops._compat_destroy_cq,
         ops._compat_create_srq, ops._compat_modify_srq, ops._compat_query_srq,
         ops._compat_destroy_srq, ops.post_srq_recv, ops._compat_create_qp, ops._compat_query_qp,
         ops._compat_modify_qp, ops._compat_destroy_qp, ops.post_send, ops.post_recv,
         ops._compat_create_ah, ops._compat_destroy_ah, ops._compat_attach_mcast,
         ops._compat_detach_mcast, ops._compat_async_event);
}

}  // namespace

void refuse_all(Context& context) {
  refuse_operations(context.context.ops);
  verbs_context& c = context;
  refuse(c.query_port, c.advise_mr, c.alloc_null_mr, c.read_counters, c.attach_counters_point_flow,
         c.create_counters, c.destroy_counters, c.reg_dm_mr, c.alloc_dm, c.free_dm,
         c.modify_flow_action_esp, c.destroy_flow_action, c.create_flow_action_esp,
         c.modify_qp_rate_limit, c.alloc_parent_domain, c.dealloc_td, c.alloc_td, c.modify_cq,
         c.destroy_rwq_ind_table, c.create_rwq_ind_table, c.destroy_wq, c.modify_wq, c.create_wq,
         c.query_rt_values, c.create_cq_ex, c.query_device_ex, c.ibv_destroy_flow,
         c.ABI_placeholder2, c.ibv_create_flow, c.ABI_placeholder1, c.open_qp, c.create_qp_ex,
         c.get_srq_num, c.create_srq_ex, c.open_xrcd, c.close_xrcd, c.post_srq_ops);
  refuse_newer(c);
}

void refuse_all(Cq& cq) {
  ibv_cq_ex& c = cq;
  refuse(c.start_poll, c.next_poll, c.end_poll, c.read_opcode, c.read_vendor_err, c.read_byte_len,
         c.read_imm_data, c.read_qp_num, c.read_src_qp, c.read_wc_flags, c.read_slid, c.read_sl,
         c.read_dlid_path_bits, c.read_completion_ts, c.read_cvlan, c.read_flow_tag, c.read_tm_info,
         c.read_completion_wallclock_ns);
}

void refuse_all(Qp& qp) {
  ibv_qp_ex& q = qp;
  const auto refuse_builders = [](auto&... slots) { (refuse_as_builder(slots), ...); };
  refuse_builders(q.wr_atomic_cmp_swp, q.wr_atomic_fetch_add, q.wr_bind_mw, q.wr_local_inv,
                  q.wr_rdma_read, q.wr_rdma_write, q.wr_rdma_write_imm, q.wr_send, q.wr_send_imm,
                  q.wr_send_inv, q.wr_send_tso, q.wr_set_ud_addr, q.wr_set_xrc_srqn,
                  q.wr_set_inline_data, q.wr_set_inline_data_list, q.wr_set_sge, q.wr_set_sge_list,
                  q.wr_atomic_write);
  refuse_flush(q);
  qp.newer_builder = [](ibv_qp_ex* refused) { refuse_builder(refused); };
  refuse(q.wr_start, q.wr_complete, q.wr_abort);
}

}  // namespace tulle::shim
