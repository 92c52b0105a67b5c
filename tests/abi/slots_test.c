/* Calls everything that a program can reach, with useless arguments. Each call must refuse, and
   none may crash. This is a C program on purpose, since that is how the header is used. */

#include <infiniband/verbs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

#define CHECK(condition)                                             \
  do {                                                               \
    if (!(condition)) {                                              \
      printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      ++failures;                                                    \
    }                                                                \
  } while (0)

#define REFUSES_WITH_NULL(call) \
  do {                          \
    errno = 0;                  \
    CHECK((call) == NULL);      \
    CHECK(errno == EOPNOTSUPP); \
  } while (0)

/* Checks that every pointer-sized word of the table is a function. */
static void no_slot_is_null(const char* name, const void* table, size_t bytes) {
  const void* const* slot = table;
  for (size_t i = 0; i < bytes / sizeof(void*); ++i) {
    if (slot[i] == NULL) {
      printf("%s: slot %zu is null\n", name, i);
      ++failures;
    }
  }
}

static void context_slots(struct ibv_context* context, struct ibv_pd* pd, struct ibv_qp* qp,
                          struct ibv_cq* cq, struct ibv_srq* srq) {
  struct verbs_context* vctx = verbs_get_ctx(context);
  /* The struct grows at its front. With newer headers than the library's, it begins before the
     slots that exist, as its size says. */
  CHECK(vctx != NULL && vctx->sz >= offsetof(struct verbs_context, sz) -
                                        offsetof(struct verbs_context, query_port));
  const size_t expected = sizeof(struct verbs_context);
  const size_t absent = vctx->sz < expected ? expected - vctx->sz : 0;
  no_slot_is_null("ibv_context_ops", &context->ops, sizeof(context->ops));
  no_slot_is_null("verbs_context", (const char*)vctx + absent,
                  offsetof(struct verbs_context, priv) - absent);
  no_slot_is_null("verbs_context", &vctx->query_device_ex,
                  offsetof(struct verbs_context, _ABI_placeholder3) -
                      offsetof(struct verbs_context, query_device_ex));

  struct ibv_counters counters = {context};
  struct ibv_flow_action action = {context};
  struct ibv_wq wq = {.context = context};
  CHECK(ibv_read_counters(&counters, NULL, 0, 0) == EOPNOTSUPP);
  CHECK(ibv_attach_counters_point_flow(&counters, NULL, NULL) == EOPNOTSUPP);
  REFUSES_WITH_NULL(ibv_create_counters(context, NULL));
  CHECK(ibv_destroy_counters(&counters) == EOPNOTSUPP);
  CHECK(ibv_modify_flow_action_esp(&action, NULL) == EOPNOTSUPP);
  CHECK(ibv_destroy_flow_action(&action) == EOPNOTSUPP);
  REFUSES_WITH_NULL(ibv_create_flow_action_esp(context, NULL));
  CHECK(ibv_modify_qp_rate_limit(qp, NULL) == EOPNOTSUPP);
  CHECK(ibv_modify_cq(cq, NULL) == EINVAL);
  struct ibv_modify_cq_attr unknown_change = {.attr_mask = 2};
  CHECK(ibv_modify_cq(cq, &unknown_change) == EINVAL);
  uint32_t number = 0;
  CHECK(ibv_get_srq_num(srq, &number) == EINVAL); /* the queue belongs to no XRC domain */

  /* These slots serve, but get no arguments here. */
  struct ibv_ops_wr operation = {0};
  struct ibv_ops_wr* bad_operation = NULL;
  /* the queue matches no tags */
  CHECK(ibv_post_srq_ops(srq, &operation, &bad_operation) == EINVAL);
  CHECK(bad_operation == &operation);
  CHECK(ibv_create_rwq_ind_table(context, NULL) == NULL && errno == EINVAL);
  CHECK(vctx->destroy_rwq_ind_table(NULL) == EINVAL);
  CHECK(ibv_create_wq(context, NULL) == NULL && errno == EINVAL);
  CHECK(ibv_modify_wq(&wq, NULL) == EINVAL);
  CHECK(vctx->destroy_wq(NULL) == EINVAL);
  CHECK(ibv_create_flow(qp, NULL) == NULL && errno == EINVAL);
  CHECK(vctx->ibv_destroy_flow(NULL) == EINVAL);
  CHECK(vctx->query_port(context, 1, NULL, 0) != 0);
  CHECK(vctx->query_device_ex(context, NULL, NULL, 0) != 0);
  CHECK(vctx->create_cq_ex(context, NULL) == NULL);
  CHECK(vctx->create_qp_ex(context, NULL) == NULL);
  CHECK(vctx->advise_mr(NULL, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, NULL, 0) == EINVAL);
  CHECK(vctx->alloc_null_mr(NULL) == NULL);
  CHECK(vctx->reg_dm_mr(pd, NULL, 0, 4, IBV_ACCESS_ZERO_BASED) == NULL);
  CHECK(vctx->alloc_dm(context, NULL) == NULL);
  CHECK(vctx->free_dm(NULL) == EINVAL);
  CHECK(vctx->alloc_parent_domain(context, NULL) == NULL);
  CHECK(vctx->alloc_td(context, NULL) == NULL);
  CHECK(vctx->dealloc_td(NULL) == EINVAL);
  CHECK(vctx->query_rt_values(context, NULL) == EINVAL);
  CHECK(vctx->create_srq_ex(context, NULL) == NULL);
  CHECK(vctx->open_qp(context, NULL) == NULL);
  CHECK(vctx->open_xrcd(context, NULL) == NULL);
  CHECK(vctx->close_xrcd(NULL) == EINVAL);
  CHECK(vctx->get_srq_num(NULL, NULL) == EINVAL);
  CHECK(context->ops.alloc_mw(NULL, IBV_MW_TYPE_1) == NULL);
  CHECK(context->ops.bind_mw(qp, NULL, NULL) != 0);
  CHECK(context->ops.dealloc_mw(NULL) != 0);
  CHECK(ibv_poll_cq(cq, 0, NULL) == 0);
  CHECK(ibv_poll_cq(cq, 1, NULL) < 0);
  CHECK(ibv_poll_cq(cq, -1, NULL) < 0);
  CHECK(context->ops.req_notify_cq(NULL, 0) != 0);
  CHECK(context->ops.post_send(NULL, NULL, NULL) != 0);
  CHECK(context->ops.post_recv(NULL, NULL, NULL) != 0);
  CHECK(context->ops.post_srq_recv(NULL, NULL, NULL) != 0);
  CHECK(ibv_post_send(qp, NULL, NULL) == 0);
  CHECK(ibv_post_recv(qp, NULL, NULL) == 0);
  CHECK(ibv_post_srq_recv(srq, NULL, NULL) == 0);
  struct ibv_send_wr send = {.num_sge = -1};
  struct ibv_send_wr* bad_send = NULL;
  CHECK(ibv_post_send(qp, &send, &bad_send) != 0 && bad_send == &send);
  struct ibv_recv_wr receive = {.num_sge = 1000};
  struct ibv_recv_wr* bad_receive = NULL;
  CHECK(ibv_post_recv(qp, &receive, &bad_receive) != 0 && bad_receive == &receive);

  /* These slots are for programs from before verbs_context. */
  struct ibv_device_attr device_attributes;
  CHECK(context->ops._compat_query_device(context, &device_attributes) == 0);
  CHECK(context->ops._compat_query_device(context, NULL) != 0);
  CHECK(context->ops._compat_query_port(context, 9, NULL) != 0);
  void* (*const old_slots[])(void) = {
      context->ops._compat_alloc_pd,     context->ops._compat_dealloc_pd,
      context->ops._compat_reg_mr,       context->ops._compat_rereg_mr,
      context->ops._compat_dereg_mr,     context->ops._compat_create_cq,
      context->ops._compat_cq_event,     context->ops._compat_resize_cq,
      context->ops._compat_destroy_cq,   context->ops._compat_create_srq,
      context->ops._compat_modify_srq,   context->ops._compat_query_srq,
      context->ops._compat_destroy_srq,  context->ops._compat_create_qp,
      context->ops._compat_query_qp,     context->ops._compat_modify_qp,
      context->ops._compat_destroy_qp,   context->ops._compat_create_ah,
      context->ops._compat_destroy_ah,   context->ops._compat_attach_mcast,
      context->ops._compat_detach_mcast, context->ops._compat_async_event};
  for (size_t i = 0; i < sizeof(old_slots) / sizeof(old_slots[0]); ++i) {
    REFUSES_WITH_NULL(old_slots[i]());
  }
}

