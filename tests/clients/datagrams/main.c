// Sends datagrams between two UD queue pairs of one process, faster than they are received, and
// prints how many requests completed and how many datagrams arrived. It stays until a signal ends
// it, so that its counters can be read at rest.
//
//   datagrams COUNT

#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { depth = 128, receives = 16, header_bytes = 40, bytes = 256, slot_bytes = 512 };
static const unsigned qkey = 0x11111111;
static char memory[(receives + 1) * slot_bytes];

static void fail(const char* what) {
  perror(what);
  exit(1);
}

static struct ibv_qp* make(struct ibv_pd* pd, struct ibv_cq* sends, struct ibv_cq* receipts) {
  struct ibv_qp_init_attr wanted = {.send_cq = sends,
                                    .recv_cq = receipts,
                                    .cap = {depth, receives, 1, 1, 0},
                                    .qp_type = IBV_QPT_UD,
                                    .sq_sig_all = 1};
  struct ibv_qp* qp = ibv_create_qp(pd, &wanted);
  struct ibv_qp_attr attributes = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = qkey};
  if (qp == NULL ||
      ibv_modify_qp(qp, &attributes,
                    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) != 0) {
    fail("queue pair");
  }
  attributes.qp_state = IBV_QPS_RTR;
  if (ibv_modify_qp(qp, &attributes, IBV_QP_STATE) != 0) fail("RTR");
  attributes.qp_state = IBV_QPS_RTS;
  if (ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_SQ_PSN) != 0) fail("RTS");
  return qp;
}

static struct ibv_mr* region;

static void post_receive(struct ibv_qp* qp, unsigned long slot) {
  struct ibv_sge sge = {(unsigned long)&memory[slot * slot_bytes], slot_bytes, region->lkey};
  struct ibv_recv_wr request = {.wr_id = slot, .sg_list = &sge, .num_sge = 1}, *bad;
  if (ibv_post_recv(qp, &request, &bad) != 0) fail("receive");
}

int main(int count, char** arguments) {
  const long wanted = count > 1 ? atol(arguments[1]) : 1000;
  struct ibv_device** devices = ibv_get_device_list(NULL);
  if (devices == NULL || devices[0] == NULL) fail("device");
  struct ibv_context* context = ibv_open_device(devices[0]);
  struct ibv_pd* pd = ibv_alloc_pd(context);
  region = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
  struct ibv_cq* sends = ibv_create_cq(context, depth, NULL, NULL, 0);
  struct ibv_cq* receipts = ibv_create_cq(context, receives, NULL, NULL, 0);
  if (region == NULL || sends == NULL || receipts == NULL) fail("objects");
  struct ibv_qp* from = make(pd, sends, receipts);
  struct ibv_qp* to = make(pd, sends, receipts);
  struct ibv_ah_attr address = {.is_global = 1, .port_num = 1};
  if (ibv_query_gid(context, 1, 0, &address.grh.dgid) != 0) fail("GID");
  struct ibv_ah* handle = ibv_create_ah(pd, &address);
  if (handle == NULL) fail("address");
  for (unsigned long i = 0; i < receives; ++i) post_receive(to, i);

  long posted = 0, sent = 0, arrived = 0;
  time_t last = time(NULL);
  while (sent < wanted || time(NULL) - last < 2) {
    struct ibv_wc done[16];
    for (; posted < wanted && posted - sent < depth; ++posted) {
      struct ibv_sge sge = {(unsigned long)&memory[receives * slot_bytes], bytes, region->lkey};
      struct ibv_send_wr request = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
      request.wr.ud.ah = handle;
      request.wr.ud.remote_qpn = to->qp_num;
      request.wr.ud.remote_qkey = qkey;
      if (ibv_post_send(from, &request, &bad) != 0) fail("send");
    }
    const int completed = ibv_poll_cq(sends, 16, done);
    for (int i = 0; i < completed; ++i) {
      if (done[i].status != IBV_WC_SUCCESS) fail("completion");
      ++sent;
    }
    const int got = ibv_poll_cq(receipts, 1, done);  // one for many that are sent
    if (got > 0) {
      ++arrived;
      post_receive(to, done[0].wr_id);
    }
    if (completed > 0 || got > 0) last = time(NULL);
  }
  printf("%ld sent, %ld arrived\n", sent, arrived);
  fflush(stdout);
  pause();
  return 0;
}
