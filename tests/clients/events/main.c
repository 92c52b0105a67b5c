// Shows asynchronous events, for tests.
//
//   events watch [INDEX]     prints each event of the port, and then the port as calls and as files
//                            say it is; with INDEX it holds that GID by an address handle until
//                            SIGUSR1
//   events provoke NAME      makes queue pair B of this process raise the event, and prints what
//                            was raised, and for which element
//
// A port is printed as one line: "asked" or "files", its state, and its addresses by GID index, up
// to the last one, with - for holes.

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition)                                                           \
  do {                                                                             \
    if (!(condition)) {                                                            \
      fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, strerror(errno)); \
      exit(1);                                                                     \
    }                                                                              \
  } while (0)

enum { shown_max = 12, message_bytes = 64 };

static struct ibv_context* open_device(void) {
  struct ibv_device** list = ibv_get_device_list(NULL);
  CHECK(list != NULL && list[0] != NULL);
  struct ibv_context* context = ibv_open_device(list[0]);
  CHECK(context != NULL);
  ibv_free_device_list(list);
  CHECK(fcntl(context->async_fd, F_SETFL, O_NONBLOCK) == 0);
  return context;
}

// --- the port ---

static void print_port(const char* how, bool is_active,
                       char addresses[shown_max][INET6_ADDRSTRLEN]) {
  int count = shown_max;
  while (count > 0 && strcmp(addresses[count - 1], "-") == 0) --count;
  printf("%s %s", how, is_active ? "ACTIVE" : "DOWN");
  for (int i = 0; i < count; ++i) printf(" %s", addresses[i]);
  printf("\n");
}

static void to_text(const union ibv_gid* gid, char* out) {
  static const uint8_t mapped[12] = {[10] = 0xFF, [11] = 0xFF};
  static const union ibv_gid zero;
  if (memcmp(gid, &zero, sizeof zero) == 0) {
    strcpy(out, "-");
  } else if (memcmp(gid->raw, mapped, sizeof mapped) == 0) {
    CHECK(inet_ntop(AF_INET, gid->raw + 12, out, INET6_ADDRSTRLEN) != NULL);
  } else {
    CHECK(inet_ntop(AF_INET6, gid->raw, out, INET6_ADDRSTRLEN) != NULL);
  }
}

static void print_asked(struct ibv_context* context) {
  char addresses[shown_max][INET6_ADDRSTRLEN];
  struct ibv_port_attr port;
  struct ibv_gid_entry table[256];
  CHECK(ibv_query_port(context, 1, &port) == 0);
  const ssize_t in_use = ibv_query_gid_table(context, table, 256, 0);
  CHECK(in_use >= 0);
  int found = 0;
  for (int i = 0; i < shown_max; ++i) {
    union ibv_gid gid;
    struct ibv_gid_entry entry;
    CHECK(ibv_query_gid(context, 1, i, &gid) == 0);
    to_text(&gid, addresses[i]);
    const int error = ibv_query_gid_ex(context, 1, (uint32_t)i, &entry, 0);
    CHECK(error == (addresses[i][0] == '-' ? ENODATA : 0));
    if (error != 0) continue;
    CHECK(memcmp(&entry.gid, &gid, sizeof gid) == 0 && found < in_use);
    CHECK(table[found].gid_index == (uint32_t)i && table[found].ndev_ifindex == entry.ndev_ifindex);
    ++found;
  }
  CHECK(found == in_use);
  print_port("asked", port.state == IBV_PORT_ACTIVE, addresses);
}

// Returns false if the file cannot be read.
static bool read_file(const char* file, char* out, size_t bytes) {
  char path[128];
  snprintf(path, sizeof path, "/sys/class/infiniband/tulle0/ports/1/%s", file);
  const int fd = open(path, O_RDONLY);
  CHECK(fd >= 0);
  const ssize_t length = read(fd, out, bytes - 1);
  CHECK(length > 0 || errno == EINVAL);
  close(fd);
  if (length <= 0) return false;
  out[length - (out[length - 1] == '\n')] = '\0';
  return true;
}

static void print_files(void) {
  char addresses[shown_max][INET6_ADDRSTRLEN];
  char state[64];
  char text[64];
  CHECK(read_file("state", state, sizeof state));
  for (int i = 0; i < shown_max; ++i) {
    char name[64];
    union ibv_gid gid;
    snprintf(name, sizeof name, "gids/%d", i);
    CHECK(read_file(name, text, sizeof text) && inet_pton(AF_INET6, text, gid.raw) == 1);
    to_text(&gid, addresses[i]);
    const bool in_use = addresses[i][0] != '-';
    snprintf(name, sizeof name, "gid_attrs/types/%d", i);
    CHECK(read_file(name, text, sizeof text) == in_use);
    CHECK(!in_use || strcmp(text, "RoCE v2") == 0);
    snprintf(name, sizeof name, "gid_attrs/ndevs/%d", i);
    CHECK(read_file(name, text, sizeof text) == in_use);
  }
  print_port("files", strcmp(state, "4: ACTIVE") == 0, addresses);
}

