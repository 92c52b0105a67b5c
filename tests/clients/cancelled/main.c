/* Cancels threads (pthread_cancel) that post and poll, register memory, or make ids, as rping does
   at its end, and then continues with the same objects. Threads may be cancelled by
   pthread_testcancel and while they wait for an event; the other calls must complete. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { pairs = 16, in_flight = 4, half_bytes = 1 << 20, rounds = 300, limit_seconds = 120 };

static struct ibv_context* context;
static struct ibv_pd* pd;
static struct ibv_comp_channel* channel;
static struct ibv_cq* cq;
static struct ibv_qp* qps[2 * pairs];
static struct ibv_mr* region;
static unsigned char* memory; /* what is sent, and behind it what is received */
static int outstanding[pairs];
static long done;

static struct rdma_event_channel* events;
static struct rdma_cm_id* id;

static void check(int holds, const char* what) {
  if (holds) return;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
  perror(what);
  exit(1);
}

/* --- threads that come and go --- */

static pthread_t start(void* (*run)(void*)) {
  pthread_t thread;
  check(pthread_create(&thread, NULL, run, NULL) == 0, "pthread_create");
  return thread;
}

static void cancel(pthread_t thread) {
  void* result = NULL;
  pthread_cancel(thread);
  check(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED, "pthread_cancel");
}

static void cancel_again_and_again(void* (*run)(void*), void (*check_after)(void)) {
  for (int i = 0; i < rounds; ++i) {
    const pthread_t thread = start(run);
    usleep(200 + rand() % 2000);
    cancel(thread);
    if (check_after != NULL) check_after();
  }
}

static int has_finished;

/* The thread has been cancelled before it makes its calls. */
static void* cancelled_before(void* calls) {
  pthread_cancel(pthread_self());
  (*(void (**)(void))calls)();
  has_finished = 1;
  pthread_testcancel();
  return NULL;
}

static void check_that_calls_complete(void (*calls)(void)) {
  pthread_t thread;
  has_finished = 0;
  check(pthread_create(&thread, NULL, cancelled_before, &calls) == 0, "pthread_create");
  check(pthread_join(thread, NULL) == 0 && has_finished, "calls of a cancelled thread");
}

/* --- verbs --- */

static void modify(struct ibv_qp* qp, struct ibv_qp_attr attributes, int mask) {
  check(ibv_modify_qp(qp, &attributes, mask) == 0, "ibv_modify_qp");
}

static void connect_to(struct ibv_qp* qp, uint32_t peer, union ibv_gid gid) {
  modify(qp,
         (struct ibv_qp_attr){
             .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE},
         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  modify(qp,
         (struct ibv_qp_attr){
             .qp_state = IBV_QPS_RTR,
             .path_mtu = IBV_MTU_1024,
             .dest_qp_num = peer,
             .max_dest_rd_atomic = 1,
             .min_rnr_timer = 12,
             .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = gid, .hop_limit = 64}}},
         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  modify(qp,
         (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
                              .timeout = 14,
                              .retry_cnt = 7,
                              .rnr_retry = 7,
                              .max_rd_atomic = 1},
         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
             IBV_QP_MAX_QP_RD_ATOMIC);
}

