#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "integrity.h"

#define QUEUE_DEPTH 128
#define COMPLETION_SECONDS \
  30.0 /* an ACK timeout of 67 ms, doubled and tried again, stays far below */

static enum ibv_mtu mtu_of(const struct options* options, enum ibv_mtu most) {
  for (enum ibv_mtu mtu = IBV_MTU_256; mtu <= IBV_MTU_4096; ++mtu) {
    if (128 << mtu == options->mtu) return mtu;
  }
  return most;
}

static struct ibv_context* open_device(const char* name) {
  int count = 0;
  struct ibv_device** devices = ibv_get_device_list(&count);
  if (devices == NULL) die("no list of devices: %s", strerror(errno));
  struct ibv_context* context = NULL;
  for (int i = 0; i < count && context == NULL; ++i) {
    if (name == NULL || strcmp(name, ibv_get_device_name(devices[i])) == 0) {
      context = ibv_open_device(devices[i]);
      if (context == NULL)
        die("cannot open %s: %s", ibv_get_device_name(devices[i]), strerror(errno));
    }
  }
  ibv_free_device_list(devices);
  if (context == NULL) die("no RDMA device%s%s", name != NULL ? " " : "", name != NULL ? name : "");
  return context;
}

static uint8_t* aligned_memory(size_t bytes) {
  uint8_t* memory = aligned_alloc(4096, bytes);
  if (memory == NULL) die("out of memory");
  pattern_fill(memory, bytes, BACKGROUND, 0);
  return memory;
}

void endpoint_open(struct endpoint* e, const struct options* options) {
  *e = (struct endpoint){.options = options, .is_server = options->server == NULL};
  e->context = open_device(options->device);
  e->is_soft_roce =
      options->soft_roce && strncmp(ibv_get_device_name(e->context->device), "rxe", 3) == 0;
  if (ibv_query_port(e->context, 1, &e->port) != 0) die("ibv_query_port: %s", strerror(errno));
  if (e->port.state != IBV_PORT_ACTIVE) die("the port is not active");
  e->mtu = mtu_of(options, e->port.active_mtu);
  e->pd = ibv_alloc_pd(e->context);
  if (e->pd == NULL) die("ibv_alloc_pd: %s", strerror(errno));
  if (options->events) {
    e->channel = ibv_create_comp_channel(e->context);
    if (e->channel == NULL) die("ibv_create_comp_channel: %s", strerror(errno));
  }
  e->send_cq = ibv_create_cq(e->context, 1024, NULL, e->channel, 0);
  e->receive_cq = ibv_create_cq(e->context, 1024, NULL, e->channel, 0);
  if (e->send_cq == NULL || e->receive_cq == NULL) die("ibv_create_cq: %s", strerror(errno));
  struct ibv_srq_init_attr srq = {.attr = {.max_wr = QUEUE_DEPTH, .max_sge = MAX_PIECES}};
  e->srq = ibv_create_srq(e->pd, &srq);
  if (e->srq == NULL) die("ibv_create_srq: %s", strerror(errno));

  e->memory = aligned_memory(2 * HALF_BYTES);
  e->region = ibv_reg_mr(e->pd, e->memory, 2 * HALF_BYTES,
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                             IBV_ACCESS_REMOTE_ATOMIC);
  e->spare = aligned_memory(SLOT_BYTES);
  e->spare_region = ibv_reg_mr(e->pd, e->spare, SLOT_BYTES, IBV_ACCESS_LOCAL_WRITE);
  if (e->region == NULL || e->spare_region == NULL) die("ibv_reg_mr: %s", strerror(errno));

  e->here = (struct address){.memory = (uintptr_t)e->memory,
                             .rkey = e->region->rkey,
                             .spare_rkey = e->spare_region->rkey,
                             .spare_memory = (uintptr_t)e->spare};
  struct ibv_gid_entry gid;
  if (ibv_query_gid_ex(e->context, 1, (uint32_t)options->gid_index, &gid, 0) != 0) {
    die("no GID with index %d", options->gid_index);
  }
  e->here.gid = gid.gid;
  e->has_ip = gid.gid_type == IBV_GID_TYPE_ROCE_V2;
  side_channel_swap(&e->here, &e->there, sizeof e->here);
  uint32_t ours = e->mtu, theirs;
  side_channel_swap(&ours, &theirs, sizeof ours);
  if (theirs < ours) e->mtu = (enum ibv_mtu)theirs;
}

void endpoint_close(struct endpoint* e) {
  if (ibv_dereg_mr(e->region) != 0 || ibv_dereg_mr(e->spare_region) != 0)
    die("ibv_dereg_mr failed");
  if (ibv_destroy_srq(e->srq) != 0) die("ibv_destroy_srq failed");
  if (ibv_destroy_cq(e->send_cq) != 0 || ibv_destroy_cq(e->receive_cq) != 0)
    die("ibv_destroy_cq failed");
  if (e->channel != NULL && ibv_destroy_comp_channel(e->channel) != 0)
    die("ibv_destroy_comp_channel failed");
  if (ibv_dealloc_pd(e->pd) != 0) die("ibv_dealloc_pd failed");
  if (ibv_close_device(e->context) != 0) die("ibv_close_device failed");
  free(e->memory);
  free(e->spare);
}

