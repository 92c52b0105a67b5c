// Connects and disconnects many times within one process, which is both sides, and prints what that
// left behind.
//
//   connections CYCLES [ADDRESS]
//
// The output is one line: "cycles N descriptors BEFORE AFTER heap BEFORE AFTER", in counts and
// bytes. "Before" is after a tenth of the cycles. Each cycle sends a byte each way. Each side
// chooses its ACK timeout as late as it may.

#define _GNU_SOURCE

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { port = 18700, timeout_milliseconds = 2000 };

static struct rdma_event_channel* active_channel;
static struct rdma_event_channel* passive_channel;
static struct sockaddr_in address = {.sin_family = AF_INET};

static void fail(const char* what) {
  printf("%s: %s\n", what, strerror(errno));
  exit(1);
}

static void check(int result, const char* what) {
  if (result != 0) fail(what);
}

// Takes the next event, which must have that type, and returns its id.
static struct rdma_cm_id* expect(struct rdma_event_channel* channel, enum rdma_cm_event_type type) {
  struct rdma_cm_event* event;
  check(rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
  if (event->event != type || event->status != 0) {
    printf("%s with status %d instead of %s\n", rdma_event_str(event->event), event->status,
           rdma_event_str(type));
    exit(1);
  }
  struct rdma_cm_id* id = event->id;
  check(rdma_ack_cm_event(event), "rdma_ack_cm_event");
  return id;
}

static void create_qp(struct rdma_cm_id* id) {
  struct ibv_qp_init_attr attributes = {
      .cap = {.max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1},
      .qp_type = IBV_QPT_RC,
      .sq_sig_all = 1};
  check(rdma_create_qp(id, NULL, &attributes), "rdma_create_qp");
}

struct side {
  struct rdma_cm_id* id;
  struct ibv_mr* region;
  unsigned char bytes[2];  // received, sent
};

static void prepare(struct side* side) {
  side->region = rdma_reg_msgs(side->id, side->bytes, sizeof side->bytes);
  if (side->region == NULL) fail("rdma_reg_msgs");
  check(rdma_post_recv(side->id, NULL, &side->bytes[0], 1, side->region), "rdma_post_recv");
}

static void wait_for(int count, const struct ibv_wc* completion) {
  if (count == 1 && completion->status == IBV_WC_SUCCESS) return;
  printf("completion: %s\n", ibv_wc_status_str(completion->status));
  exit(1);
}

static void send_byte(struct side* from, struct side* to, unsigned char byte) {
  struct ibv_wc completion;
  from->bytes[1] = byte;
  check(rdma_post_send(from->id, NULL, &from->bytes[1], 1, from->region, 0), "rdma_post_send");
  wait_for(rdma_get_send_comp(from->id, &completion), &completion);
  wait_for(rdma_get_recv_comp(to->id, &completion), &completion);
  if (to->bytes[0] == byte) return;
  printf("byte %u instead of %u\n", to->bytes[0], byte);
  exit(1);
}

static void end(struct side* side) {
  check(rdma_dereg_mr(side->region), "rdma_dereg_mr");
  rdma_destroy_qp(side->id);
  check(rdma_destroy_id(side->id), "rdma_destroy_id");
}

static void choose_ack_timeout(struct rdma_cm_id* id, uint8_t timeout) {
  check(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout),
        "rdma_set_option");
}

static void expect_ack_timeout(struct rdma_cm_id* id, uint8_t timeout) {
  struct ibv_qp_attr attributes;
  struct ibv_qp_init_attr initial;
  if (ibv_query_qp(id->qp, &attributes, IBV_QP_TIMEOUT, &initial) != 0) fail("ibv_query_qp");
  if (attributes.timeout == timeout) return;
  printf("ACK timeout %d instead of %d\n", attributes.timeout, timeout);
  exit(1);
}

static void cycle(int number) {
  enum { active_timeout = 17, passive_timeout = 15 };
  struct side active = {0};
  struct side passive = {0};
  struct rdma_conn_param parameters = {
      .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7};
  check(rdma_create_id(active_channel, &active.id, NULL, RDMA_PS_TCP), "rdma_create_id");
  check(rdma_resolve_addr(active.id, NULL, (struct sockaddr*)&address, timeout_milliseconds),
        "rdma_resolve_addr");
  expect(active_channel, RDMA_CM_EVENT_ADDR_RESOLVED);
  check(rdma_resolve_route(active.id, timeout_milliseconds), "rdma_resolve_route");
  expect(active_channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
  create_qp(active.id);
  prepare(&active);
  choose_ack_timeout(active.id, active_timeout);
  check(rdma_connect(active.id, &parameters), "rdma_connect");

  passive.id = expect(passive_channel, RDMA_CM_EVENT_CONNECT_REQUEST);
  create_qp(passive.id);
  prepare(&passive);
  choose_ack_timeout(passive.id, passive_timeout);
  check(rdma_accept(passive.id, &parameters), "rdma_accept");
  expect(active_channel, RDMA_CM_EVENT_ESTABLISHED);
  expect(passive_channel, RDMA_CM_EVENT_ESTABLISHED);
  expect_ack_timeout(active.id, active_timeout);
  expect_ack_timeout(passive.id, passive_timeout);

  send_byte(&active, &passive, (unsigned char)number);
  send_byte(&passive, &active, (unsigned char)(number + 1));

  check(rdma_disconnect(active.id), "rdma_disconnect");
  expect(passive_channel, RDMA_CM_EVENT_DISCONNECTED);
  check(rdma_disconnect(passive.id), "rdma_disconnect");  // answers the other side's disconnect
  expect(active_channel, RDMA_CM_EVENT_DISCONNECTED);
  end(&active);
  end(&passive);
}

static int descriptors(void) {
  int count = 0;
  DIR* folder = opendir("/proc/self/fd");
  if (folder == NULL) fail("/proc/self/fd");
  while (readdir(folder) != NULL) ++count;
  closedir(folder);
  return count;
}

static size_t heap_bytes(void) { return mallinfo2().uordblks; }

int main(int argc, char** argv) {
  const int cycles = argc > 1 ? atoi(argv[1]) : 100;
  inet_pton(AF_INET, argc > 2 ? argv[2] : "127.0.0.1", &address.sin_addr);
  address.sin_port = htons(port);
  active_channel = rdma_create_event_channel();
  passive_channel = rdma_create_event_channel();
  if (active_channel == NULL || passive_channel == NULL) fail("rdma_create_event_channel");
  struct rdma_cm_id* listener;
  check(rdma_create_id(passive_channel, &listener, NULL, RDMA_PS_TCP), "rdma_create_id");
  check(rdma_bind_addr(listener, (struct sockaddr*)&address), "rdma_bind_addr");
  check(rdma_listen(listener, 8), "rdma_listen");

  int descriptors_before = 0;
  size_t heap_before = 0;
  for (int i = 0; i < cycles; ++i) {
    cycle(i);
    if (i == cycles / 10) {
      descriptors_before = descriptors();
      heap_before = heap_bytes();
    }
  }
  printf("cycles %d descriptors %d %d heap %zu %zu\n", cycles, descriptors_before, descriptors(),
         heap_before, heap_bytes());
  check(rdma_destroy_id(listener), "rdma_destroy_id");
  rdma_destroy_event_channel(active_channel);
  rdma_destroy_event_channel(passive_channel);
  return 0;
}
