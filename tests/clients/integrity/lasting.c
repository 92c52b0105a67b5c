/* Runs that an outside event ends: a peer's death, a signal. */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "integrity.h"

#define OUTSTANDING 16

static void announce(const char* what) {
  printf("%s\n", what);
  fflush(stdout);
}

static void post_write(struct endpoint* e, struct link* link, uint64_t wr_id) {
  struct ibv_sge sge = {(uintptr_t)source_slot(e, 0), 4096, e->region->lkey};
  struct ibv_send_wr wr = {.wr_id = wr_id,
                           .opcode = wr_id % 2 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ,
                           .sg_list = &sge,
                           .num_sge = 1,
                           .send_flags = IBV_SEND_SIGNALED};
  wr.wr.rdma.remote_addr = remote_slot(e, 0);
  wr.wr.rdma.rkey = e->there.rkey;
  post_send(link, &wr);
}

/* The client writes and reads without end. It prints when it is under way, and what ended it. */
void run_until_error(struct endpoint* e) {
  struct link link = link_open(e, IBV_QPT_RC, false);
  announce("running");
  while (e->is_server) pause();
  uint64_t posted = 0, completed = 0;
  struct ibv_wc wc;
  double last = now_seconds();
  for (;;) {
    while (posted - completed < OUTSTANDING) post_write(e, &link, posted++);
    if (!next_completion(e, e->send_cq, &wc, 60)) die("no completion for a minute");
    if (wc.wr_id != completed++) die("completion of %llu out of order", (long long)wc.wr_id);
    if (wc.status != IBV_WC_SUCCESS) break;
    if (completed == 1000) announce("1000 operations");
    last = now_seconds();
  }
  printf("status %d (%s) %.3f s after the last success, %llu operations\n", wc.status,
         ibv_wc_status_str(wc.status), now_seconds() - last, (long long)completed - 1);
  while (completed < posted) {
    if (!next_completion(e, e->send_cq, &wc, 10)) die("a work request was not flushed");
    if (wc.wr_id != completed++ || wc.status != IBV_WC_WR_FLUSH_ERR)
      die("not flushed: status %d", wc.status);
  }
  printf("%d flushed\n", OUTSTANDING - 1);
  link_close(&link);
  endpoint_close(e);
  exit(0); /* no peer is left to be in step with */
}

void run_idle(struct endpoint* e) {
  struct link link = link_open(e, IBV_QPT_RC, false);
  announce("idle");
  for (;;) pause();
  link_close(&link);
}
