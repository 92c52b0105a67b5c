// Small programs that break a rule which adapters keep, or keep it (docs/strict.md). The exit
// status is 0 if the program got through with what it expects, and 1 if the device refused it or it
// found something else. The table at the end names them.

#include <errno.h>
#include <infiniband/verbs.h>
#include <linux/capability.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
  depth = 16,
  writes = 64,
  memory_bytes = 1 << 20,
  locked_bytes = 64 << 10,
  mtu_bytes = 1024,
  grh_bytes = 40,
  message_bytes = 4096,
  // Offsets in the memory.
  source = 0,
  target = 256 << 10,
  third = 512 << 10,
};

static struct ibv_context* context;
static struct ibv_pd* pd;
static char* memory;
static struct ibv_mr* region;
static struct ibv_cq *sends, *receives;

static void fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, strerror(errno));
  exit(2);
}

static int refused(const char* what) {
  printf("%s: %s\n", what, strerror(errno));
  return 1;
}

static double now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return at.tv_sec + at.tv_nsec / 1e9;
}

// --- objects ---

static void make_queues(void) {
  region = ibv_reg_mr(pd, memory, memory_bytes,
                      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                          IBV_ACCESS_REMOTE_ATOMIC);
  sends = ibv_create_cq(context, 4 * depth, NULL, NULL, 0);
  receives = ibv_create_cq(context, 4 * depth, NULL, NULL, 0);
  if (region == NULL || sends == NULL || receives == NULL) fail("objects");
}

static struct ibv_qp* make_qp(enum ibv_qp_type type) {
  struct ibv_qp_init_attr wanted = {
      .send_cq = sends,
      .recv_cq = receives,
      .cap = {.max_send_wr = depth, .max_recv_wr = depth, .max_send_sge = 1, .max_recv_sge = 1},
      .qp_type = type};
  struct ibv_qp* qp = ibv_create_qp(pd, &wanted);
  if (qp == NULL) fail("queue pair");
  return qp;
}

static void connect_to(struct ibv_qp* qp, uint32_t peer) {
  struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1};
  a.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                      IBV_ACCESS_REMOTE_ATOMIC;
  if (ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)) {
    fail("INIT");
  }
  a = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024};
  a.dest_qp_num = peer;
  a.max_dest_rd_atomic = 4;
  a.min_rnr_timer = 12;
  a.ah_attr.is_global = a.ah_attr.port_num = 1;
  if (ibv_query_gid(context, 1, 0, &a.ah_attr.grh.dgid)) fail("GID");
  if (ibv_modify_qp(qp, &a,
                    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                        IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)) {
    fail("RTR");
  }
  a = (struct ibv_qp_attr){
      .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4};
  if (ibv_modify_qp(qp, &a,
                    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                        IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC)) {
    fail("RTS");
  }
}

static struct ibv_qp* connect_to_itself(void) {
  struct ibv_qp* qp = make_qp(IBV_QPT_RC);
  connect_to(qp, qp->qp_num);
  return qp;
}

// --- work ---

static struct ibv_sge at(size_t offset, uint32_t length) {
  return (struct ibv_sge){(uintptr_t)memory + offset, length, region->lkey};
}

// Posts a request between two offsets of the memory.
static int try_post(struct ibv_qp* qp, enum ibv_wr_opcode opcode, size_t from, size_t to,
                    uint32_t length, unsigned flags) {
  struct ibv_sge piece = at(from, length);
  struct ibv_send_wr request = {.wr_id = 7,
                                .sg_list = &piece,
                                .num_sge = 1,
                                .opcode = opcode,
                                .send_flags = flags},
                     *bad;
  request.wr.rdma.remote_addr = (uintptr_t)memory + to;
  request.wr.rdma.rkey = region->rkey;
  return errno = ibv_post_send(qp, &request, &bad);
}

static void post(struct ibv_qp* qp, enum ibv_wr_opcode opcode, size_t from, size_t to,
                 uint32_t length, unsigned flags) {
  if (try_post(qp, opcode, from, to, length, flags) != 0) fail("send");
}

