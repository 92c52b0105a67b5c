// Two queue pairs of one process, connected to each other, send each other messages in turn. Each
// message must arrive whole, once and in order, and a WRITE must change exactly the bytes that it
// names.
//
// The exit status is 0 if all of that holds. Without an RDMA device it is 1.

#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
  rounds = 1000,
  message_bytes = 3000,
  write_bytes = 5000,
  write_offset = 777,
  margin = 64,
  limit_s = 20
};

#define REQUIRE(condition)                                                                \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      fprintf(stderr, "%s:%d: this does not hold: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                            \
    }                                                                                     \
  } while (0)

// One end of the connection.
struct end {
  struct ibv_cq* cq;
  struct ibv_qp* qp;
  struct ibv_mr* mr;
  unsigned char* memory;  // data to send, then received data, then memory for WRITE
  uint32_t first_psn;
};

enum {
  send_at = 0,
  receive_at = message_bytes,
  write_at = 2 * message_bytes,
  memory_bytes = write_at + 8192
};

static struct ibv_context* open_first_device(void) {
  int count = 0;
  struct ibv_device** list = ibv_get_device_list(&count);
  if (list == NULL || count == 0) {
    fprintf(stderr, "there is no RDMA device here; run this test with: tulle run -- ctest\n");
    exit(1);
  }
  struct ibv_context* context = ibv_open_device(list[0]);
  REQUIRE(context != NULL);
  printf("device: %s\n", ibv_get_device_name(list[0]));
  ibv_free_device_list(list);
  return context;
}

