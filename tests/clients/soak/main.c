// A server that lives long, and clients that live short, of which some are killed.
//
//   soak server PORT
//     accepts connections until SIGTERM, answers the message of each, and then prints one line:
//     "accepted N answered N failed N open N given_up N". If it has no room for one more, it gives
//     up the one that has waited longest for its peer to confirm it.
//   soak hoard PORT
//     accepts every request until SIGTERM, and keeps each until its peer or the host agent ends it.
//     Then prints one line: "accepted N ended N most N".
//   soak client PORT CONNECTIONS FILE
//     connects that many times, one after the other, exchanges a message each time, and appends to
//     FILE how long each connection took to establish: 32-bit numbers of microseconds.
//   soak stay PORT CONNECTIONS FILE
//     does the same, and stays until SIGTERM, so that it can be measured.
//   soak steady PORT EXCHANGES FILE
//     connects once and exchanges that many messages, and appends to FILE how long each took.
//   soak killed PORT STEP
//     does the same once, and kills itself with SIGKILL at that step (1 to `steps`).
//   soak lives PORT COUNT SEED FILE
//     runs COUNT clients of one connection each, two at a time. One in eight is killed, at a random
//     step. Prints "lives N killed N failed N".
//
// PORT is ADDRESS:PORT where the address is not 127.0.0.1. The address :: is that of both families.

#define _GNU_SOURCE

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { message_bytes = 64, timeout_milliseconds = 2000, steps = 6 };

static struct rdma_conn_param parameters = {
    .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7};

static void fail(const char* what) {
  fprintf(stderr, "soak: %s: %s\n", what, strerror(errno));
  exit(1);
}

static void check(int result, const char* what) {
  if (result != 0) fail(what);
}

static struct sockaddr_storage address_at(const char* place) {
  char host[INET6_ADDRSTRLEN] = "127.0.0.1";
  const char* colon = strrchr(place, ':');
  if (colon != NULL && colon - place < (ptrdiff_t)sizeof host) {
    memcpy(host, place, (size_t)(colon - place));
    host[colon - place] = 0;
  }
  const uint16_t port = htons((uint16_t)atoi(colon != NULL ? colon + 1 : place));
  struct sockaddr_storage address = {0};
  struct sockaddr_in* in = (struct sockaddr_in*)&address;
  struct sockaddr_in6* in6 = (struct sockaddr_in6*)&address;
  if (inet_pton(AF_INET, host, &in->sin_addr) == 1) {
    in->sin_family = AF_INET;
    in->sin_port = port;
  } else if (inet_pton(AF_INET6, host, &in6->sin6_addr) == 1) {
    in6->sin6_family = AF_INET6;
    in6->sin6_port = port;
  } else {
    fail(place);
  }
  return address;
}

static void fill(unsigned char* message, uint32_t number) {
  for (int i = 0; i < message_bytes; ++i) message[i] = (unsigned char)(number + 7 * i);
}

// --- the server ---

enum { slots = 256, sends = 0, receives = 1 };

// The server's end of a connection. `life` tells the completions of this life of the slot from
// those of earlier ones.
struct slot {
  struct rdma_cm_id* id;  // NULL: the slot is free
  struct ibv_mr* region;
  uint32_t life;
  bool is_confirmed;     // by its peer
  bool is_sending;       // the completion of the last answer has not come
  bool owes_answer;      // a message has come and was not answered
  unsigned long number;  // of the accepted connection
  unsigned char bytes[2][message_bytes];
};

static struct {
  struct slot slots[slots];
  struct ibv_pd* domain;
  struct ibv_comp_channel* completions;
  struct ibv_cq* queue;
  unsigned long accepted, answered, failed, given_up;
} server;

static volatile sig_atomic_t is_stopped;
static void stop(int number) {
  (void)number;
  is_stopped = 1;
}

static uint64_t name_of(const struct slot* slot, int direction) {
  return (uint64_t)slot->life << 32 | (uint64_t)(slot - server.slots) << 1 | (uint64_t)direction;
}