static int try_receive(struct ibv_qp* qp, size_t to, uint32_t length) {
  struct ibv_sge piece = at(to, length);
  struct ibv_recv_wr request = {.wr_id = 8, .sg_list = &piece, .num_sge = 1}, *bad;
  return errno = ibv_post_recv(qp, &request, &bad);
}

static void receive(struct ibv_qp* qp, size_t to, uint32_t length) {
  if (try_receive(qp, to, length) != 0) fail("receive");
}

static struct ibv_wc wait_for(struct ibv_cq* queue) {
  struct ibv_wc done;
  const double began = now();
  int count = 0;
  while ((count = ibv_poll_cq(queue, 1, &done)) == 0) {
    if (now() - began > 10) fail("no completion comes");
  }
  if (count < 0) fail("poll");
  return done;
}

static void wait_well(struct ibv_cq* queue) {
  if (wait_for(queue).status != IBV_WC_SUCCESS) fail("completion");
}

static int appears(const volatile char* byte, char value) {
  const double began = now();
  while (*byte != value) {
    if (now() - began > 1) return 0;
  }
  return 1;
}

static void fill(size_t offset, size_t bytes, int value) { memset(memory + offset, value, bytes); }

static int has(size_t offset, size_t bytes, int value) {
  for (size_t i = 0; i < bytes; ++i) {
    if (memory[offset + i] != (char)value) return 0;
  }
  return 1;
}

// --- queues ---

// Posts writes. While the queue is full, it polls, and gives up after two seconds.
static int write_often(int signal_each) {
  struct ibv_qp* qp = connect_to_itself();
  struct ibv_wc done;
  for (int i = 1; i <= writes; ++i) {
    const unsigned flags = signal_each > 0 && i % signal_each == 0 ? IBV_SEND_SIGNALED : 0;
    const double began = now();
    while (try_post(qp, IBV_WR_RDMA_WRITE, source, target, 64, flags) == ENOMEM &&
           now() - began < 2) {
      if (ibv_poll_cq(sends, 1, &done) > 0 && done.status != IBV_WC_SUCCESS) fail("completion");
    }
    if (errno != 0) return refused("post");
  }
  return 0;
}
static int never_signals(void) { return write_often(0); }
static int signals_some(void) { return write_often(8); }

// Fills the receive queue, uses all of it, and posts once more.
static int receive_again(int polls) {
  struct ibv_qp* qp = connect_to_itself();
  for (int i = 0; i < depth; ++i) receive(qp, target, 64);
  for (int i = 0; i < depth; ++i) {
    post(qp, IBV_WR_SEND, source, 0, 64, IBV_SEND_SIGNALED);
    wait_well(sends);
  }
  if (polls) wait_well(receives);
  return try_receive(qp, target, 64) == 0 ? 0 : refused("receive");
}
static int receives_unpolled(void) { return receive_again(0); }
static int receives_polled(void) { return receive_again(1); }

// --- registered memory ---

static struct ibv_mr* lock_memory(size_t bytes) {
  return ibv_reg_mr(pd, memory, bytes, IBV_ACCESS_LOCAL_WRITE);
}

// Gives up the right to lock any memory, and leaves 64 KiB.
static void limit_memory(void) {
  if (ibv_dereg_mr(region) != 0) fail("deregister");
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
  if (syscall(SYS_capget, &header, data) != 0) fail("capabilities");
  data[0].effective &= ~(1u << CAP_IPC_LOCK);
  data[0].permitted &= ~(1u << CAP_IPC_LOCK);
  if (syscall(SYS_capset, &header, data) != 0) fail("capabilities");
  const struct rlimit limit = {locked_bytes, locked_bytes};
  if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0) fail("limit");
}

static int locked_memory(void) {
  limit_memory();
  return lock_memory(memory_bytes) == NULL ? refused("register") : 0;
}

