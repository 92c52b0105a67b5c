// One end of a connection with two paths, for tests of automatic path migration.
//
//   migration PORT [SERVER]
//
// Each port has two LIDs (LMC 1): the connection takes the first ones, and the second ones are its
// alternate path. The client, which names the server's host, writes to the server's memory without
// pause, and checks each write's completion. It prints "armed" when both ends are ready. When it
// has migrated it writes a thousand times more, and the server checks its memory. Each end prints
// "migrated" if it has taken the alternate path and an event has told of it. The exit status is 0
// unless something failed.

#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { slots = 16, slot_bytes = 4096, writes_after = 1000, port = 1 };

static uint8_t memory[slots][slot_bytes];

#define CHECK(condition)                                                           \
  do {                                                                             \
    if (!(condition)) {                                                            \
      fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, strerror(errno)); \
      exit(1);                                                                     \
    }                                                                              \
  } while (0)

struct end {
  uint64_t address;
  uint32_t rkey, qp;
  uint16_t lid;
};

static int listen_and_accept(const char* service) {
  const int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(listener >= 0);
  CHECK(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(service))};
  CHECK(bind(listener, (struct sockaddr*)&at, sizeof at) == 0 && listen(listener, 1) == 0);
  const int peer = accept(listener, NULL, NULL);
  CHECK(peer >= 0);
  close(listener);
  return peer;
}

static int connect_to(const char* host, const char* service) {
  const struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
  struct addrinfo* found = NULL;
  CHECK(getaddrinfo(host, service, &hints, &found) == 0);
  const int peer = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(peer >= 0 && connect(peer, found->ai_addr, found->ai_addrlen) == 0);
  freeaddrinfo(found);
  return peer;
}

// Returns a byte that a slot holds after this write.
static uint8_t pattern(uint64_t write, int at) { return (uint8_t)(write * 31 + (uint64_t)at * 7); }