static void open_server_device(struct ibv_context* context) {
  if (server.domain != NULL) return;
  server.domain = ibv_alloc_pd(context);
  if (server.domain == NULL) fail("ibv_alloc_pd");
  server.completions = ibv_create_comp_channel(context);
  if (server.completions == NULL) fail("ibv_create_comp_channel");
  server.queue = ibv_create_cq(context, 4 * slots, NULL, server.completions, 0);
  if (server.queue == NULL) fail("ibv_create_cq");
  check(ibv_req_notify_cq(server.queue, 0), "ibv_req_notify_cq");
}

static void release(struct slot* slot) {
  rdma_destroy_qp(slot->id);
  check(ibv_dereg_mr(slot->region), "ibv_dereg_mr");
  check(rdma_destroy_id(slot->id), "rdma_destroy_id");
  slot->id = NULL;
  ++slot->life;
}

static void refuse(struct rdma_cm_id* id) {
  rdma_reject(id, NULL, 0);  // fails if the peer has given up
  check(rdma_destroy_id(id), "rdma_destroy_id");
}

// Returns a free slot, if need be that of the oldest connection that its peer has not confirmed.
// Returns NULL if all are confirmed.
static struct slot* take_slot(void) {
  struct slot* oldest = NULL;
  for (struct slot* slot = server.slots; slot < server.slots + slots; ++slot) {
    if (slot->id == NULL) return slot;
    if (!slot->is_confirmed && (oldest == NULL || slot->number < oldest->number)) oldest = slot;
  }
  if (oldest != NULL) {
    release(oldest);
    ++server.given_up;
  }
  return oldest;
}

static void accept_request(struct rdma_cm_id* id) {
  open_server_device(id->verbs);
  if (id->qp_type != IBV_QPT_RC) return refuse(id);
  struct slot* slot = take_slot();
  if (slot == NULL) {
    ++server.failed;
    return refuse(id);
  }
  slot->id = id;
  slot->is_confirmed = slot->is_sending = slot->owes_answer = false;
  slot->number = server.accepted;
  id->context = slot;
  struct ibv_qp_init_attr attributes = {
      .send_cq = server.queue,
      .recv_cq = server.queue,
      .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
      .qp_type = IBV_QPT_RC,
      .sq_sig_all = 1};
  check(rdma_create_qp(id, server.domain, &attributes), "rdma_create_qp");
  slot->region = ibv_reg_mr(server.domain, slot->bytes, sizeof slot->bytes, IBV_ACCESS_LOCAL_WRITE);
  if (slot->region == NULL) fail("ibv_reg_mr");
  check(rdma_post_recv(id, (void*)name_of(slot, receives), slot->bytes[receives], message_bytes,
                       slot->region),
        "rdma_post_recv");
  // A client that is dead already makes this fail; the event that says so follows.
  if (rdma_accept(id, &parameters) == 0) {
    ++server.accepted;
  } else {
    release(slot);
  }
}

static void handle_event(struct rdma_event_channel* channel) {
  struct rdma_cm_event* event;
  if (rdma_get_cm_event(channel, &event) != 0) {
    if (errno == EAGAIN || errno == EINTR) return;
    fail("rdma_get_cm_event");
  }
  const enum rdma_cm_event_type type = event->event;
  struct rdma_cm_id* const id = event->id;
  check(rdma_ack_cm_event(event), "rdma_ack_cm_event");
  switch (type) {
    case RDMA_CM_EVENT_CONNECT_REQUEST:
      accept_request(id);
      break;
    case RDMA_CM_EVENT_ESTABLISHED:
      ((struct slot*)id->context)->is_confirmed = true;
      break;
    case RDMA_CM_EVENT_DISCONNECTED:
      rdma_disconnect(id);
      release(id->context);
      break;
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_REJECTED:
      release(id->context);
      break;
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      fprintf(stderr, "soak: the host agent is gone\n");
      exit(1);
    default:
      break;
  }
}

// The peer sends the next message once it has the answer to the last. That answer may be
// acknowledged after the next message, and the send queue has room for one.
static void answer(struct slot* slot) {
  if (!slot->owes_answer || slot->is_sending) return;
  slot->owes_answer = false;
  slot->is_sending = true;
  fill(slot->bytes[sends], slot->bytes[receives][0] + 1u);
  // The answer ends the client's turn, so the next message finds this receive.
  if (rdma_post_recv(slot->id, (void*)name_of(slot, receives), slot->bytes[receives], message_bytes,
                     slot->region) != 0) {
    return;
  }
  if (rdma_post_send(slot->id, (void*)name_of(slot, sends), slot->bytes[sends], message_bytes,
                     slot->region, 0) == 0) {
    ++server.answered;
  }
}

