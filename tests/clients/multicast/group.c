// A member of a multicast group, for tests. It attaches queue pairs, sends, and prints the messages
// that come.
//
//   multicast_group GROUP [--attach N] [--send N] [--expect N] [--wait MS] [--gid INDEX]
//                   [--qkey KEY] [--hop-limit N]
//
// GROUP is an IPv4 or IPv6 address. With --attach the program prints "ready" when it is attached.
// It then waits until `expect` messages have come, or for `wait` milliseconds. It prints every
// message: the queue pair's place, the message's bytes, and the address that the GRH says it was
// sent to. The exit status is 0 unless a call failed; the caller judges the messages.

#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { pairs_max = 8, depth = 16, buffer_bytes = 128, grh_bytes = 40 };

static uint8_t memory[pairs_max][depth][buffer_bytes];

#define CHECK(condition)                                                           \
  do {                                                                             \
    if (!(condition)) {                                                            \
      fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, strerror(errno)); \
      exit(1);                                                                     \
    }                                                                              \
  } while (0)

struct options {
  union ibv_gid group;
  int attach, send, expect, wait_ms, gid, hop_limit;
  uint32_t qkey;
};

static struct options parse(int count, char** values) {
  struct options out = {.wait_ms = 2000, .qkey = 0x1234, .hop_limit = 1};
  CHECK(count >= 2 && count % 2 == 0);
  struct in_addr ipv4;
  if (inet_pton(AF_INET, values[1], &ipv4) == 1) {
    out.group.raw[10] = out.group.raw[11] = 0xFF;
    memcpy(out.group.raw + 12, &ipv4, 4);
  } else {
    CHECK(inet_pton(AF_INET6, values[1], out.group.raw) == 1);
  }
  for (int i = 2; i < count; i += 2) {
    const long value = strtol(values[i + 1], NULL, 0);
    if (strcmp(values[i], "--attach") == 0)
      out.attach = (int)value;
    else if (strcmp(values[i], "--send") == 0)
      out.send = (int)value;
    else if (strcmp(values[i], "--expect") == 0)
      out.expect = (int)value;
    else if (strcmp(values[i], "--wait") == 0)
      out.wait_ms = (int)value;
    else if (strcmp(values[i], "--gid") == 0)
      out.gid = (int)value;
    else if (strcmp(values[i], "--hop-limit") == 0)
      out.hop_limit = (int)value;
    else if (strcmp(values[i], "--qkey") == 0)
      out.qkey = (uint32_t)value;
    else
      CHECK(!"an option that is known");
  }
  CHECK(out.attach <= pairs_max);
  return out;
}

