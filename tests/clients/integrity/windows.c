/* Memory windows: which memory a peer can reach through a bound window, and which it can no
   longer reach. */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "integrity.h"

#define REGION_BYTES 16384u
#define WINDOW_AT 4096u
#define WINDOW_BYTES 5000u

struct window {
  struct ibv_mr* region;
  struct ibv_mw* mw;
  uint32_t rkey;
};
struct told { /* what the target tells the initiator */
  uint64_t address;
  uint32_t rkey;
};

static uint8_t memory[REGION_BYTES];

static struct window window_open(struct endpoint* e, struct link* link, enum ibv_mw_type type) {
  struct window window = {0};
  const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
  window.region = ibv_reg_mr(e->pd, memory, REGION_BYTES, access);
  if (window.region == NULL) die("windows: ibv_reg_mr: %s", strerror(errno));
  window.mw = ibv_alloc_mw(e->pd, type);
  if (window.mw == NULL) die("windows: ibv_alloc_mw: %s", strerror(errno));
  const struct ibv_mw_bind_info info = {
      .mr = window.region,
      .addr = (uintptr_t)memory + WINDOW_AT,
      .length = WINDOW_BYTES,
      .mw_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
  if (type == IBV_MW_TYPE_1) {
    struct ibv_mw_bind bind = {.wr_id = 40, .send_flags = IBV_SEND_SIGNALED, .bind_info = info};
    const int error = ibv_bind_mw(link->qp, window.mw, &bind);
    if (error != 0) die("windows: ibv_bind_mw: %s", strerror(error));
    window.rkey = window.mw->rkey;
  } else {
    window.rkey = ibv_inc_rkey(window.mw->rkey);
    struct ibv_send_wr wr = {
        .wr_id = 40, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED};
    wr.bind_mw.mw = window.mw;
    wr.bind_mw.rkey = window.rkey;
    wr.bind_mw.bind_info = info;
    post_send(link, &wr);
  }
  expect_completion(e, e->send_cq, 40, IBV_WC_BIND_MW, "windows: the bind");
  return window;
}

static void window_close(struct window* window) {
  int error = ibv_dealloc_mw(window->mw);
  if (error != 0) die("windows: ibv_dealloc_mw: %s", strerror(error));
  error = ibv_dereg_mr(window->region);
  if (error != 0) die("windows: ibv_dereg_mr: %s", strerror(error));
}

static void post_one(struct endpoint* e, struct link* link, enum ibv_wr_opcode opcode,
                     uint64_t remote, uint32_t rkey, uint32_t bytes) {
  struct ibv_sge sge = {(uintptr_t)source_slot(e, 0), bytes, e->region->lkey};
  struct ibv_send_wr wr = {.wr_id = 41,
                           .opcode = opcode,
                           .sg_list = &sge,
                           .num_sge = 1,
                           .send_flags = IBV_SEND_SIGNALED};
  if (opcode == IBV_WR_SEND_WITH_INV) {
    wr.invalidate_rkey = rkey;
  } else {
    wr.wr.rdma.remote_addr = remote;
    wr.wr.rdma.rkey = rkey;
  }
  post_send(link, &wr);
}

static void expect_refusal(struct endpoint* e, const char* what) {
  struct ibv_wc wc;
  if (!next_completion(e, e->send_cq, &wc, 60)) die("windows: %s: no completion", what);
  /* A responder refuses once, and its refusal may be lost. */
  if (e->options->lossy && wc.status == IBV_WC_RETRY_EXC_ERR) return;
  if (wc.status != IBV_WC_REM_ACCESS_ERR)
    die("windows: %s: status %d (%s)", what, wc.status, ibv_wc_status_str(wc.status));
}

static void check_memory(struct endpoint* e, const char* what) {
  static uint8_t expected[REGION_BYTES];
  pattern_fill(expected, REGION_BYTES, BACKGROUND, 0);
  pattern_fill(expected + WINDOW_AT, WINDOW_BYTES, 77, 0);
  if (memcmp(memory, expected, REGION_BYTES) != 0) die("windows: %s: wrong bytes", what);
  e->bytes_verified += REGION_BYTES;
}

/* While the window is bound, the peer can write and read all of it, but not the byte behind it.
   An invalidated window cannot be written at all. */
static void run_window(struct endpoint* e, enum ibv_mw_type type, bool invalidate,
                       bool server_initiates) {
  const bool initiator = server_initiates == e->is_server;
  const char* what = type == IBV_MW_TYPE_1 ? "type 1" : "type 2";
  struct link link = link_open(e, IBV_QPT_RC, false);
  pattern_fill(memory, REGION_BYTES, BACKGROUND, 0);
  struct window window = {0};
  struct told ours = {0}, theirs;
  if (!initiator) {
    window = window_open(e, &link, type);
    ours = (struct told){(uintptr_t)memory + WINDOW_AT, window.rkey};
    if (invalidate) post_plain_receive(e, &link, 42, target_slot(e, 0), 64);
  }
  side_channel_swap(&ours, &theirs, sizeof ours);
  if (initiator) {
    pattern_fill(source_slot(e, 0), WINDOW_BYTES, 77, 0);
    post_one(e, &link, IBV_WR_RDMA_WRITE, theirs.address, theirs.rkey, WINDOW_BYTES);
    expect_completion(e, e->send_cq, 41, IBV_WC_RDMA_WRITE, what);
    memset(source_slot(e, 0), 0, WINDOW_BYTES);
    post_one(e, &link, IBV_WR_RDMA_READ, theirs.address, theirs.rkey, WINDOW_BYTES);
    expect_completion(e, e->send_cq, 41, IBV_WC_RDMA_READ, what);
    pattern_fill(memory + WINDOW_AT, WINDOW_BYTES, 77, 0);
    if (memcmp(source_slot(e, 0), memory + WINDOW_AT, WINDOW_BYTES) != 0)
      die("windows: %s: read wrong bytes", what);
    if (invalidate) {
      post_one(e, &link, IBV_WR_SEND_WITH_INV, 0, theirs.rkey, 64);
      expect_completion(e, e->send_cq, 41, IBV_WC_SEND, what);
    }
  }
  barrier(e);
  if (!initiator && invalidate) {
    const struct ibv_wc wc = expect_completion(e, e->receive_cq, 42, IBV_WC_RECV, what);
    /* Soft-RoCE sets the kernel's own flag, which is not the bit that verbs.h has for it. */
    const unsigned with_invalidate = e->is_soft_roce ? 1u << 2 : IBV_WC_WITH_INV;
    if ((wc.wc_flags & with_invalidate) == 0 || wc.invalidated_rkey != window.rkey)
      die("windows: %s: the completion does not tell of the invalidation", what);
  }
  if (!initiator) check_memory(e, what);
  barrier(e);
  if (initiator) { /* past the window's end, or, once the window is invalid, anywhere */
    /* Soft-RoCE checks the end of the region that the window is bound to. */
    const bool at_soft_roce = e->options->soft_roce && !e->is_soft_roce;
    const uint32_t end = at_soft_roce ? REGION_BYTES - WINDOW_AT : WINDOW_BYTES;
    post_one(e, &link, IBV_WR_RDMA_WRITE, theirs.address + (invalidate ? 0 : end), theirs.rkey, 1);
    expect_refusal(e, invalidate ? "a window that is invalid" : "past the window's end");
  }
  barrier(e);
  if (!initiator) {
    check_memory(e, what);
    window_close(&window);
  }
  link_close(&link);
  ++e->operations;
}

void run_windows(struct endpoint* e) {
  for (int server_initiates = 0; server_initiates < 2; ++server_initiates) {
    run_window(e, IBV_MW_TYPE_1, false, server_initiates);
    run_window(e, IBV_MW_TYPE_2, false, server_initiates);
    run_window(e, IBV_MW_TYPE_2, true, server_initiates);
  }
}