static int locked_in_turn(void) {
  limit_memory();
  for (int i = 0; i < 100; ++i) {
    struct ibv_mr* some = lock_memory(locked_bytes / 2);
    if (some == NULL) return refused("register");
    if (ibv_dereg_mr(some) != 0) fail("deregister");
  }
  return 0;
}

// A child has locked nothing, whatever its parent has, and gives nothing back by deregistering what
// its parent has.
static int lock_in_child(size_t bytes) {
  limit_memory();
  struct ibv_mr* of_parent = lock_memory(locked_bytes / 4 * 3);
  if (of_parent == NULL) fail("register");
  fflush(stdout);
  const pid_t child = fork();
  if (child < 0) fail("fork");
  if (child == 0) {
    struct ibv_device** devices = ibv_get_device_list(NULL);
    if (devices == NULL || devices[0] == NULL) fail("device of the child");
    context = ibv_open_device(devices[0]);
    pd = context != NULL ? ibv_alloc_pd(context) : NULL;
    if (pd == NULL) fail("objects of the child");
    int status = lock_memory(locked_bytes / 4 * 3) == NULL ? refused("register") : 0;
    ibv_dereg_mr(of_parent);
    if (status == 0 && bytes > 0 && lock_memory(bytes) == NULL) status = refused("register more");
    fflush(stdout);
    _exit(status);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child) fail("wait");
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
static int locked_in_parent_and_child(void) { return lock_in_child(0); }
static int locked_twice_in_child(void) { return lock_in_child(locked_bytes / 2); }

static int deregister(int waits) {
  struct ibv_qp* qp = connect_to_itself();
  struct ibv_mr* all = region;
  struct ibv_mr* some = lock_memory(message_bytes);
  if (some == NULL) fail("register");
  receive(qp, target, 64);
  region = some;
  post(qp, IBV_WR_SEND, source, 0, 64, IBV_SEND_SIGNALED);
  region = all;
  if (waits) wait_well(sends);
  if (ibv_dereg_mr(some) != 0) fail("deregister");
  if (waits) return 0;
  const struct ibv_wc done = wait_for(sends);
  printf("the request: %s\n", ibv_wc_status_str(done.status));
  return done.status != IBV_WC_SUCCESS;
}
static int deregisters_early(void) { return deregister(0); }
static int deregisters_late(void) { return deregister(1); }

// --- when data is read, and when it is there ---

static int change(int waits) {
  struct ibv_qp* qp = connect_to_itself();
  fill(source, 64, 1);
  post(qp, IBV_WR_RDMA_WRITE, source, target, 64, IBV_SEND_SIGNALED);
  if (waits) wait_well(sends);
  fill(source, 64, 2);
  if (!waits) wait_well(sends);
  return !has(target, 64, 1);
}
static int changes_early(void) { return change(0); }
static int changes_late(void) { return change(1); }

static int destroy(int waits) {
  struct ibv_qp *from = make_qp(IBV_QPT_RC), *to = make_qp(IBV_QPT_RC);
  connect_to(from, to->qp_num);
  connect_to(to, from->qp_num);
  receive(to, target, 64);
  post(from, IBV_WR_SEND, source, 0, 64, IBV_SEND_SIGNALED);
  if (waits) wait_well(sends);
  if (ibv_destroy_qp(from) != 0) fail("destroy");
  struct ibv_wc done;
  for (const double began = now(); now() - began < 1;) {
    if (ibv_poll_cq(receives, 1, &done) == 1) return done.status != IBV_WC_SUCCESS;
  }
  return 1;
}
static int destroys_early(void) { return destroy(0); }
static int destroys_late(void) { return destroy(1); }

static int take_message(int polls) {
  struct ibv_qp* qp = connect_to_itself();
  fill(source, message_bytes, 1);
  receive(qp, target, message_bytes);
  post(qp, IBV_WR_SEND, source, 0, message_bytes, 0);
  if (polls) wait_well(receives);
  if (!polls && !appears(memory + target + message_bytes - 1, 1)) return 1;
  return !has(target, message_bytes, 1);
}
static int looks_for_message(void) { return take_message(0); }
static int polls_for_message(void) { return take_message(1); }

static int take_read(int polls) {
  struct ibv_qp* qp = connect_to_itself();
  fill(target, message_bytes, 1);
  post(qp, IBV_WR_RDMA_READ, source, target, message_bytes, IBV_SEND_SIGNALED);
  if (polls) wait_well(sends);
  if (!polls && !appears(memory + source + message_bytes - 1, 1)) return 1;
  return !has(source, message_bytes, 1);
}
static int looks_for_read(void) { return take_read(0); }
static int polls_for_read(void) { return take_read(1); }

// Sends on what a READ brings.
static int send_on(unsigned flags) {
  struct ibv_qp* qp = connect_to_itself();
  fill(target, 64, 1);
  receive(qp, third, 64);
  post(qp, IBV_WR_RDMA_READ, source, target, 64, 0);
  post(qp, IBV_WR_SEND, source, 0, 64, flags);
  wait_well(receives);
  return !has(third, 64, 1);
}
static int sends_on(void) { return send_on(0); }
static int sends_on_fenced(void) { return send_on(IBV_SEND_FENCE); }

// A thread looks at the last byte that a WRITE brings, and then at the first.
struct look {
  volatile int is_stale;
  volatile char round;
};

static void* look_at_last(void* argument) {
  struct look* look = argument;
  for (char round = 1;; ++round) {
    while (*(volatile char*)(memory + target + message_bytes - 1) != round) continue;
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    if (*(volatile char*)(memory + target) != round) look->is_stale = 1;
    look->round = round;
  }
  return NULL;
}

// Returns true until this process has had so many seconds of processors, or for 40 seconds: on a
// busy machine, threads seldom run at the same time.
static int has_time_left(double began, double processor_seconds) {
  return now() - began < 40 && clock() < processor_seconds * CLOCKS_PER_SEC;
}

// Continues for a while or until the first byte was old.
static int looks_at_last_byte(void) {
  struct ibv_qp* qp = connect_to_itself();
  static struct look look;
  pthread_t looker;
  if (pthread_create(&looker, NULL, look_at_last, &look) != 0) fail("thread");
  char round = 0;
  for (const double began = now(); has_time_left(began, 6) && !look.is_stale;) {
    fill(source, message_bytes, ++round);
    post(qp, IBV_WR_RDMA_WRITE, source, target, message_bytes, IBV_SEND_SIGNALED);
    wait_well(sends);
    while (look.round != round) sched_yield();
  }
  return look.is_stale;
}

static int takes_immediate(void) {
  struct ibv_qp* qp = connect_to_itself();
  for (int round = 1; round <= 200; ++round) {
    fill(source, message_bytes, (char)round);
    receive(qp, third, 0);
    post(qp, IBV_WR_RDMA_WRITE_WITH_IMM, source, target, message_bytes, IBV_SEND_SIGNALED);
    wait_well(receives);
    if (!has(target, message_bytes, (char)round)) return 1;
    wait_well(sends);
  }
  return 0;
}

// --- atomic operations ---

enum { additions = 200 };

static void* add(void* stop) {
  uint64_t count = 0;
  for (; !*(volatile int*)stop; ++count) {
    __atomic_fetch_add((uint64_t*)(memory + target), 1, __ATOMIC_SEQ_CST);
  }
  return (void*)(uintptr_t)count;
}

// The processor and the adapter add at once, for a while or until an addition is lost.
static int add_together(int by_processor) {
  struct ibv_qp* qp = connect_to_itself();
  uint64_t* const word = (uint64_t*)(memory + target);
  uint64_t expected = 0;
  for (const double began = now(); has_time_left(began, 4) && *word == expected;) {
    volatile int stop = 0;
    pthread_t adder;
    if (by_processor && pthread_create(&adder, NULL, add, (void*)&stop) != 0) fail("thread");
    for (int i = 0; i < additions; ++i) {
      struct ibv_sge piece = at(source, 8);
      struct ibv_send_wr request = {.sg_list = &piece,
                                    .num_sge = 1,
                                    .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
                                    .send_flags = IBV_SEND_SIGNALED},
                         *bad;
      request.wr.atomic.remote_addr = (uintptr_t)word;
      request.wr.atomic.rkey = region->rkey;
      request.wr.atomic.compare_add = 1;
      if ((errno = ibv_post_send(qp, &request, &bad)) != 0) fail("send");
      wait_well(sends);
    }
    stop = 1;
    void* count = NULL;
    if (by_processor) pthread_join(adder, &count);
    expected += additions + (uintptr_t)count;
  }
  printf("%llu of %llu additions\n", (unsigned long long)*word, (unsigned long long)expected);
  return *word != expected;
}
static int adds_with_processor(void) { return add_together(1); }
static int adds_with_adapter(void) { return add_together(0); }

// --- what completions say ---

// A receive request is flushed. Which kind of request was it?
static int take_flushed(int by_opcode) {
  struct ibv_qp* qp = connect_to_itself();
  receive(qp, target, 64);
  struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};
  if (ibv_modify_qp(qp, &a, IBV_QP_STATE) != 0) fail("ERR");
  const struct ibv_wc done = wait_for(receives);
  if (done.status != IBV_WC_WR_FLUSH_ERR) fail("completion");
  return by_opcode ? done.opcode != IBV_WC_RECV : done.wr_id != 8;
}
static int opcode_of_failed(void) { return take_flushed(1); }
static int identifier_of_failed(void) { return take_flushed(0); }