/* A builder cannot refuse by itself: ibv_wr_complete does. */
#define REFUSES_BUILDER(qp, expected, call)   \
  do {                                        \
    ibv_wr_start(qp);                         \
    call;                                     \
    CHECK(ibv_wr_complete(qp) == (expected)); \
  } while (0)

static void queue_pair_slots(struct ibv_qp_ex* qp) {
  no_slot_is_null("ibv_qp_ex", &qp->wr_atomic_cmp_swp,
                  sizeof(*qp) - offsetof(struct ibv_qp_ex, wr_atomic_cmp_swp));
  const uint64_t word = 0;
  const struct ibv_mw_bind_info bind = {0};
  /* The queue pair was created for SEND alone. */
  REFUSES_BUILDER(qp, EOPNOTSUPP, ibv_wr_atomic_cmp_swp(qp, 0, 0, 0, 0));
  REFUSES_BUILDER(qp, EOPNOTSUPP, ibv_wr_atomic_fetch_add(qp, 0, 0, 0));
  REFUSES_BUILDER(qp, EOPNOTSUPP, ibv_wr_bind_mw(qp, NULL, 0, &bind));
  REFUSES_BUILDER(qp, EOPNOTSUPP, ibv_wr_local_inv(qp, 0));
  REFUSES_BUILDER(qp, EOPNOTSUPP, ibv_wr_rdma_read(qp, 0, 0));
  REFUSES_BUILDER(qp, EOPNOTSUPP, ibv_wr_rdma_write(qp, 0, 0));
  REFUSES_BUILDER(qp, EOPNOTSUPP, ibv_wr_rdma_write_imm(qp, 0, 0, 0));
  REFUSES_BUILDER(qp, EOPNOTSUPP, ibv_wr_send_imm(qp, 0));
  REFUSES_BUILDER(qp, EOPNOTSUPP, ibv_wr_send_inv(qp, 0));
  REFUSES_BUILDER(qp, EOPNOTSUPP, ibv_wr_send_tso(qp, NULL, 0, 0));
  REFUSES_BUILDER(qp, EOPNOTSUPP, ibv_wr_atomic_write(qp, 0, 0, &word));
  /* These are setters without a builder, and a queue pair that may not send yet. */
  REFUSES_BUILDER(qp, EINVAL, ibv_wr_set_ud_addr(qp, NULL, 0, 0));
  REFUSES_BUILDER(qp, EINVAL, ibv_wr_set_xrc_srqn(qp, 1));
  REFUSES_BUILDER(qp, EINVAL, ibv_wr_set_inline_data(qp, NULL, 0));
  REFUSES_BUILDER(qp, EINVAL, ibv_wr_set_inline_data_list(qp, 0, NULL));
  REFUSES_BUILDER(qp, EINVAL, ibv_wr_set_sge(qp, 0, 0, 0));
  REFUSES_BUILDER(qp, EINVAL, ibv_wr_set_sge_list(qp, 1, NULL));
  REFUSES_BUILDER(qp, EINVAL, ibv_wr_send(qp));
  ibv_wr_start(qp);
  ibv_wr_abort(qp);
}