// Answers a message with the same bytes, each one higher.
static void handle_completion(const struct ibv_wc* completion) {
  struct slot* const slot = &server.slots[(uint32_t)completion->wr_id >> 1];
  const bool is_of_this_life = slot->id != NULL && slot->life == completion->wr_id >> 32;
  const bool is_received = (completion->wr_id & 1) == receives;
  if (!is_of_this_life || completion->status != IBV_WC_SUCCESS) return;
  if (!is_received) {
    slot->is_sending = false;
    return answer(slot);
  }
  unsigned char expected[message_bytes];
  fill(expected, slot->bytes[receives][0]);
  if (completion->byte_len != message_bytes ||
      memcmp(expected, slot->bytes[receives], message_bytes) != 0) {
    ++server.failed;
  }
  slot->owes_answer = true;
  answer(slot);
}

static void handle_completions(void) {
  struct ibv_cq* queue;
  void* context;
  check(ibv_get_cq_event(server.completions, &queue, &context), "ibv_get_cq_event");
  ibv_ack_cq_events(queue, 1);
  check(ibv_req_notify_cq(queue, 0), "ibv_req_notify_cq");
  struct ibv_wc completion;
  int count;
  while ((count = ibv_poll_cq(queue, 1, &completion)) > 0) handle_completion(&completion);
  if (count < 0) fail("ibv_poll_cq");
}

static int serve(const char* port) {
  struct sigaction action = {.sa_handler = stop};
  sigaction(SIGTERM, &action, NULL);
  struct rdma_event_channel* channel = rdma_create_event_channel();
  if (channel == NULL) fail("rdma_create_event_channel");
  check(fcntl(channel->fd, F_SETFL, O_NONBLOCK), "fcntl");
  struct sockaddr_storage address = address_at(port);
  struct rdma_cm_id* listener;
  check(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP), "rdma_create_id");
  check(rdma_bind_addr(listener, (struct sockaddr*)&address), "rdma_bind_addr");
  check(rdma_listen(listener, slots), "rdma_listen");
  while (!is_stopped) {
    struct pollfd waits[] = {
        {.fd = channel->fd, .events = POLLIN},
        {.fd = server.completions != NULL ? server.completions->fd : -1, .events = POLLIN}};
    if (poll(waits, 2, 1000) <= 0) continue;
    if (waits[0].revents != 0) handle_event(channel);
    if (waits[1].revents != 0) handle_completions();
  }
  int open = 0;
  for (int i = 0; i < slots; ++i) open += server.slots[i].id != NULL;
  printf("accepted %lu answered %lu failed %lu open %d given_up %lu\n", server.accepted,
         server.answered, server.failed, open, server.given_up);
  return 0;
}

// --- a server that keeps what it accepts ---

static int hoard(const char* port) {
  struct sigaction action = {.sa_handler = stop};
  sigaction(SIGTERM, &action, NULL);
  unsigned long accepted = 0, ended = 0, most = 0;
  struct rdma_event_channel* channel = rdma_create_event_channel();
  if (channel == NULL) fail("rdma_create_event_channel");
  struct sockaddr_storage address = address_at(port);
  struct rdma_cm_id* listener;
  check(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP), "rdma_create_id");
  check(rdma_bind_addr(listener, (struct sockaddr*)&address), "rdma_bind_addr");
  check(rdma_listen(listener, 1024), "rdma_listen");
  while (!is_stopped) {
    struct rdma_cm_event* event;
    if (rdma_get_cm_event(channel, &event) != 0) {
      if (errno == EINTR) continue;
      fail("rdma_get_cm_event");
    }
    const enum rdma_cm_event_type type = event->event;
    struct rdma_cm_id* const id = event->id;
    check(rdma_ack_cm_event(event), "rdma_ack_cm_event");
    if (type == RDMA_CM_EVENT_DEVICE_REMOVAL) {
      fprintf(stderr, "soak: the host agent is gone\n");
      return 1;
    }
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
      struct rdma_conn_param answer = {
          .responder_resources = 1, .initiator_depth = 1, .qp_num = 0x1234};
      ++accepted;
      if (accepted - ended > most) most = accepted - ended;
      if (rdma_accept(id, &answer) == 0) continue;
    } else if (type == RDMA_CM_EVENT_ESTABLISHED) {
      continue;
    }
    ++ended;
    check(rdma_destroy_id(id), "rdma_destroy_id");
  }
  printf("accepted %lu ended %lu most %lu\n", accepted, ended, most);
  return 0;
}