// --- watch ---

static volatile sig_atomic_t let_go = 0;
static void on_signal(int number) {
  (void)number;
  let_go = 1;
}

static struct ibv_ah* hold(struct ibv_context* context, int index) {
  struct ibv_pd* pd = ibv_alloc_pd(context);
  struct ibv_ah_attr to = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = (uint8_t)index}};
  CHECK(pd != NULL && ibv_query_gid(context, 1, index, &to.grh.dgid) == 0);
  struct ibv_ah* handle = ibv_create_ah(pd, &to);
  CHECK(handle != NULL);
  return handle;
}

static void watch(struct ibv_context* context, int held_index) {
  struct ibv_ah* held = held_index >= 0 ? hold(context, held_index) : NULL;
  signal(SIGUSR1, on_signal);
  printf("ready\n");
  print_asked(context);
  print_files();
  for (;;) {
    fflush(stdout);
    struct pollfd entry = {context->async_fd, POLLIN, 0};
    (void)poll(&entry, 1, -1);
    if (let_go && held != NULL) {
      CHECK(ibv_destroy_ah(held) == 0);
      held = NULL;
      printf("let go\n");
    }
    struct ibv_async_event event;
    if (ibv_get_async_event(context, &event) != 0) continue;
    printf("event %s %d\n", ibv_event_type_str(event.event_type), event.element.port_num);
    ibv_ack_async_event(&event);
    print_asked(context);
    print_files();
  }
}

// --- provoke ---

struct world {
  struct ibv_context* context;
  struct ibv_context* bystander;
  struct ibv_pd* pd;
  struct ibv_cq* cq;      // for A, and for B's sends
  struct ibv_cq* own_cq;  // for B's receives
  struct ibv_srq* srq;    // B's queue, or null
  struct ibv_mr* mr;
  struct ibv_qp* a;
  struct ibv_qp* b;
};
static uint8_t memory[4096];

static struct ibv_qp* create_qp(struct world* w, bool is_b) {
  struct ibv_qp_init_attr init = {.send_cq = w->cq,
                                  .recv_cq = is_b ? w->own_cq : w->cq,
                                  .srq = is_b ? w->srq : NULL,
                                  .qp_type = IBV_QPT_RC,
                                  .cap = {8, 8, 1, 1, 0}};
  struct ibv_qp* qp = ibv_create_qp(w->pd, &init);
  CHECK(qp != NULL);
  return qp;
}

