/* Operations that must fail: with the completion status that IBTA 11.6.2 gives them, on the side
   that it names, without touching memory, and with every request behind them flushed. Each
   breaks its queue pair, so each has a new one. */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "integrity.h"

struct refusal {
  const char* what;
  enum ibv_wr_opcode opcode;
  uint32_t length;
  int64_t remote_offset; /* from the target slot's start */
  bool wrong_rkey;
  bool spare_region; /* aim at the region that allows no remote access */
  bool wrong_lkey;
  uint32_t receive_bytes; /* size of the receive that the target posts */
  bool no_receive;
  enum ibv_wc_status initiator;
  bool may_fail_at_post;     /* the initiator's adapter may find it first */
  enum ibv_wc_status target; /* status of its receive; success: no completion is checked */
};

static const struct refusal refusals[] = {
    {.what = "WRITE with a wrong rkey",
     .opcode = IBV_WR_RDMA_WRITE,
     .length = 64,
     .wrong_rkey = true,
     .initiator = IBV_WC_REM_ACCESS_ERR},
    {.what = "READ with a wrong rkey",
     .opcode = IBV_WR_RDMA_READ,
     .length = 64,
     .wrong_rkey = true,
     .initiator = IBV_WC_REM_ACCESS_ERR},
    {.what = "WRITE past the region's end",
     .opcode = IBV_WR_RDMA_WRITE,
     .length = 64,
     .remote_offset = 2 * HALF_BYTES - 63,
     .initiator = IBV_WC_REM_ACCESS_ERR},
    {.what = "WRITE before the region's start",
     .opcode = IBV_WR_RDMA_WRITE,
     .length = 64,
     .remote_offset = -1,
     .initiator = IBV_WC_REM_ACCESS_ERR},
    {.what = "READ past the region's end",
     .opcode = IBV_WR_RDMA_READ,
     .length = 20000,
     .remote_offset = 2 * HALF_BYTES - 19999,
     .initiator = IBV_WC_REM_ACCESS_ERR},
    {.what = "WRITE to a local region",
     .opcode = IBV_WR_RDMA_WRITE,
     .length = 64,
     .spare_region = true,
     .initiator = IBV_WC_REM_ACCESS_ERR},
    {.what = "READ from a local region",
     .opcode = IBV_WR_RDMA_READ,
     .length = 64,
     .spare_region = true,
     .initiator = IBV_WC_REM_ACCESS_ERR},
    {.what = "FETCH & ADD on a local region",
     .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
     .length = 8,
     .spare_region = true,
     .initiator = IBV_WC_REM_ACCESS_ERR},
    {.what = "FETCH & ADD off its alignment",
     .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
     .length = 8,
     .remote_offset = 4,
     .initiator = IBV_WC_REM_INV_REQ_ERR,
     .may_fail_at_post = true},
    {.what = "SEND longer than the receive",
     .opcode = IBV_WR_SEND,
     .length = 9000,
     .receive_bytes = 8999,
     .initiator = IBV_WC_REM_INV_REQ_ERR,
     .target = IBV_WC_LOC_LEN_ERR},
    {.what = "SEND without a receive",
     .opcode = IBV_WR_SEND,
     .length = 64,
     .no_receive = true,
     .initiator = IBV_WC_RNR_RETRY_EXC_ERR},
    {.what = "SEND with a wrong lkey",
     .opcode = IBV_WR_SEND,
     .length = 64,
     .wrong_lkey = true,
     .receive_bytes = 64,
     .initiator = IBV_WC_LOC_PROT_ERR},
};

/* Returns true if Soft-RoCE is known to complete with another status than IBTA's. */
static bool is_known_otherwise(const struct endpoint* e, const struct refusal* r,
                               enum ibv_wc_status status) {
  if (!e->options->soft_roce) return false;
  /* The message is too long for its receive. Soft-RoCE then answers that the operation failed on
     its own side. */
  if (r->target == IBV_WC_LOC_LEN_ERR) return !e->is_soft_roce && status == IBV_WC_REM_OP_ERR;
  if (r->wrong_lkey) return e->is_soft_roce && status == IBV_WC_LOC_QP_OP_ERR;
  return false;
}