/* --- queue pairs ------------------------------------------------------------------------------ */

static void modify(struct ibv_qp* qp, struct ibv_qp_attr* attributes, int mask, const char* to) {
  const int error = ibv_modify_qp(qp, attributes, mask);
  if (error != 0) die("ibv_modify_qp to %s: %s", to, strerror(error));
}

static struct ibv_ah_attr route(const struct endpoint* e) {
  return (struct ibv_ah_attr){
      .is_global = 1,
      .port_num = 1,
      .grh = {.dgid = e->there.gid, .sgid_index = (uint8_t)e->options->gid_index, .hop_limit = 64}};
}

static void to_init(const struct link* link) {
  struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1};
  int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
  if (link->type == IBV_QPT_UD) {
    init.qkey = UD_QKEY;
    mask |= IBV_QP_QKEY;
  } else {
    init.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    if (link->type == IBV_QPT_RC)
      init.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    mask |= IBV_QP_ACCESS_FLAGS;
  }
  modify(link->qp, &init, mask, "INIT");
}

/* Soft-RoCE retries without end if the count is 7. Over a lossy network it needs that: it counts
   a NAK for a missing packet like a timeout, however far the message has come since. */
static uint8_t retry_count(const struct options* options) {
  return options->soft_roce && !options->lossy ? 6 : 7;
}

static void to_ready(const struct endpoint* e, const struct link* link, uint32_t our_psn,
                     uint32_t their_psn) {
  struct ibv_qp_attr receive = {.qp_state = IBV_QPS_RTR,
                                .path_mtu = e->mtu,
                                .dest_qp_num = link->remote_qp,
                                .rq_psn = their_psn,
                                .max_dest_rd_atomic = 8,
                                .min_rnr_timer = 1,
                                .ah_attr = route(e)};
  struct ibv_qp_attr send = {.qp_state = IBV_QPS_RTS,
                             .sq_psn = our_psn,
                             .timeout = 14,
                             .retry_cnt = retry_count(e->options),
                             .rnr_retry = 6,
                             .max_rd_atomic = 8};
  int receive_mask = IBV_QP_STATE, send_mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (link->type != IBV_QPT_UD)
    receive_mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (link->type == IBV_QPT_RC) {
    receive_mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    send_mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  }
  modify(link->qp, &receive, receive_mask, "RTR");
  modify(link->qp, &send, send_mask, "RTS");
}

struct link link_open(struct endpoint* e, enum ibv_qp_type type, bool with_srq) {
  struct link link = {.type = type, .has_srq = with_srq};
  struct ibv_qp_init_attr init = {.send_cq = e->send_cq,
                                  .recv_cq = e->receive_cq,
                                  .srq = with_srq ? e->srq : NULL,
                                  .qp_type = type,
                                  .sq_sig_all = 0,
                                  .cap = {.max_send_wr = QUEUE_DEPTH,
                                          .max_recv_wr = with_srq ? 0 : QUEUE_DEPTH,
                                          .max_send_sge = MAX_PIECES,
                                          .max_recv_sge = with_srq ? 0 : MAX_PIECES,
                                          .max_inline_data = 256}};
  link.qp = ibv_create_qp(e->pd, &init);
  if (link.qp == NULL) die("ibv_create_qp: %s", strerror(errno));
  struct {
    uint32_t qp, psn;
  } ours = {link.qp->qp_num, (link.qp->qp_num * 2654435761u) & 0xFFFFFF}, theirs;
  if (e->options->first_psn >= 0) ours.psn = (uint32_t)e->options->first_psn;
  to_init(&link);
  side_channel_swap(&ours, &theirs, sizeof ours);
  link.remote_qp = theirs.qp;
  to_ready(e, &link, ours.psn, theirs.psn);
  if (type == IBV_QPT_UD) {
    struct ibv_ah_attr to = route(e);
    link.ah = ibv_create_ah(e->pd, &to);
    if (link.ah == NULL) die("ibv_create_ah: %s", strerror(errno));
  }
  barrier(e);
  return link;
}

void link_close(struct link* link) {
  if (link->ah != NULL && ibv_destroy_ah(link->ah) != 0) die("ibv_destroy_ah failed");
  if (ibv_destroy_qp(link->qp) != 0) die("ibv_destroy_qp failed");
}

/* --- order ------------------------------------------------------------------------------------ */

/* The barrier orders this program and the device by way of the peer: a store here, the barrier,
   the peer's request, the device's execution of that request. The thread sanitizer looks at one
   process, where a target makes no call between its store and the peer's request. Any call into
   the device takes a lock, which shows the sanitizer that order. */
static void show_order(struct endpoint* e) {
#ifdef __SANITIZE_THREAD__
  struct ibv_port_attr port;
  if (ibv_query_port(e->context, 1, &port) != 0) die("ibv_query_port: %s", strerror(errno));
#else
  (void)e;
#endif
}