static int length_of(enum ibv_wr_opcode opcode) {
  struct ibv_qp* qp = connect_to_itself();
  receive(qp, third, 64);
  post(qp, opcode, source, target, 64, IBV_SEND_SIGNALED);
  return wait_for(sends).byte_len != 64;
}
static int length_of_send(void) { return length_of(IBV_WR_SEND); }
static int length_of_read(void) { return length_of(IBV_WR_RDMA_READ); }

// Takes a datagram over IPv4, and looks into the 40 bytes before it.
static int take_datagram(int looks_at_all) {
  struct ibv_qp* qp = make_qp(IBV_QPT_UD);
  struct ibv_qp_attr a = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 5};
  if (ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY)) {
    fail("INIT");
  }
  a.qp_state = IBV_QPS_RTR;
  if (ibv_modify_qp(qp, &a, IBV_QP_STATE)) fail("RTR");
  a.qp_state = IBV_QPS_RTS;
  if (ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN)) fail("RTS");
  struct ibv_ah_attr to = {.is_global = 1, .port_num = 1};
  if (ibv_query_gid(context, 1, 0, &to.grh.dgid)) fail("GID");
  struct ibv_ah* handle = ibv_create_ah(pd, &to);
  if (handle == NULL) fail("address handle");
  receive(qp, target, grh_bytes + 64);
  struct ibv_sge piece = at(source, 64);
  struct ibv_send_wr request = {.sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
  request.wr.ud.ah = handle;
  request.wr.ud.remote_qpn = qp->qp_num;
  request.wr.ud.remote_qkey = 5;
  if ((errno = ibv_post_send(qp, &request, &bad)) != 0) fail("send");
  wait_well(receives);
  const char* header = memory + target;
  if (looks_at_all && !has(target, grh_bytes / 2, 0)) return 1;
  return memcmp(header + 36, to.grh.dgid.raw + 12, 4) != 0;  // the IPv4 header's destination
}
static int whole_header(void) { return take_datagram(1); }
static int ipv4_header(void) { return take_datagram(0); }