static void make_end(struct end* end, struct ibv_context* context, struct ibv_pd* pd,
                     uint32_t first_psn) {
  end->first_psn = first_psn;
  end->memory = calloc(1, memory_bytes);
  REQUIRE(end->memory != NULL);
  end->mr =
      ibv_reg_mr(pd, end->memory, memory_bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  REQUIRE(end->mr != NULL);
  end->cq = ibv_create_cq(context, 16, NULL, NULL, 0);
  REQUIRE(end->cq != NULL);
  struct ibv_qp_init_attr attributes = {
      .send_cq = end->cq,
      .recv_cq = end->cq,
      .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
      .qp_type = IBV_QPT_RC,
  };
  end->qp = ibv_create_qp(pd, &attributes);
  REQUIRE(end->qp != NULL);
}

static void connect_end(struct end* end, const struct end* peer, struct ibv_context* context) {
  struct ibv_port_attr port;
  union ibv_gid gid;
  REQUIRE(ibv_query_port(context, 1, &port) == 0);
  REQUIRE(port.state == IBV_PORT_ACTIVE);
  REQUIRE(ibv_query_gid(context, 1, 0, &gid) == 0);
  struct ibv_qp_attr attributes = {
      .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
  REQUIRE(ibv_modify_qp(end->qp, &attributes,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
  attributes = (struct ibv_qp_attr){
      .qp_state = IBV_QPS_RTR,
      .path_mtu = port.active_mtu,
      .dest_qp_num = peer->qp->qp_num,
      .rq_psn = peer->first_psn,
      .max_dest_rd_atomic = 1,
      .min_rnr_timer = 12,
      .ah_attr = {.is_global = 1,
                  .port_num = 1,
                  .dlid = port.lid,
                  .grh = {.dgid = gid, .hop_limit = 1}},
  };
  REQUIRE(ibv_modify_qp(end->qp, &attributes,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
  attributes = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
                                    .sq_psn = end->first_psn,
                                    .timeout = 14,
                                    .retry_cnt = 7,
                                    .rnr_retry = 7,
                                    .max_rd_atomic = 1};
  REQUIRE(ibv_modify_qp(end->qp, &attributes,
                        IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                            IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static void post_receive(struct end* end) {
  memset(end->memory + receive_at, 0, message_bytes);
  struct ibv_sge sge = {(uintptr_t)end->memory + receive_at, message_bytes, end->mr->lkey};
  struct ibv_recv_wr request = {.wr_id = receive_at, .sg_list = &sge, .num_sge = 1};
  struct ibv_recv_wr* refused = NULL;
  REQUIRE(ibv_post_recv(end->qp, &request, &refused) == 0);
}

static void post(struct end* end, struct ibv_send_wr* request) {
  struct ibv_send_wr* refused = NULL;
  request->send_flags = IBV_SEND_SIGNALED;
  request->num_sge = 1;
  REQUIRE(ibv_post_send(end->qp, request, &refused) == 0);
}

// Waits for one completion, which must be a success.
static struct ibv_wc await(struct end* end) {
  struct ibv_wc wc;
  const time_t begin = time(NULL);
  int found = 0;
  while (found == 0) {
    found = ibv_poll_cq(end->cq, 1, &wc);
    REQUIRE(time(NULL) - begin < limit_s);
  }
  REQUIRE(found == 1);
  if (wc.status != IBV_WC_SUCCESS)
    fprintf(stderr, "completion: %s\n", ibv_wc_status_str(wc.status));
  REQUIRE(wc.status == IBV_WC_SUCCESS);
  return wc;
}

static unsigned char byte_of(int round, int position) {
  return (unsigned char)(round * 31 + position * 7 + 1);
}

static void send_message(struct end* from, struct end* to, int round) {
  post_receive(to);
  for (int i = 0; i < message_bytes; ++i) from->memory[send_at + i] = byte_of(round, i);
  struct ibv_sge sge = {(uintptr_t)from->memory + send_at, message_bytes, from->mr->lkey};
  struct ibv_send_wr request = {.wr_id = send_at, .sg_list = &sge, .opcode = IBV_WR_SEND_WITH_IMM};
  request.imm_data = (uint32_t)round;
  post(from, &request);
  REQUIRE(await(from).opcode == IBV_WC_SEND);
  const struct ibv_wc arrived = await(to);
  REQUIRE(arrived.opcode == IBV_WC_RECV);
  REQUIRE(arrived.byte_len == message_bytes);
  REQUIRE((arrived.wc_flags & IBV_WC_WITH_IMM) != 0 && arrived.imm_data == (uint32_t)round);
  for (int i = 0; i < message_bytes; ++i) REQUIRE(to->memory[receive_at + i] == byte_of(round, i));
}

static void write_into(struct end* from, struct end* to) {
  for (int i = 0; i < write_bytes; ++i) from->memory[write_at + i] = byte_of(5, i);
  struct ibv_sge sge = {(uintptr_t)from->memory + write_at, write_bytes, from->mr->lkey};
  struct ibv_send_wr request = {.sg_list = &sge, .opcode = IBV_WR_RDMA_WRITE};
  request.wr.rdma.remote_addr = (uintptr_t)to->memory + write_at + write_offset;
  request.wr.rdma.rkey = to->mr->rkey;
  post(from, &request);
  REQUIRE(await(from).opcode == IBV_WC_RDMA_WRITE);
  const unsigned char* written = to->memory + write_at + write_offset;
  for (int i = 0; i < write_bytes; ++i) REQUIRE(written[i] == byte_of(5, i));
  for (int i = 1; i <= margin; ++i) REQUIRE(written[-i] == 0 && written[write_bytes + i - 1] == 0);
}

static void destroy_end(struct end* end) {
  REQUIRE(ibv_destroy_qp(end->qp) == 0);
  REQUIRE(ibv_destroy_cq(end->cq) == 0);
  REQUIRE(ibv_dereg_mr(end->mr) == 0);
  free(end->memory);
}

int main(void) {
  struct ibv_context* context = open_first_device();
  struct ibv_pd* pd = ibv_alloc_pd(context);
  REQUIRE(pd != NULL);
  struct end here, there;
  make_end(&here, context, pd, 0xFFFFF0);  // the sequence number wraps around soon
  make_end(&there, context, pd, 7);
  connect_end(&here, &there, context);
  connect_end(&there, &here, context);
  for (int round = 0; round < rounds; ++round) {
    send_message(&here, &there, round);
    send_message(&there, &here, round + rounds);
  }
  write_into(&here, &there);
  destroy_end(&here);
  destroy_end(&there);
  REQUIRE(ibv_dealloc_pd(pd) == 0);
  REQUIRE(ibv_close_device(context) == 0);
  printf("%d messages each way and a WRITE of %d bytes arrived whole\n", rounds, write_bytes);
  return 0;
}