static void completion_queue_slots(struct ibv_cq_ex* cq) {
  no_slot_is_null("ibv_cq_ex", &cq->start_poll,
                  sizeof(*cq) - offsetof(struct ibv_cq_ex, start_poll));
  struct ibv_poll_cq_attr unknown = {.comp_mask = 1};
  struct ibv_wc_tm_info tags;
  CHECK(ibv_start_poll(cq, &unknown) == EINVAL);
  CHECK(ibv_start_poll(cq, NULL) == ENOENT);
  CHECK(ibv_next_poll(cq) == ENOENT);
  CHECK(ibv_wc_read_completion_ts(cq) == 0);
  CHECK(ibv_wc_read_completion_wallclock_ns(cq) == 0);
  CHECK(ibv_wc_read_cvlan(cq) == 0);
  CHECK(ibv_wc_read_flow_tag(cq) == 0);
  ibv_wc_read_tm_info(cq, &tags);
}

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

static void functions_given_nothing(struct ibv_context* context, struct ibv_pd* pd,
                                    struct ibv_qp* qp, struct ibv_srq* srq) {
  struct ibv_async_event event = {.event_type = IBV_EVENT_PORT_ACTIVE};
  struct ibv_cq* cq;
  void* cq_context;
  union ibv_gid gid;
  struct ibv_gid_entry entry;
  __be16 pkey;
  CHECK(ibv_get_device_name(NULL) == NULL);
  CHECK(ibv_get_device_guid(NULL) == 0);
  CHECK(ibv_get_device_index(NULL) == -1);
  CHECK(ibv_open_device(NULL) == NULL);
  CHECK(ibv_close_device(NULL) != 0);
  CHECK(ibv_import_device(-1) == NULL && errno == EBADF);
  CHECK(ibv_import_pd(context, 0) == NULL && errno == ENOENT);
  CHECK(ibv_import_mr(pd, 0) == NULL && errno == ENOENT);
  CHECK(ibv_import_mr(NULL, 0) == NULL && errno == EINVAL);
  CHECK(ibv_import_dm(context, 0) == NULL && errno == ENOENT);
  ibv_unimport_pd(NULL);
  ibv_unimport_mr(NULL);
  ibv_unimport_dm(NULL);
  CHECK(ibv_get_async_event(NULL, NULL) == -1);
  ibv_ack_async_event(NULL);
  ibv_ack_async_event(&event);
  CHECK(ibv_query_device(context, NULL) != 0);
  CHECK(ibv_query_port(context, 0, NULL) != 0);
  CHECK(ibv_query_gid(context, 1, -1, &gid) == -1);
  CHECK(ibv_query_gid(context, 2, 0, &gid) == -1);
  CHECK(ibv_query_gid_ex(context, 1, 1000, &entry, 0) == EINVAL);
  CHECK(ibv_query_gid_ex(context, 1, 15, &entry, 0) == ENODATA);
  CHECK(ibv_query_gid_table(context, &entry, 0, 0) == -EINVAL);
  CHECK(ibv_query_pkey(context, 1, 1, &pkey) == -1);
  CHECK(ibv_get_pkey_index(context, 1, 0x1234) == -1);
  CHECK(ibv_alloc_pd(NULL) == NULL);
  CHECK(ibv_dealloc_pd(NULL) != 0);
  CHECK(ibv_reg_mr(NULL, NULL, 0, 0) == NULL);
  CHECK(ibv_reg_mr(pd, NULL, 4096, IBV_ACCESS_LOCAL_WRITE) == NULL && errno == EFAULT);
  CHECK(ibv_reg_mr(pd, &gid, 0, 0) == NULL && errno == EINVAL);
  CHECK(ibv_reg_mr(pd, &gid, sizeof(gid), IBV_ACCESS_REMOTE_WRITE) == NULL && errno == EINVAL);
  CHECK(ibv_reg_mr(pd, &gid, sizeof(gid), 1 << 9) == NULL && errno == EOPNOTSUPP);
  CHECK(ibv_reg_mr_iova(pd, NULL, 4096, 0, 0) == NULL);
  CHECK(ibv_reg_mr_iova2(pd, NULL, 4096, 0, 0) == NULL);
  CHECK(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, -1, 0) == NULL && errno == EBADF);
  CHECK(ibv_reg_dmabuf_mr(NULL, 0, 4096, 0, 0, 0) == NULL && errno == EINVAL);
  CHECK(ibv_rereg_mr(NULL, 0, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT);
  CHECK(ibv_dereg_mr(NULL) != 0);
  CHECK(ibv_create_comp_channel(NULL) == NULL);
  CHECK(ibv_destroy_comp_channel(NULL) != 0);
  CHECK(ibv_create_cq(context, 0, NULL, NULL, 0) == NULL && errno == EINVAL);
  CHECK(ibv_create_cq(context, 1 << 30, NULL, NULL, 0) == NULL && errno == EINVAL);
  CHECK(ibv_create_cq(context, 1, NULL, NULL, 1000) == NULL && errno == EINVAL);
  CHECK(ibv_resize_cq(NULL, 1) != 0);
  CHECK(ibv_destroy_cq(NULL) != 0);
  CHECK(ibv_get_cq_event(NULL, &cq, &cq_context) == -1);
  ibv_ack_cq_events(NULL, 1);
  CHECK(ibv_create_srq(pd, NULL) == NULL);
  CHECK(ibv_modify_srq(srq, NULL, 0) != 0);
  CHECK(ibv_query_srq(srq, NULL) != 0);
  CHECK(ibv_destroy_srq(NULL) != 0);
  CHECK(ibv_create_qp(pd, NULL) == NULL);
  CHECK(ibv_qp_to_qp_ex(NULL) == NULL);
  CHECK(ibv_modify_qp(qp, NULL, 0) != 0);
  CHECK(ibv_query_qp(qp, NULL, 0, NULL) != 0);
  CHECK(ibv_destroy_qp(NULL) != 0);
  CHECK(ibv_query_qp_data_in_order(qp, IBV_WR_SEND, 0) == 0);
  CHECK(ibv_set_ece(qp, NULL) == EOPNOTSUPP);
  CHECK(ibv_query_ece(qp, NULL) == EOPNOTSUPP);
  CHECK(ibv_create_ah(pd, NULL) == NULL);
  CHECK(ibv_init_ah_from_wc(context, 1, NULL, NULL, NULL) == -1);
  CHECK(ibv_create_ah_from_wc(NULL, NULL, NULL, 1) == NULL);
  CHECK(ibv_destroy_ah(NULL) != 0);
  CHECK(ibv_attach_mcast(qp, &gid, 0) == EINVAL);
  CHECK(ibv_detach_mcast(qp, &gid, 0) == EINVAL);
  CHECK(ibv_attach_mcast(NULL, NULL, 0) == EINVAL);
  CHECK(ibv_detach_mcast(NULL, NULL, 0) == EINVAL);
  CHECK(ibv_resolve_eth_l2_from_gid(context, NULL, NULL, NULL) == -1);
  CHECK(ibv_fork_init() == 0);
  CHECK(ibv_is_fork_initialized() == IBV_FORK_UNNEEDED);
}