// --- limits ---

static int make_with(struct ibv_qp_cap cap) {
  struct ibv_qp_init_attr wanted = {
      .send_cq = sends, .recv_cq = receives, .cap = cap, .qp_type = IBV_QPT_RC};
  return ibv_create_qp(pd, &wanted) == NULL ? refused("queue pair") : 0;
}

static struct ibv_device_attr attributes(void) {
  struct ibv_device_attr a;
  if (ibv_query_device(context, &a) != 0) fail("query");
  return a;
}

static int deep_queue(void) { return make_with((struct ibv_qp_cap){32768, 1, 1, 1, 0}); }
static int deepest_queue(void) {
  return make_with((struct ibv_qp_cap){(uint32_t)attributes().max_qp_wr, 1, 1, 1, 0});
}
static int many_pieces(void) { return make_with((struct ibv_qp_cap){1, 1, 16, 16, 0}); }
static int most_pieces(void) {
  const uint32_t most = (uint32_t)attributes().max_sge;
  return make_with((struct ibv_qp_cap){1, 1, most, most, 0});
}
static int much_inline(void) { return make_with((struct ibv_qp_cap){1, 1, 1, 1, 1024}); }
static int little_inline(void) { return make_with((struct ibv_qp_cap){1, 1, 1, 1, 32}); }
static int large_queue(void) {
  return ibv_create_cq(context, 1 << 20, NULL, NULL, 0) == NULL ? refused("completion queue") : 0;
}
static int largest_queue(void) {
  return ibv_create_cq(context, attributes().max_cqe, NULL, NULL, 0) == NULL
             ? refused("completion queue")
             : 0;
}