static void connect_to(struct world* w, struct ibv_qp* qp, const struct ibv_qp* peer, bool to_rts) {
  struct ibv_qp_attr to = {
      .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
  CHECK(ibv_modify_qp(qp, &to,
                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
  to = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
                            .path_mtu = IBV_MTU_1024,
                            .dest_qp_num = peer->qp_num,
                            .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}},
                            .max_dest_rd_atomic = 1,
                            .min_rnr_timer = 12};
  CHECK(ibv_query_gid(w->context, 1, 0, &to.ah_attr.grh.dgid) == 0);
  CHECK(ibv_modify_qp(qp, &to,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == 0);
  if (!to_rts) return;
  to = (struct ibv_qp_attr){
      .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
  CHECK(ibv_modify_qp(qp, &to,
                      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                          IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static void set_up(struct world* w, int own_cq_entries, bool shares, bool b_sends) {
  w->context = open_device();
  w->bystander = open_device();
  CHECK((w->pd = ibv_alloc_pd(w->context)) != NULL);
  CHECK((w->cq = ibv_create_cq(w->context, 64, NULL, NULL, 0)) != NULL);
  CHECK((w->own_cq = ibv_create_cq(w->context, own_cq_entries, NULL, NULL, 0)) != NULL);
  CHECK((w->mr = ibv_reg_mr(w->pd, memory, sizeof memory,
                            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)) != NULL);
  struct ibv_srq_init_attr init = {.attr = {8, 1, 0}};
  if (shares) CHECK((w->srq = ibv_create_srq(w->pd, &init)) != NULL);
  w->a = create_qp(w, false);
  w->b = create_qp(w, true);
  connect_to(w, w->b, w->a, b_sends);
  connect_to(w, w->a, w->b, true);
}

static void receive(struct world* w, uint32_t bytes, uint32_t key) {
  struct ibv_sge sge = {(uintptr_t)memory, bytes, key};
  struct ibv_recv_wr request = {.sg_list = &sge, .num_sge = 1};
  struct ibv_recv_wr* bad;
  CHECK((w->srq != NULL ? ibv_post_srq_recv(w->srq, &request, &bad)
                        : ibv_post_recv(w->b, &request, &bad)) == 0);
}

static void send_to_b(struct world* w, enum ibv_wr_opcode opcode, uint32_t rkey) {
  struct ibv_sge sge = {(uintptr_t)memory + 1024, message_bytes, w->mr->lkey};
  struct ibv_send_wr request = {
      .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED};
  request.wr.rdma.remote_addr = (uintptr_t)memory;
  request.wr.rdma.rkey = rkey;
  struct ibv_send_wr* bad;
  CHECK(ibv_post_send(w->a, &request, &bad) == 0);
}

static const char* element_of(const struct world* w, const struct ibv_async_event* event) {
  switch (event->event_type) {
    case IBV_EVENT_CQ_ERR:
      return event->element.cq == w->own_cq ? "own cq" : "another cq";
    case IBV_EVENT_SRQ_LIMIT_REACHED:
    case IBV_EVENT_SRQ_ERR:
      return event->element.srq == w->srq ? "srq" : "another srq";
    default:
      return event->element.qp == w->b ? "B" : event->element.qp == w->a ? "A" : "another qp";
  }
}

// Prints events until none has come for a while.
static void print_events(const struct world* w, struct ibv_context* context, const char* whose) {
  int patience_ms = context == w->context ? 2000 : 0;
  for (;;) {
    struct pollfd entry = {context->async_fd, POLLIN, 0};
    struct ibv_async_event event;
    // The device's thread makes the progress.
    if (poll(&entry, 1, patience_ms) <= 0) return;
    CHECK(ibv_get_async_event(context, &event) == 0);
    printf("%s%s, %s\n", whose, ibv_event_type_str(event.event_type), element_of(w, &event));
    ibv_ack_async_event(&event);
    patience_ms = 100;
  }
}

static void provoke(const char* name) {
  struct world w = {0};
  struct ibv_qp_attr to = {0};
  const bool shares = strcmp(name, "srq_limit") == 0 || strcmp(name, "last_wqe") == 0;
  set_up(&w, strcmp(name, "cq") == 0 ? 1 : 64, shares, strcmp(name, "established") != 0);
  if (strcmp(name, "access") == 0) {
    send_to_b(&w, IBV_WR_RDMA_WRITE, w.mr->rkey ^ 0x5500);
  } else if (strcmp(name, "unsupported") == 0) {
    send_to_b(&w, IBV_WR_RDMA_READ, w.mr->rkey);  // B does not serve READs
  } else if (strcmp(name, "too_long") == 0) {
    receive(&w, message_bytes - 1, w.mr->lkey);
    send_to_b(&w, IBV_WR_SEND, 0);
  } else if (strcmp(name, "bad_key") == 0) {
    receive(&w, message_bytes, w.mr->lkey ^ 0x5500);
    send_to_b(&w, IBV_WR_SEND, 0);
  } else if (strcmp(name, "cq") == 0) {
    for (int i = 0; i < 4; ++i) receive(&w, message_bytes, w.mr->lkey);
    for (int i = 0; i < 4; ++i) send_to_b(&w, IBV_WR_SEND, 0);
  } else if (strcmp(name, "established") == 0) {
    for (int i = 0; i < 2; ++i) receive(&w, message_bytes, w.mr->lkey);
    for (int i = 0; i < 2; ++i) send_to_b(&w, IBV_WR_SEND, 0);
  } else if (strcmp(name, "drained") == 0) {
    to.qp_state = IBV_QPS_SQD;
    to.en_sqd_async_notify = 1;
    CHECK(ibv_modify_qp(w.b, &to, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY) == 0);
  } else if (strcmp(name, "srq_limit") == 0) {
    struct ibv_srq_attr limit = {.srq_limit = 3};
    for (int i = 0; i < 4; ++i) receive(&w, message_bytes, w.mr->lkey);
    CHECK(ibv_modify_srq(w.srq, &limit, IBV_SRQ_LIMIT) == 0);
    for (int i = 0; i < 4; ++i) send_to_b(&w, IBV_WR_SEND, 0);
  } else if (strcmp(name, "last_wqe") == 0) {
    to.qp_state = IBV_QPS_ERR;
    for (int i = 0; i < 2; ++i) CHECK(ibv_modify_qp(w.b, &to, IBV_QP_STATE) == 0);
  } else {
    CHECK(!"a name that is known");
  }
  print_events(&w, w.context, "");
  print_events(&w, w.bystander, "bystander: ");
}

int main(int count, char** values) {
  CHECK(count >= 2);
  if (strcmp(values[1], "watch") == 0) {
    watch(open_device(), count > 2 ? atoi(values[2]) : -1);
  } else {
    CHECK(count == 3 && strcmp(values[1], "provoke") == 0);
    provoke(values[2]);
  }
  return 0;
}