static void open_all(void) {
  struct ibv_device** devices = ibv_get_device_list(NULL);
  check(devices != NULL && devices[0] != NULL, "ibv_get_device_list");
  context = ibv_open_device(devices[0]);
  check(context != NULL, "ibv_open_device");
  ibv_free_device_list(devices);
  pd = ibv_alloc_pd(context);
  channel = ibv_create_comp_channel(context);
  cq = ibv_create_cq(context, 2 * pairs * in_flight, NULL, channel, 0);
  memory = malloc(2 * half_bytes);
  for (size_t i = 0; i < half_bytes; ++i) memory[i] = (unsigned char)(i * 31 + i / 251);
  region = ibv_reg_mr(pd, memory, 2 * half_bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  check(pd != NULL && channel != NULL && cq != NULL && region != NULL, "objects");
  union ibv_gid gid;
  check(ibv_query_gid(context, 1, 0, &gid) == 0, "ibv_query_gid");
  for (int i = 0; i < 2 * pairs; ++i) {
    struct ibv_qp_init_attr attributes = {
        .send_cq = cq, .recv_cq = cq, .cap = {2 * in_flight, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
    qps[i] = ibv_create_qp(pd, &attributes);
    check(qps[i] != NULL, "ibv_create_qp");
  }
  for (int i = 0; i < 2 * pairs; ++i) {
    connect_to(qps[i], qps[(i + pairs) % (2 * pairs)]->qp_num, gid);
  }
}

static void post_write(int pair, uint32_t bytes) {
  struct ibv_sge data = {(uintptr_t)memory, bytes, region->lkey};
  struct ibv_send_wr request = {.wr_id = (uint64_t)pair,
                                .sg_list = &data,
                                .num_sge = 1,
                                .opcode = IBV_WR_RDMA_WRITE,
                                .send_flags = IBV_SEND_SIGNALED,
                                .wr.rdma = {(uintptr_t)memory + half_bytes, region->rkey}};
  struct ibv_send_wr* bad = NULL;
  check(ibv_post_send(qps[pair], &request, &bad) == 0, "ibv_post_send");
  ++outstanding[pair];
}

static void take_completions(void) {
  struct ibv_wc completions[32];
  const int count = ibv_poll_cq(cq, 32, completions);
  check(count >= 0, "ibv_poll_cq");
  for (int i = 0; i < count; ++i) {
    check(completions[i].status == IBV_WC_SUCCESS, ibv_wc_status_str(completions[i].status));
    --outstanding[completions[i].wr_id];
    ++done;
  }
}

static void* write_and_poll(void* unused) {
  (void)unused;
  for (;;) {
    pthread_testcancel();
    for (int pair = 0; pair < pairs; ++pair) {
      if (outstanding[pair] < in_flight) post_write(pair, 1 + (uint32_t)(rand() % 3000));
    }
    take_completions();
  }
  return NULL;
}

static void make_objects(void) {
  struct ibv_mr* one = ibv_reg_mr(pd, memory, half_bytes, IBV_ACCESS_LOCAL_WRITE);
  struct ibv_comp_channel* other = ibv_create_comp_channel(context);
  struct ibv_cq* queue = ibv_create_cq(context, 16, NULL, other, 0);
  check(one != NULL && other != NULL && queue != NULL, "objects");
  struct ibv_port_attr port;
  check(ibv_query_port(context, 1, &port) == 0, "ibv_query_port");
  check(ibv_req_notify_cq(queue, 0) == 0, "ibv_req_notify_cq");
  check(ibv_destroy_cq(queue) == 0 && ibv_destroy_comp_channel(other) == 0, "ibv_destroy_cq");
  check(ibv_dereg_mr(one) == 0, "ibv_dereg_mr");
}

/* The device's descriptors are closed with its last context. */
static void make_and_close(void) {
  struct ibv_device** devices = ibv_get_device_list(NULL);
  check(devices != NULL && devices[0] != NULL, "ibv_get_device_list");
  struct ibv_context* other = ibv_open_device(devices[0]);
  check(other != NULL && ibv_close_device(other) == 0, "ibv_open_device");
  ibv_free_device_list(devices);
}

static void* wait_for_completion(void* unused) {
  (void)unused;
  struct ibv_cq* of = NULL;
  void* cookie = NULL;
  check(ibv_get_cq_event(channel, &of, &cookie) == 0, "ibv_get_cq_event");
  return NULL;
}

static void write_all(void) {
  memset(memory + half_bytes, 0, half_bytes);
  post_write(0, half_bytes);
  while (outstanding[0] > 0) take_completions();
  check(memcmp(memory, memory + half_bytes, half_bytes) == 0, "the bytes");
}

static void cancel_in_verbs(void) {
  check_that_calls_complete(make_and_close);
  open_all();
  cancel_again_and_again(write_and_poll, NULL);
  for (int pair = 0; pair < pairs; ++pair) {
    while (outstanding[pair] > 0) take_completions();
  }
  write_all();
  check_that_calls_complete(make_objects);
  for (int i = 0; i < 10; ++i) check_that_calls_complete(write_all);
  /* A thread that waits may be cancelled. */
  const pthread_t waiting = start(wait_for_completion);
  usleep(100000);
  cancel(waiting);
  check(ibv_req_notify_cq(cq, 0) == 0, "ibv_req_notify_cq");
  write_all();
  wait_for_completion(NULL);
  ibv_ack_cq_events(cq, 1);
}

/* --- connections --- */

static void* set_and_create(void* unused) {
  (void)unused;
  for (int i = 0;; ++i) {
    pthread_testcancel();
    int on = 1;
    struct rdma_cm_id* other = NULL;
    check(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on) == 0,
          "rdma_set_option");
    if (i % 8 != 0) continue;
    check(rdma_create_id(events, &other, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
    check(rdma_destroy_id(other) == 0, "rdma_destroy_id");
  }
  return NULL;
}

static void* wait_for_event(void* unused) {
  (void)unused;
  struct rdma_cm_event* event = NULL;
  check(rdma_get_cm_event(events, &event) == 0, "rdma_get_cm_event");
  return NULL;
}

/* Its answers are those of the commands that it sends. */
static void bind_one(void) {
  struct rdma_cm_id* other = NULL;
  struct sockaddr_in any = {.sin_family = AF_INET};
  check(rdma_create_id(events, &other, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
  check(rdma_bind_addr(other, (struct sockaddr*)&any) == 0, "rdma_bind_addr");
  check(rdma_get_src_port(other) != 0, "a port");
  check(rdma_destroy_id(other) == 0, "rdma_destroy_id");
}

static void make_channel(void) {
  struct rdma_event_channel* other = rdma_create_event_channel();
  struct rdma_cm_id* synchronous = NULL;
  check(other != NULL, "rdma_create_event_channel");
  rdma_destroy_event_channel(other);
  check(rdma_create_id(NULL, &synchronous, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
  check(rdma_destroy_id(synchronous) == 0, "rdma_destroy_id");
}

static void cancel_in_connections(void) {
  events = rdma_create_event_channel();
  check(events != NULL, "rdma_create_event_channel");
  check(rdma_create_id(events, &id, NULL, RDMA_PS_TCP) == 0, "rdma_create_id");
  cancel_again_and_again(set_and_create, bind_one);
  check_that_calls_complete(bind_one);
  check_that_calls_complete(make_channel);
  const pthread_t waiting = start(wait_for_event);
  usleep(100000);
  cancel(waiting);
  bind_one();
  check(rdma_destroy_id(id) == 0, "rdma_destroy_id");
  rdma_destroy_event_channel(events);
}

int main(int count, char** arguments) {
  alarm(limit_seconds); /* a thread that cannot be cancelled is waited for */
  if (count == 2 && strcmp(arguments[1], "verbs") == 0) {
    cancel_in_verbs();
    printf("%d threads were cancelled, %ld writes\n", rounds, done);
  } else {
    cancel_in_connections();
    printf("%d threads were cancelled\n", rounds);
  }
  return 0;
}