static struct ibv_qp* open_pair(struct ibv_pd* pd, struct ibv_cq* cq, uint32_t qkey) {
  struct ibv_qp_init_attr init = {
      .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD, .cap = {depth, depth, 1, 1, 64}};
  struct ibv_qp* qp = ibv_create_qp(pd, &init);
  CHECK(qp != NULL);
  struct ibv_qp_attr to = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = qkey};
  CHECK(ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
  to.qp_state = IBV_QPS_RTR;
  CHECK(ibv_modify_qp(qp, &to, IBV_QP_STATE) == 0);
  to.qp_state = IBV_QPS_RTS;
  CHECK(ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
  return qp;
}

static void print_message(const struct ibv_wc* wc, uint32_t own_qp) {
  const uint8_t* bytes = memory[wc->wr_id >> 8][wc->wr_id & 0xFF];
  char text[INET6_ADDRSTRLEN];
  // IPv4's header lies in the GRH's last 20 bytes.
  const int is_ipv4 = (bytes[20] & 0xF0) == 0x40;
  inet_ntop(is_ipv4 ? AF_INET : AF_INET6, is_ipv4 ? bytes + 36 : bytes + 24, text, sizeof text);
  printf("received %d %.*s to %s%s\n", (int)(wc->wr_id >> 8), (int)wc->byte_len - grh_bytes,
         bytes + grh_bytes, text, wc->src_qp == own_qp ? " from itself" : "");
  fflush(stdout);
}

static void send_all(struct ibv_pd* pd, struct ibv_qp* qp, const struct ibv_mr* mr,
                     const struct options* options) {
  struct ibv_ah_attr path = {.is_global = 1, .port_num = 1};
  path.grh.dgid = options->group;
  path.grh.sgid_index = (uint8_t)options->gid;
  path.grh.hop_limit = (uint8_t)options->hop_limit;
  struct ibv_ah* ah = ibv_create_ah(pd, &path);
  CHECK(ah != NULL);
  static char text[16][buffer_bytes];
  for (int i = 0; i < options->send; ++i) {
    const int bytes = snprintf(text[i % 16], buffer_bytes, "message %d", i);
    struct ibv_sge sge = {(uintptr_t)text[i % 16], (uint32_t)bytes, mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_INLINE},
                       *bad = NULL;
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = 0xFFFFFF;
    wr.wr.ud.remote_qkey = options->qkey;
    errno = ibv_post_send(qp, &wr, &bad);
    CHECK(errno == 0);
  }
  CHECK(ibv_destroy_ah(ah) == 0);
}

static double now_ms(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (double)at.tv_sec * 1e3 + (double)at.tv_nsec / 1e6;
}

int main(int count, char** values) {
  const struct options options = parse(count, values);
  int devices = 0;
  struct ibv_device** list = ibv_get_device_list(&devices);
  CHECK(list != NULL && devices > 0);
  struct ibv_context* context = ibv_open_device(list[0]);
  CHECK(context != NULL);
  ibv_free_device_list(list);
  struct ibv_pd* pd = ibv_alloc_pd(context);
  struct ibv_cq* cq = ibv_create_cq(context, 2 * pairs_max * depth, NULL, NULL, 0);
  struct ibv_mr* mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
  CHECK(pd != NULL && cq != NULL && mr != NULL);
  struct ibv_qp* qps[pairs_max];
  const int pairs = options.attach > 0 ? options.attach : 1;
  for (int i = 0; i < pairs; ++i) {
    qps[i] = open_pair(pd, cq, options.qkey);
    for (int k = 0; k < depth; ++k) {
      struct ibv_sge sge = {(uintptr_t)memory[i][k], buffer_bytes, mr->lkey};
      struct ibv_recv_wr wr = {.wr_id = (uint64_t)(i << 8 | k), .sg_list = &sge, .num_sge = 1},
                         *bad = NULL;
      CHECK(ibv_post_recv(qps[i], &wr, &bad) == 0);
    }
    if (options.attach == 0) continue;
    errno = ibv_attach_mcast(qps[i], &options.group, 0);
    CHECK(errno == 0);
    CHECK(ibv_attach_mcast(qps[i], &options.group, 0) == 0);  // a second time changes nothing
    CHECK(ibv_destroy_qp(qps[i]) == EBUSY);
  }
  if (options.attach > 0) {
    printf("ready\n");
    fflush(stdout);
  }
  if (options.send > 0) send_all(pd, qps[0], mr, &options);
  struct ibv_wc wc;
  const double end = now_ms() + options.wait_ms;
  for (int received = 0; now_ms() < end && (options.expect == 0 || received < options.expect);) {
    if (ibv_poll_cq(cq, 1, &wc) == 0 || (wc.opcode & IBV_WC_RECV) == 0) continue;
    CHECK(wc.status == IBV_WC_SUCCESS);
    print_message(&wc, qps[0]->qp_num);
    ++received;
  }
  for (int i = 0; i < pairs; ++i) {
    if (options.attach > 0) {
      CHECK(ibv_detach_mcast(qps[i], &options.group, 0) == 0);
      CHECK(ibv_detach_mcast(qps[i], &options.group, 0) == EINVAL);
    }
    CHECK(ibv_destroy_qp(qps[i]) == 0);
  }
  CHECK(ibv_dereg_mr(mr) == 0 && ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0);
  CHECK(ibv_close_device(context) == 0);
  return 0;
}