static void connect_pair(struct ibv_qp* qp, const struct end* peer) {
  struct ibv_qp_attr to = {
      .qp_state = IBV_QPS_INIT, .port_num = port, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
  CHECK(ibv_modify_qp(qp, &to,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
  to.qp_state = IBV_QPS_RTR;
  to.path_mtu = IBV_MTU_4096;
  to.dest_qp_num = peer->qp;
  to.min_rnr_timer = 12;
  to.ah_attr.dlid = peer->lid;
  to.ah_attr.port_num = port;
  CHECK(ibv_modify_qp(qp, &to,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
  to.qp_state = IBV_QPS_RTS;
  to.timeout = 12;  // 17 ms
  to.retry_cnt = 3;
  to.alt_ah_attr.dlid = (uint16_t)(peer->lid + 1);
  to.alt_ah_attr.src_path_bits = 1;
  to.alt_ah_attr.port_num = to.alt_port_num = port;
  to.alt_timeout = 12;
  to.path_mig_state = IBV_MIG_REARM;
  CHECK(ibv_modify_qp(qp, &to,
                      IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                          IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_ALT_PATH |
                          IBV_QP_PATH_MIG_STATE) == 0);
}

static struct ibv_qp_attr state_of(struct ibv_qp* qp) {
  struct ibv_qp_attr now;
  struct ibv_qp_init_attr init;
  CHECK(ibv_query_qp(qp, &now, IBV_QP_PATH_MIG_STATE | IBV_QP_AV | IBV_QP_ALT_PATH, &init) == 0);
  return now;
}

static void write_slot(struct ibv_qp* qp, struct ibv_cq* cq, const struct ibv_mr* mr,
                       const struct end* peer, uint64_t write) {
  uint8_t* slot = memory[write % slots];
  for (int i = 0; i < slot_bytes; ++i) slot[i] = pattern(write, i);
  struct ibv_sge sge = {(uintptr_t)slot, slot_bytes, mr->lkey};
  struct ibv_send_wr wr = {.sg_list = &sge,
                           .num_sge = 1,
                           .opcode = IBV_WR_RDMA_WRITE,
                           .send_flags = IBV_SEND_SIGNALED},
                     *bad = NULL;
  wr.wr.rdma.remote_addr = peer->address + write % slots * slot_bytes;
  wr.wr.rdma.rkey = peer->rkey;
  CHECK(ibv_post_send(qp, &wr, &bad) == 0);
  struct ibv_wc done;
  int count;
  while ((count = ibv_poll_cq(cq, 1, &done)) == 0) continue;
  CHECK(count == 1);
  if (done.status != IBV_WC_SUCCESS) {
    printf("write %llu: %s\n", (unsigned long long)write, ibv_wc_status_str(done.status));
    exit(1);
  }
}

static void expect_migration(struct ibv_context* context, struct ibv_qp* qp,
                             const struct end* peer) {
  struct pollfd readable = {.fd = context->async_fd, .events = POLLIN};
  for (;;) {
    CHECK(poll(&readable, 1, 5000) == 1);
    struct ibv_async_event event;
    CHECK(ibv_get_async_event(context, &event) == 0);
    ibv_ack_async_event(&event);
    if (event.event_type == IBV_EVENT_PATH_MIG && event.element.qp == qp) break;
  }
  const struct ibv_qp_attr now = state_of(qp);
  CHECK(now.path_mig_state == IBV_MIG_MIGRATED);
  CHECK(now.ah_attr.dlid == peer->lid + 1 && now.ah_attr.src_path_bits == 1);
  printf("migrated\n");
}

int main(int count, char** values) {
  CHECK(count == 2 || count == 3);
  setvbuf(stdout, NULL, _IOLBF, 0);
  const int is_client = count == 3;
  const int socket_of_peer =
      is_client ? connect_to(values[2], values[1]) : listen_and_accept(values[1]);
  struct ibv_device** list = ibv_get_device_list(NULL);
  CHECK(list != NULL && list[0] != NULL);
  struct ibv_context* context = ibv_open_device(list[0]);
  CHECK(context != NULL);
  ibv_free_device_list(list);
  struct ibv_device_attr device;
  CHECK(ibv_query_device(context, &device) == 0);
  CHECK((device.device_cap_flags & IBV_DEVICE_AUTO_PATH_MIG) != 0);
  struct ibv_pd* pd = ibv_alloc_pd(context);
  struct ibv_cq* cq = ibv_create_cq(context, 16, NULL, NULL, 0);
  CHECK(pd != NULL && cq != NULL);
  struct ibv_mr* mr =
      ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  struct ibv_qp_init_attr init = {
      .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {4, 1, 1, 1, 0}};
  struct ibv_qp* qp = ibv_create_qp(pd, &init);
  struct ibv_port_attr attributes;
  CHECK(mr != NULL && qp != NULL && ibv_query_port(context, port, &attributes) == 0);
  CHECK(attributes.lmc == 1);
  const struct end own = {(uintptr_t)memory, mr->rkey, qp->qp_num, attributes.lid};
  struct end peer;
  CHECK(write(socket_of_peer, &own, sizeof own) == (ssize_t)sizeof own);
  CHECK(recv(socket_of_peer, &peer, sizeof peer, MSG_WAITALL) == (ssize_t)sizeof peer);
  connect_pair(qp, &peer);
  char ready = 0;  // both ends have loaded their paths
  CHECK(write(socket_of_peer, &ready, 1) == 1 && recv(socket_of_peer, &ready, 1, 0) == 1);

  uint64_t writes = 0;
  if (is_client) {
    int was_armed = 0;
    for (uint64_t end = UINT64_MAX; writes < end;) {
      write_slot(qp, cq, mr, &peer, writes++);
      const enum ibv_mig_state state = state_of(qp).path_mig_state;
      if (state == IBV_MIG_ARMED && !was_armed) {
        was_armed = 1;
        printf("armed\n");
      }
      if (state == IBV_MIG_MIGRATED && end == UINT64_MAX) end = writes + writes_after;
    }
    CHECK(write(socket_of_peer, &writes, sizeof writes) == (ssize_t)sizeof writes);
  } else {
    CHECK(recv(socket_of_peer, &writes, sizeof writes, MSG_WAITALL) == (ssize_t)sizeof writes);
    for (uint64_t k = writes - slots; k < writes; ++k) {
      for (int i = 0; i < slot_bytes; ++i) CHECK(memory[k % slots][i] == pattern(k, i));
    }
  }
  expect_migration(context, qp, &peer);
  CHECK(ibv_destroy_qp(qp) == 0 && ibv_dereg_mr(mr) == 0);
  CHECK(ibv_destroy_cq(cq) == 0 && ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
  close(socket_of_peer);
  return 0;
}