/* Queries the port as a program does that was built when the struct had 48 bytes. The bytes
   behind them belong to the program. */
static void old_port_struct(struct ibv_context* context) {
  unsigned char bytes[64];
  memset(bytes, 0xAB, sizeof(bytes));
  CHECK(ibv_query_port(context, 1, (struct _compat_ibv_port_attr*)bytes) == 0);
  for (size_t i = 48; i < sizeof(bytes); ++i) CHECK(bytes[i] == 0xAB);
  CHECK(bytes[46] == IBV_LINK_LAYER_ETHERNET);
}

int main(void) {
  int count = -1;
  struct ibv_device** devices = ibv_get_device_list(&count);
  CHECK(devices != NULL && count == 1 && devices[1] == NULL);
  if (devices == NULL) return 1;
  struct ibv_context* context = ibv_open_device(devices[0]);
  ibv_free_device_list(devices);
  CHECK(context != NULL);
  if (context == NULL) return 1;
  struct ibv_pd* pd = ibv_alloc_pd(context);
  struct ibv_cq_init_attr_ex cq_attributes = {.cqe = 4};
  struct ibv_cq_ex* cq = ibv_create_cq_ex(context, &cq_attributes);
  struct ibv_srq_init_attr srq_attributes = {.attr = {.max_wr = 4, .max_sge = 1}};
  struct ibv_srq* srq = ibv_create_srq(pd, &srq_attributes);
  struct ibv_qp_init_attr_ex qp_attributes = {
      .send_cq = ibv_cq_ex_to_cq(cq),
      .recv_cq = ibv_cq_ex_to_cq(cq),
      .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
      .qp_type = IBV_QPT_RC,
      .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
      .pd = pd,
      .send_ops_flags = IBV_QP_EX_WITH_SEND};
  struct ibv_qp* qp = ibv_create_qp_ex(context, &qp_attributes);
  CHECK(pd != NULL && cq != NULL && srq != NULL && qp != NULL);
  if (pd == NULL || cq == NULL || srq == NULL || qp == NULL) return 1;

  context_slots(context, pd, qp, ibv_cq_ex_to_cq(cq), srq);
  queue_pair_slots(ibv_qp_to_qp_ex(qp));
  completion_queue_slots(cq);
  functions_given_nothing(context, pd, qp, srq);
  old_port_struct(context);

  CHECK(ibv_dealloc_pd(pd) == EBUSY);
  CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == EBUSY);
  CHECK(ibv_destroy_qp(qp) == 0);
  CHECK(ibv_destroy_srq(srq) == 0);
  CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
  CHECK(ibv_dealloc_pd(pd) == 0);
  CHECK(ibv_close_device(context) == 0);
  if (failures == 0) printf("every slot refuses or serves\n");
  return failures != 0;
}