// --- a client ---

static void expect(struct rdma_event_channel* channel, enum rdma_cm_event_type type) {
  struct rdma_cm_event* event;
  check(rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
  if (event->event != type || event->status != 0) {
    fprintf(stderr, "soak: %s with status %d instead of %s\n", rdma_event_str(event->event),
            event->status, rdma_event_str(type));
    exit(1);
  }
  check(rdma_ack_cm_event(event), "rdma_ack_cm_event");
}

static void wait_for(int count, const struct ibv_wc* completion) {
  if (count == 1 && completion->status == IBV_WC_SUCCESS) return;
  fprintf(stderr, "soak: completion: %s\n", ibv_wc_status_str(completion->status));
  exit(1);
}

static uint64_t microseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

struct client {
  struct rdma_event_channel* channel;
  struct rdma_cm_id* id;
  struct ibv_mr* region;
  int last_step;  // the step at which this program kills itself, or 0
  unsigned char bytes[2][message_bytes];
};

static void step(const struct client* client, int number) {
  if (number == client->last_step) kill(getpid(), SIGKILL);
}

static void prepare_to_receive(struct client* client) {
  check(rdma_post_recv(client->id, NULL, client->bytes[receives], message_bytes, client->region),
        "rdma_post_recv");
}

static void connect_to(struct client* client, const char* port) {
  struct ibv_qp_init_attr attributes = {
      .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
      .qp_type = IBV_QPT_RC,
      .sq_sig_all = 1};
  struct sockaddr_storage address = address_at(port);
  check(rdma_create_id(client->channel, &client->id, NULL, RDMA_PS_TCP), "rdma_create_id");
  check(rdma_resolve_addr(client->id, NULL, (struct sockaddr*)&address, timeout_milliseconds),
        "rdma_resolve_addr");
  expect(client->channel, RDMA_CM_EVENT_ADDR_RESOLVED);
  step(client, 1);
  check(rdma_resolve_route(client->id, timeout_milliseconds), "rdma_resolve_route");
  expect(client->channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
  check(rdma_create_qp(client->id, NULL, &attributes), "rdma_create_qp");
  client->region = rdma_reg_msgs(client->id, client->bytes, sizeof client->bytes);
  if (client->region == NULL) fail("rdma_reg_msgs");
  prepare_to_receive(client);
  step(client, 2);
  check(rdma_connect(client->id, &parameters), "rdma_connect");
  step(client, 3);
  expect(client->channel, RDMA_CM_EVENT_ESTABLISHED);
  step(client, 4);
}

static void exchange(struct client* client, uint32_t number) {
  struct ibv_wc completion;
  fill(client->bytes[sends], number);
  check(rdma_post_send(client->id, NULL, client->bytes[sends], message_bytes, client->region, 0),
        "rdma_post_send");
  step(client, 5);
  wait_for(rdma_get_send_comp(client->id, &completion), &completion);
  wait_for(rdma_get_recv_comp(client->id, &completion), &completion);
  step(client, 6);
  unsigned char expected[message_bytes];
  fill(expected, client->bytes[sends][0] + 1u);
  if (memcmp(expected, client->bytes[receives], message_bytes) != 0) {
    fprintf(stderr, "soak: wrong bytes in the answer\n");
    exit(1);
  }
}

static void disconnect(struct client* client) {
  check(rdma_disconnect(client->id), "rdma_disconnect");
  expect(client->channel, RDMA_CM_EVENT_DISCONNECTED);
  check(rdma_dereg_mr(client->region), "rdma_dereg_mr");
  rdma_destroy_qp(client->id);
  check(rdma_destroy_id(client->id), "rdma_destroy_id");
}

static void wait_for_the_signal(void) {
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGTERM);
  int number;
  sigwait(&wanted, &number);
}

static void append(int file, uint64_t began) {
  const uint32_t took = (uint32_t)(microseconds() - began);
  if (write(file, &took, sizeof took) != (ssize_t)sizeof took) fail("write");
}

static int open_file(const char* path) {
  const int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) fail(path);
  return file;
}