static const struct {
  const char* name;
  int (*run)(void);
} programs[] = {
    {"never-signals", never_signals},
    {"signals-some", signals_some},
    {"receives-unpolled", receives_unpolled},
    {"receives-polled", receives_polled},
    {"locked-memory", locked_memory},
    {"locked-in-turn", locked_in_turn},
    {"locked-in-parent-and-child", locked_in_parent_and_child},
    {"locked-twice-in-child", locked_twice_in_child},
    {"deregisters-early", deregisters_early},
    {"deregisters-late", deregisters_late},
    {"changes-early", changes_early},
    {"changes-late", changes_late},
    {"destroys-early", destroys_early},
    {"destroys-late", destroys_late},
    {"looks-for-message", looks_for_message},
    {"polls-for-message", polls_for_message},
    {"looks-for-read", looks_for_read},
    {"polls-for-read", polls_for_read},
    {"sends-on", sends_on},
    {"sends-on-fenced", sends_on_fenced},
    {"looks-at-last-byte", looks_at_last_byte},
    {"takes-immediate", takes_immediate},
    {"adds-with-processor", adds_with_processor},
    {"adds-with-adapter", adds_with_adapter},
    {"opcode-of-failed", opcode_of_failed},
    {"identifier-of-failed", identifier_of_failed},
    {"length-of-send", length_of_send},
    {"length-of-read", length_of_read},
    {"whole-header", whole_header},
    {"ipv4-header", ipv4_header},
    {"deep-queue", deep_queue},
    {"deepest-queue", deepest_queue},
    {"many-pieces", many_pieces},
    {"most-pieces", most_pieces},
    {"much-inline", much_inline},
    {"little-inline", little_inline},
    {"large-queue", large_queue},
    {"largest-queue", largest_queue},
};

int main(int count, char** arguments) {
  const char* what = count > 1 ? arguments[1] : "";
  struct ibv_device** devices = ibv_get_device_list(NULL);
  if (devices == NULL || devices[0] == NULL) fail("device");
  context = ibv_open_device(devices[0]);
  pd = context != NULL ? ibv_alloc_pd(context) : NULL;
  memory = mmap(NULL, memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pd == NULL || memory == MAP_FAILED) fail("objects");
  make_queues();
  for (size_t i = 0; i < sizeof programs / sizeof programs[0]; ++i) {
    if (strcmp(what, programs[i].name) == 0) return programs[i].run();
  }
  fprintf(stderr, "no such program: %s\n", what);
  return 2;
}
