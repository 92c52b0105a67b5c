// A client as collective libraries write them. It links nothing: it opens libibverbs when it runs
// and asks for each function by the version that the function came with. Two processes then move
// data as those libraries do. The receiver writes its buffer's address into the sender's memory.
// The sender polls that memory, writes the data, and then its length as an immediate. Before the
// receiver looks at the data, it reads a word of its own through a queue pair connected to itself.

#define _GNU_SOURCE  // dlvsym
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { depth = 16, rounds = 400, buffer_bytes = 1 << 18, polls_max = 200000000 };

#define CHECK(condition)                                                        \
  do {                                                                          \
    if (!(condition)) {                                                         \
      fprintf(stderr, "%s: line %d: not so: %s\n", role, __LINE__, #condition); \
      exit(1);                                                                  \
    }                                                                           \
  } while (0)

static const char* role = "both";

// --- the functions ---

#define FUNCTIONS(X)                                                                       \
  X(fork_init, "IBVERBS_1.1", int, (void))                                                 \
  X(get_device_list, "IBVERBS_1.1", struct ibv_device**, (int*))                           \
  X(free_device_list, "IBVERBS_1.1", void, (struct ibv_device**))                          \
  X(get_device_name, "IBVERBS_1.1", const char*, (struct ibv_device*))                     \
  X(open_device, "IBVERBS_1.1", struct ibv_context*, (struct ibv_device*))                 \
  X(close_device, "IBVERBS_1.1", int, (struct ibv_context*))                               \
  X(get_async_event, "IBVERBS_1.1", int, (struct ibv_context*, struct ibv_async_event*))   \
  X(ack_async_event, "IBVERBS_1.1", void, (struct ibv_async_event*))                       \
  X(event_type_str, "IBVERBS_1.1", const char*, (enum ibv_event_type))                     \
  X(query_device, "IBVERBS_1.1", int, (struct ibv_context*, struct ibv_device_attr*))      \
  X(query_port, "IBVERBS_1.1", int, (struct ibv_context*, uint8_t, struct ibv_port_attr*)) \
  X(query_gid, "IBVERBS_1.1", int, (struct ibv_context*, uint8_t, int, union ibv_gid*))    \
  X(alloc_pd, "IBVERBS_1.1", struct ibv_pd*, (struct ibv_context*))                        \
  X(dealloc_pd, "IBVERBS_1.1", int, (struct ibv_pd*))                                      \
  X(reg_mr, "IBVERBS_1.1", struct ibv_mr*, (struct ibv_pd*, void*, size_t, int))           \
  X(reg_mr_iova2, "IBVERBS_1.8", struct ibv_mr*,                                           \
    (struct ibv_pd*, void*, size_t, uint64_t, unsigned))                                   \
  X(dereg_mr, "IBVERBS_1.1", int, (struct ibv_mr*))                                        \
  X(create_cq, "IBVERBS_1.1", struct ibv_cq*,                                              \
    (struct ibv_context*, int, void*, struct ibv_comp_channel*, int))                      \
  X(destroy_cq, "IBVERBS_1.1", int, (struct ibv_cq*))                                      \
  X(create_qp, "IBVERBS_1.1", struct ibv_qp*, (struct ibv_pd*, struct ibv_qp_init_attr*))  \
  X(modify_qp, "IBVERBS_1.1", int, (struct ibv_qp*, struct ibv_qp_attr*, int))             \
  X(query_qp, "IBVERBS_1.1", int,                                                          \
    (struct ibv_qp*, struct ibv_qp_attr*, int, struct ibv_qp_init_attr*))                  \
  X(destroy_qp, "IBVERBS_1.1", int, (struct ibv_qp*))                                      \
  X(query_ece, "IBVERBS_1.10", int, (struct ibv_qp*, struct ibv_ece*))                     \
  X(set_ece, "IBVERBS_1.10", int, (struct ibv_qp*, struct ibv_ece*))                       \
  X(reg_dmabuf_mr, "IBVERBS_1.12", struct ibv_mr*,                                         \
    (struct ibv_pd*, uint64_t, size_t, uint64_t, int, int))

static struct {
#define DECLARE(name, version, result, parameters) result(*name) parameters;
  FUNCTIONS(DECLARE)
} verbs;

static void bind_functions(void) {
  void* library = dlopen("libibverbs.so", RTLD_NOW);
  if (library == NULL) library = dlopen("libibverbs.so.1", RTLD_NOW);
  if (library == NULL) {
    fprintf(stderr, "%s: %s\n", role, dlerror());
    exit(1);
  }
#define BIND(name, version, result, parameters)                                           \
  *(void**)&verbs.name = dlvsym(library, "ibv_" #name, version);                          \
  if (verbs.name == NULL) fprintf(stderr, "%s: no ibv_%s of %s\n", role, #name, version); \
  CHECK(verbs.name != NULL);
  FUNCTIONS(BIND)
}

// --- a side ---

struct Address {
  uint32_t qp_number;
  uint32_t rkey;
  uint64_t address;
  union ibv_gid gid;
};

// The receiver writes this into the sender's memory: the place where it expects the next message.
struct Slot {
  uint64_t address;
  uint32_t rkey;
  uint32_t round;  // written last; 0 means nothing yet
};

struct Side {
  struct ibv_context* context;
  struct ibv_pd* pd;
  struct ibv_cq* cq;
  struct ibv_qp* qp;
  uint8_t* buffer;
  struct Slot* slots;
  struct ibv_mr *buffer_mr, *slots_mr;
  union ibv_gid gid;
};

static void* watch_events(void* argument) {
  struct ibv_async_event event;
  while (verbs.get_async_event(argument, &event) == 0) {
    fprintf(stderr, "%s: event: %s\n", role, verbs.event_type_str(event.event_type));
    verbs.ack_async_event(&event);
  }
  return NULL;
}

static struct ibv_qp* create_qp(struct Side* side) {
  struct ibv_qp_init_attr attr = {.send_cq = side->cq,
                                  .recv_cq = side->cq,
                                  .qp_type = IBV_QPT_RC,
                                  .cap = {2 * depth, depth, 1, 1, sizeof(struct Slot)}};
  struct ibv_qp* qp = verbs.create_qp(side->pd, &attr);
  CHECK(qp != NULL);
  struct ibv_qp_attr init = {
      .qp_state = IBV_QPS_INIT,
      .port_num = 1,
      .qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
  CHECK(verbs.modify_qp(qp, &init,
                        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
  return qp;
}

static void connect_qp(struct ibv_qp* qp, const struct Address* peer) {
  struct ibv_qp_attr ready = {
      .qp_state = IBV_QPS_RTR,
      .path_mtu = IBV_MTU_1024,
      .dest_qp_num = peer->qp_number,
      .max_dest_rd_atomic = 1,
      .min_rnr_timer = 12,
      .ah_attr = {.is_global = 1, .grh = {.dgid = peer->gid, .hop_limit = 255}, .port_num = 1}};
  CHECK(verbs.modify_qp(qp, &ready,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
  struct ibv_qp_attr send = {
      .qp_state = IBV_QPS_RTS, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
  CHECK(verbs.modify_qp(qp, &send,
                        IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                            IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static void open_side(struct Side* side) {
  CHECK(verbs.fork_init() == 0);
  int count = 0;
  struct ibv_device** list = verbs.get_device_list(&count);
  CHECK(list != NULL && count > 0 && verbs.get_device_name(list[0]) != NULL);
  side->context = verbs.open_device(list[0]);
  CHECK(side->context != NULL);
  verbs.free_device_list(list);
  pthread_t watcher;
  CHECK(pthread_create(&watcher, NULL, watch_events, side->context) == 0);
  pthread_detach(watcher);
  struct ibv_device_attr device;
  CHECK(verbs.query_device(side->context, &device) == 0 && device.phys_port_cnt == 1);
  struct ibv_port_attr port;
  memset(&port, 0, sizeof port);
  CHECK(verbs.query_port(side->context, 1, &port) == 0 && port.state == IBV_PORT_ACTIVE);
  CHECK(port.link_layer == IBV_LINK_LAYER_ETHERNET);
  CHECK(verbs.query_gid(side->context, 1, 0, &side->gid) == 0);
  side->pd = verbs.alloc_pd(side->context);
  CHECK(side->pd != NULL);
  side->cq = verbs.create_cq(side->context, 4 * depth, NULL, NULL, 0);
  CHECK(side->cq != NULL);
  side->buffer = aligned_alloc(4096, buffer_bytes);
  side->slots = aligned_alloc(4096, 4096);
  CHECK(side->buffer != NULL && side->slots != NULL);
  memset(side->slots, 0, 4096);
  const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  side->slots_mr = verbs.reg_mr(side->pd, side->slots, 4096, access);
  side->buffer_mr =
      verbs.reg_mr_iova2(side->pd, side->buffer, buffer_bytes, (uintptr_t)side->buffer,
                         access | IBV_ACCESS_RELAXED_ORDERING);
  CHECK(side->slots_mr != NULL && side->buffer_mr != NULL);
  side->qp = create_qp(side);
  struct ibv_ece ece = {0};
  // A library answers, or says that it has no options of this kind.
  (void)verbs.query_ece(side->qp, &ece);
}

static void close_side(struct Side* side) {
  CHECK(verbs.destroy_qp(side->qp) == 0);
  CHECK(verbs.destroy_cq(side->cq) == 0);
  CHECK(verbs.dereg_mr(side->slots_mr) == 0 && verbs.dereg_mr(side->buffer_mr) == 0);
  CHECK(verbs.dealloc_pd(side->pd) == 0);
  CHECK(verbs.close_device(side->context) == 0);
}

static void exchange(struct Side* side, int peer_socket) {
  const struct Address mine = {side->qp->qp_num, side->slots_mr->rkey, (uintptr_t)side->slots,
                               side->gid};
  struct Address theirs;
  CHECK(write(peer_socket, &mine, sizeof mine) == sizeof mine);
  CHECK(read(peer_socket, &theirs, sizeof theirs) == sizeof theirs);
  connect_qp(side->qp, &theirs);
  // The receiver needs to know where the sender's slots are.
  side->slots[depth].address = theirs.address;
  side->slots[depth].rkey = theirs.rkey;
  char ready = 1;
  CHECK(write(peer_socket, &ready, 1) == 1 && read(peer_socket, &ready, 1) == 1);
}

// Waits for one completion, which must have succeeded.
static struct ibv_wc wait_completion(struct Side* side) {
  struct ibv_wc wc;
  for (long polls = 0; polls < polls_max; ++polls) {
    const int found = ibv_poll_cq(side->cq, 1, &wc);
    CHECK(found >= 0);
    if (found == 0) continue;
    if (wc.status != IBV_WC_SUCCESS) {
      fprintf(stderr, "%s: completion status %d\n", role, wc.status);
      exit(1);
    }
    return wc;
  }
  fprintf(stderr, "%s: waited in vain for a completion\n", role);
  exit(1);
}

static uint32_t length_of(uint32_t round) { return round * 2654435761u % (buffer_bytes - 1) + 1; }

static uint8_t byte_of(uint32_t round, uint32_t index) {
  return (uint8_t)((round * 31 + index) ^ (index >> 8));
}

// --- the two roles ---

static void send_all(struct Side* side) {
  for (uint32_t round = 1; round <= rounds; ++round) {
    volatile struct Slot* slot = &side->slots[round % depth];
    long polls = 0;
    // The receiver's WRITE lands here without a completion. Polling a completion queue also makes
    // progress.
    while (slot->round != round) {
      CHECK(++polls < polls_max);
      struct ibv_wc none;
      CHECK(ibv_poll_cq(side->cq, 1, &none) == 0);
    }
    const uint32_t length = length_of(round);
    for (uint32_t i = 0; i < length; ++i) side->buffer[i] = byte_of(round, i);
    struct ibv_sge sge = {(uintptr_t)side->buffer, length, side->buffer_mr->lkey};
    struct ibv_send_wr signal = {
        .wr_id = round, .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .send_flags = IBV_SEND_SIGNALED};
    signal.imm_data = length;
    signal.wr.rdma.remote_addr = slot->address;
    signal.wr.rdma.rkey = slot->rkey;
    struct ibv_send_wr data = {
        .next = &signal, .opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1};
    data.wr.rdma = signal.wr.rdma;
    struct ibv_send_wr* bad;
    CHECK(ibv_post_send(side->qp, &data, &bad) == 0);
    CHECK(wait_completion(side).wr_id == round);
  }
}

// Reads the side's own memory through a queue pair connected to itself. After that, everything
// written before is in place.
static void flush(struct Side* side, struct ibv_qp* loop, const struct ibv_mr* word_mr) {
  struct ibv_sge sge = {(uintptr_t)word_mr->addr, 4, word_mr->lkey};
  struct ibv_send_wr read = {.wr_id = 7,
                             .opcode = IBV_WR_RDMA_READ,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .send_flags = IBV_SEND_SIGNALED};
  read.wr.rdma.remote_addr = (uintptr_t)side->buffer;
  read.wr.rdma.rkey = side->buffer_mr->rkey;
  struct ibv_send_wr* bad;
  CHECK(ibv_post_send(loop, &read, &bad) == 0);
  struct ibv_wc wc = wait_completion(side);
  CHECK(wc.wr_id == 7 && wc.opcode == IBV_WC_RDMA_READ);
}

static void offer(struct Side* side, uint32_t round) {
  struct ibv_recv_wr receive = {.wr_id = round};
  struct ibv_recv_wr* bad_receive;
  CHECK(ibv_post_recv(side->qp, &receive, &bad_receive) == 0);
  struct Slot slot = {(uintptr_t)side->buffer, side->buffer_mr->rkey, round};
  struct ibv_sge sge = {(uintptr_t)&slot, sizeof slot, 0};
  // One request in `depth` is signaled, or the send queue would never be seen to empty.
  struct ibv_send_wr write = {
      .wr_id = 1000000 + round,
      .opcode = IBV_WR_RDMA_WRITE,
      .sg_list = &sge,
      .num_sge = 1,
      .send_flags = IBV_SEND_INLINE | (round % depth == 0 ? IBV_SEND_SIGNALED : 0)};
  write.wr.rdma.remote_addr = side->slots[depth].address + round % depth * sizeof slot;
  write.wr.rdma.rkey = side->slots[depth].rkey;
  struct ibv_send_wr* bad;
  CHECK(ibv_post_send(side->qp, &write, &bad) == 0);
}

static void receive_all(struct Side* side) {
  struct ibv_qp* loop = create_qp(side);
  const struct Address self = {loop->qp_num, 0, 0, side->gid};
  connect_qp(loop, &self);
  uint32_t word = 0;
  struct ibv_mr* word_mr = verbs.reg_mr(side->pd, &word, sizeof word, IBV_ACCESS_LOCAL_WRITE);
  CHECK(word_mr != NULL);
  for (uint32_t round = 1; round <= rounds; ++round) {
    const uint32_t length = length_of(round);
    memset(side->buffer, 0xee, buffer_bytes);
    offer(side, round);
    struct ibv_wc wc;
    do wc = wait_completion(side);
    while (wc.opcode == IBV_WC_RDMA_WRITE);
    CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.wr_id == round);
    CHECK((wc.wc_flags & IBV_WC_WITH_IMM) != 0 && wc.imm_data == length);
    flush(side, loop, word_mr);
    for (uint32_t i = 0; i < length; ++i) CHECK(side->buffer[i] == byte_of(round, i));
    CHECK(length == buffer_bytes || side->buffer[length] == 0xee);
    CHECK(memcmp(&word, side->buffer, length < 4 ? length : 4) == 0);
  }
  CHECK(verbs.dereg_mr(word_mr) == 0 && verbs.destroy_qp(loop) == 0);
}

static int run(const char* name, int peer_socket, void (*work)(struct Side*)) {
  role = name;
  bind_functions();
  struct Side side = {0};
  open_side(&side);
  exchange(&side, peer_socket);
  work(&side);
  char done = 1;
  CHECK(write(peer_socket, &done, 1) == 1 && read(peer_socket, &done, 1) == 1);
  close_side(&side);
  return 0;
}

int main(void) {
  int pair[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    close(pair[0]);
    return run("receiver", pair[1], receive_all);
  }
  close(pair[1]);
  run("sender", pair[0], send_all);
  int status = 1;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  printf("ok: %d messages\n", rounds);
  return 0;
}