void barrier(struct endpoint* e) {
  show_order(e);
  const uint32_t ours = 0xBA221E2;
  uint32_t theirs;
  side_channel_swap(&ours, &theirs, sizeof ours);
  if (ours != theirs) die("the two sides are out of step");
  show_order(e);
}

/* --- work and completions --------------------------------------------------------------------- */

void post_send(struct link* link, struct ibv_send_wr* wr) {
  struct ibv_send_wr* bad;
  if (link->type == IBV_QPT_UD) {
    wr->wr.ud.ah = link->ah;
    wr->wr.ud.remote_qpn = link->remote_qp;
    wr->wr.ud.remote_qkey = UD_QKEY;
  }
  const int error = ibv_post_send(link->qp, wr, &bad);
  if (error != 0) die("ibv_post_send: %s", strerror(error));
}

void post_receive(struct endpoint* e, struct link* link, struct ibv_recv_wr* wr) {
  struct ibv_recv_wr* bad;
  const int error =
      link->has_srq ? ibv_post_srq_recv(e->srq, wr, &bad) : ibv_post_recv(link->qp, wr, &bad);
  if (error != 0) die("posting a receive: %s", strerror(error));
}

void post_plain_receive(struct endpoint* e, struct link* link, uint64_t wr_id, uint8_t* at,
                        uint32_t bytes) {
  struct ibv_sge sge = {.addr = (uintptr_t)at, .length = bytes, .lkey = e->region->lkey};
  struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = bytes > 0 ? 1 : 0};
  post_receive(e, link, &wr);
}

static int poll_once(struct ibv_cq* cq, struct ibv_wc* wc) {
  const int count = ibv_poll_cq(cq, 1, wc);
  if (count < 0) die("ibv_poll_cq failed");
  return count;
}

static void wait_for_event(struct endpoint* e, double seconds) {
  struct pollfd waiting = {.fd = e->channel->fd, .events = POLLIN};
  if (poll(&waiting, 1, (int)(seconds * 1e3) + 1) <= 0) return;
  struct ibv_cq* cq;
  void* context;
  if (ibv_get_cq_event(e->channel, &cq, &context) != 0)
    die("ibv_get_cq_event: %s", strerror(errno));
  ibv_ack_cq_events(cq, 1);
}

bool next_completion(struct endpoint* e, struct ibv_cq* cq, struct ibv_wc* wc, double seconds) {
  const double end = now_seconds() + seconds;
  while (poll_once(cq, wc) == 0) {
    const double left = end - now_seconds();
    if (left <= 0) return false;
    if (e->channel == NULL) continue;
    /* A completion that came before the arming raises no event, so the queue is polled once
       more. */
    if (ibv_req_notify_cq(cq, 0) != 0) die("ibv_req_notify_cq failed");
    if (poll_once(cq, wc) > 0) return true;
    wait_for_event(e, left);
  }
  return true;
}

struct ibv_wc expect_completion(struct endpoint* e, struct ibv_cq* cq, uint64_t wr_id,
                                enum ibv_wc_opcode opcode, const char* what) {
  struct ibv_wc wc;
  if (!next_completion(e, cq, &wc, COMPLETION_SECONDS)) die("%s: no completion", what);
  if (wc.status != IBV_WC_SUCCESS) {
    die("%s: completion status %d (%s)", what, wc.status, ibv_wc_status_str(wc.status));
  }
  if (wc.wr_id != wr_id)
    die("%s: wr_id %#llx, not %#llx", what, (long long)wc.wr_id, (long long)wr_id);
  if (wc.opcode != opcode) die("%s: completion opcode %d, not %d", what, wc.opcode, opcode);
  return wc;
}

/* --- slots ------------------------------------------------------------------------------------ */

void slot_clear(uint8_t* slot) { pattern_fill(slot, SLOT_BYTES, BACKGROUND, 0); }

void slot_put(uint8_t* slot, const struct layout* layout, uint32_t at, uint64_t stream) {
  size_t position = 0;
  for (unsigned i = 0; i < layout->count; ++i) {
    pattern_fill(slot + at + layout->piece[i].offset, layout->piece[i].length, stream, position);
    position += layout->piece[i].length;
  }
}

void slot_verify(struct endpoint* e, const uint8_t* slot, const struct layout* layout, uint32_t at,
                 uint64_t stream, const char* what) {
  static uint8_t expected[SLOT_BYTES];
  slot_clear(expected);
  slot_put(expected, layout, at, stream);
  e->bytes_verified += SLOT_BYTES;
  if (memcmp(slot, expected, SLOT_BYTES) == 0) return;
  for (uint32_t i = 0; i < SLOT_BYTES; ++i) {
    if (slot[i] != expected[i]) {
      die("%s: byte %d of the message (span %u) is %#04x, not %#04x", what, (int)i - (int)at,
          layout->span, slot[i], expected[i]);
    }
  }
}