static void initiate(struct endpoint* e, struct link* link, const struct refusal* r) {
  uint8_t* slot = source_slot(e, 0);
  struct ibv_sge sge = {(uintptr_t)slot, r->length,
                        e->region->lkey ^ (r->wrong_lkey ? 0x5A5A00 : 0)};
  struct ibv_send_wr wr = {.wr_id = 1,
                           .opcode = r->opcode,
                           .sg_list = &sge,
                           .num_sge = 1,
                           .send_flags = IBV_SEND_SIGNALED};
  const uint64_t base = r->spare_region ? e->there.spare_memory : e->there.memory;
  const uint64_t remote = base + (uint64_t)r->remote_offset;
  const uint32_t rkey =
      (r->spare_region ? e->there.spare_rkey : e->there.rkey) ^ (r->wrong_rkey ? 0x5A5A00 : 0);
  if (r->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    wr.wr.atomic.remote_addr = remote;
    wr.wr.atomic.rkey = rkey;
    wr.wr.atomic.compare_add = 1;
  } else {
    wr.wr.rdma.remote_addr = remote;
    wr.wr.rdma.rkey = rkey;
  }
  struct ibv_send_wr behind = wr;
  behind.wr_id = 2;
  wr.next = &behind;
  struct ibv_send_wr* bad;
  const int error = ibv_post_send(link->qp, &wr, &bad);
  if (error == EINVAL && r->may_fail_at_post) return;
  if (error != 0) die("%s: ibv_post_send: %s", r->what, strerror(error));
  const enum ibv_wc_status expected[] = {r->initiator, IBV_WC_WR_FLUSH_ERR};
  for (unsigned i = 0; i < 2; ++i) {
    struct ibv_wc wc;
    if (!next_completion(e, e->send_cq, &wc, 60)) die("%s: no completion %u", r->what, i + 1);
    /* A responder refuses once: its queue pair is then in the error state, and a refusal that
       was lost stays lost. */
    if (i == 0 && e->options->lossy && wc.status == IBV_WC_RETRY_EXC_ERR) continue;
    if (i == 0 && is_known_otherwise(e, r, wc.status)) continue;
    if (wc.status != expected[i] || wc.wr_id != i + 1) {
      die("%s: wr_id %d completed with status %d (%s), not wr_id %u with %d (%s)", r->what,
          (int)wc.wr_id, wc.status, ibv_wc_status_str(wc.status), i + 1, expected[i],
          ibv_wc_status_str(expected[i]));
    }
  }
  struct ibv_qp_attr attributes;
  struct ibv_qp_init_attr init;
  if (ibv_query_qp(link->qp, &attributes, IBV_QP_STATE, &init) != 0) die("ibv_query_qp failed");
  if (attributes.qp_state != IBV_QPS_ERR)
    die("%s: the queue pair is in state %d", r->what, attributes.qp_state);
}

static void check_target(struct endpoint* e, const struct refusal* r) {
  if (r->target != IBV_WC_SUCCESS) {
    struct ibv_wc wc;
    if (!next_completion(e, e->receive_cq, &wc, 60))
      die("%s: no completion of the receive", r->what);
    const bool is_its_own = e->is_soft_roce && wc.status == IBV_WC_LOC_QP_OP_ERR;
    if (wc.status != r->target && !is_its_own)
      die("%s: the receive's status is %d, not %d", r->what, wc.status, r->target);
  }
  if (r->opcode == IBV_WR_SEND) return; /* a receive that failed may hold anything */
  static uint8_t expected[SLOT_BYTES];
  slot_clear(expected);
  if (memcmp(e->spare, expected, SLOT_BYTES) != 0) die("%s: changed memory", r->what);
  for (unsigned i = 0; i < 2 * SLOTS; ++i) {
    pattern_fill(expected, SLOT_BYTES, BACKGROUND, (size_t)i * SLOT_BYTES);
    if (memcmp(target_slot(e, i), expected, SLOT_BYTES) != 0) die("%s: changed memory", r->what);
  }
  e->bytes_verified += 2 * HALF_BYTES;
}

void run_refusals(struct endpoint* e) {
  for (unsigned i = 0; i < sizeof refusals / sizeof *refusals; ++i) {
    const struct refusal* r = &refusals[i];
    for (int server_initiates = 0; server_initiates < 2; ++server_initiates) {
      const bool initiator = server_initiates == e->is_server;
      struct link link = link_open(e, IBV_QPT_RC, false);
      pattern_fill(e->memory, 2 * HALF_BYTES, BACKGROUND, 0);
      if (!initiator && r->receive_bytes > 0)
        post_plain_receive(e, &link, 7, target_slot(e, 0), r->receive_bytes);
      barrier(e);
      if (initiator) initiate(e, &link, r);
      barrier(e);
      if (!initiator) check_target(e, r);
      link_close(&link);
      ++e->operations;
    }
  }
}