static struct client new_client(int last_step) {
  struct client client = {.channel = rdma_create_event_channel(), .last_step = last_step};
  if (client.channel == NULL) fail("rdma_create_event_channel");
  return client;
}

static int be_client(const char* port, int connections, const char* path, int last_step,
                     bool stays) {
  struct client client = new_client(last_step);
  const int file = open_file(path);
  for (int i = 0; i < connections; ++i) {
    const uint64_t began = microseconds();
    connect_to(&client, port);
    append(file, began);
    exchange(&client, (uint32_t)i);
    disconnect(&client);
  }
  close(file);
  if (stays) wait_for_the_signal();
  rdma_destroy_event_channel(client.channel);
  return 0;
}

static int be_steady(const char* port, int exchanges, const char* path) {
  struct client client = new_client(0);
  const int file = open_file(path);
  connect_to(&client, port);
  for (int i = 0; i < exchanges; ++i) {
    const uint64_t began = microseconds();
    if (i > 0) prepare_to_receive(&client);
    exchange(&client, (uint32_t)i);
    append(file, began);
  }
  close(file);
  disconnect(&client);
  return 0;
}

// --- many clients ---

static pid_t start(char** argv) {
  const pid_t child = fork();
  if (child != 0) return child;
  execv("/proc/self/exe", argv);
  _exit(127);
}

static int run_lives(const char* port, int count, unsigned seed, const char* path) {
  int started = 0, running = 0, killed = 0, failed = 0;
  while (started < count || running > 0) {
    if (started < count && running < 2) {
      char kill_at[12];
      snprintf(kill_at, sizeof kill_at, "%d", 1 + rand_r(&seed) % steps);
      char* whole[] = {"soak", "client", (char*)port, "1", (char*)path, NULL};
      char* short_life[] = {"soak", "killed", (char*)port, kill_at, NULL};
      if (start(rand_r(&seed) % 8 == 0 ? short_life : whole) < 0) fail("fork");
      ++started;
      ++running;
      continue;
    }
    int status;
    if (wait(&status) < 0) fail("wait");
    --running;
    const bool is_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    killed += is_killed;
    failed += !is_killed && status != 0;
  }
  printf("lives %d killed %d failed %d\n", started, killed, failed);
  return failed > 0;
}

int main(int argc, char** argv) {
  const char* what = argc > 2 ? argv[1] : "";
  if (strcmp(what, "server") == 0) return serve(argv[2]);
  if (strcmp(what, "hoard") == 0) return hoard(argv[2]);
  if (strcmp(what, "client") == 0 && argc == 5) {
    return be_client(argv[2], atoi(argv[3]), argv[4], 0, false);
  }
  if (strcmp(what, "steady") == 0 && argc == 5) {
    return be_steady(argv[2], atoi(argv[3]), argv[4]);
  }
  if (strcmp(what, "stay") == 0 && argc == 5) {
    sigset_t blocked;  // in the device's threads, too
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    return be_client(argv[2], atoi(argv[3]), argv[4], 0, true);
  }
  if (strcmp(what, "killed") == 0 && argc == 4) {
    return be_client(argv[2], 1, "/dev/null", atoi(argv[3]), false);
  }
  if (strcmp(what, "lives") == 0 && argc == 6) {
    return run_lives(argv[2], atoi(argv[3]), (unsigned)atoi(argv[4]), argv[5]);
  }
  fprintf(stderr,
          "soak: server or hoard PORT | client or stay PORT CONNECTIONS FILE | steady PORT "
          "EXCHANGES FILE | "
          "killed PORT STEP | "
          "lives PORT COUNT SEED FILE\n");
  return 2;
}
