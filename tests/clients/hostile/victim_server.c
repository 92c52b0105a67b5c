// The victim's server. It answers each message with the next number.

#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_verbs.h>
#include <string.h>

#include "victim.h"

enum { slots = 32, sends = 0, receives = 1 };

struct slot {
  struct rdma_cm_id* id;  // NULL: the slot is free
  struct ibv_mr* region;
  struct ibv_mr* stripe_region;
  uint32_t life;  // tells the completions of this life of the slot from those of earlier ones
  uint8_t bytes[2][message_bytes];
  uint8_t stripe[stripe_bytes];  // the client writes here, and reads it again
};

static struct slot all[slots];
static struct ibv_pd* domain;
static struct ibv_comp_channel* completions;
static struct ibv_cq* queue;
static struct ibv_context* device;

static uint64_t name_of(const struct slot* slot, int direction) {
  return (uint64_t)slot->life << 32 | (uint64_t)(slot - all) << 1 | (uint64_t)direction;
}

static void open_device(struct ibv_context* context) {
  if (domain != NULL) return;
  device = context;
  domain = ibv_alloc_pd(context);
  if (domain == NULL) fail("ibv_alloc_pd");
  completions = ibv_create_comp_channel(context);
  if (completions == NULL) fail("ibv_create_comp_channel");
  queue = ibv_create_cq(context, 4 * slots, NULL, completions, 0);
  if (queue == NULL) fail("ibv_create_cq");
  check(ibv_req_notify_cq(queue, 0), "ibv_req_notify_cq");
}

static void release(struct slot* slot) {
  if (slot == NULL || slot->id == NULL) return;
  rdma_destroy_qp(slot->id);
  check(ibv_dereg_mr(slot->region), "ibv_dereg_mr");
  check(ibv_dereg_mr(slot->stripe_region), "ibv_dereg_mr");
  check(rdma_destroy_id(slot->id), "rdma_destroy_id");
  slot->id = NULL;
  ++slot->life;
}

static void refuse(struct rdma_cm_id* id) {
  rdma_reject(id, NULL, 0);
  check(rdma_destroy_id(id), "rdma_destroy_id");
}

static void receive(struct slot* slot) {
  if (rdma_post_recv(slot->id, (void*)name_of(slot, receives), slot->bytes[receives], message_bytes,
                     slot->region) != 0) {
    complain("rdma_post_recv", strerror(errno));
  }
}

static void accept_request(struct rdma_cm_id* id, const struct rdma_conn_param* asked) {
  if (asked->private_data_len < secret_bytes ||
      memcmp(asked->private_data, secret, secret_bytes) != 0) {
    add(field_strangers, 1);
    refuse(id);
    return;
  }
  open_device(id->verbs);
  struct slot* slot = all;
  while (slot < all + slots && slot->id != NULL) ++slot;
  if (slot == all + slots) {
    complain("a request", "no slot is free");
    refuse(id);
    return;
  }
  slot->id = id;
  id->context = slot;
  struct ibv_qp_init_attr attributes = {
      .send_cq = queue,
      .recv_cq = queue,
      .cap = {.max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1},
      .qp_type = IBV_QPT_RC,
      .sq_sig_all = 1};
  check(rdma_create_qp(id, domain, &attributes), "rdma_create_qp");
  slot->region = ibv_reg_mr(domain, slot->bytes, sizeof slot->bytes, IBV_ACCESS_LOCAL_WRITE);
  slot->stripe_region =
      ibv_reg_mr(domain, slot->stripe, sizeof slot->stripe,
                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  if (slot->region == NULL || slot->stripe_region == NULL) fail("ibv_reg_mr");
  receive(slot);
  const struct welcome welcome = {(uintptr_t)slot->stripe, slot->stripe_region->rkey};
  struct rdma_conn_param answer = parameters;
  answer.private_data = &welcome;
  answer.private_data_len = sizeof welcome;
  if (rdma_accept(id, &answer) != 0) release(slot);
}

static void handle_event(struct rdma_event_channel* channel) {
  struct rdma_cm_event* event;
  if (rdma_get_cm_event(channel, &event) != 0) return;
  const enum rdma_cm_event_type type = event->event;
  struct rdma_cm_id* const id = event->id;
  switch (type) {
    case RDMA_CM_EVENT_CONNECT_REQUEST: {
      struct rdma_conn_param asked = event->param.conn;
      uint8_t data[256];
      memcpy(data, asked.private_data, asked.private_data_len);
      asked.private_data = data;
      check(rdma_ack_cm_event(event), "rdma_ack_cm_event");
      accept_request(id, &asked);
      return;
    }
    case RDMA_CM_EVENT_DISCONNECTED:
      rdma_ack_cm_event(event);
      rdma_disconnect(id);
      release(id->context);
      return;
    case RDMA_CM_EVENT_ESTABLISHED:
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
      break;
    default:
      complain("the server's channel", rdma_event_str(type));
      rdma_ack_cm_event(event);
      release(id->context);
      return;
  }
  rdma_ack_cm_event(event);
}

static void handle_completion(const struct ibv_wc* completion) {
  struct slot* const slot = &all[(uint32_t)completion->wr_id >> 1];
  if (slot->id == NULL || slot->life != completion->wr_id >> 32) return;
  if (completion->status == IBV_WC_WR_FLUSH_ERR) return;  // the client has disconnected
  if (completion->status != IBV_WC_SUCCESS) {
    complain("the server's completion", ibv_wc_status_str(completion->status));
    return;
  }
  if ((completion->wr_id & 1) != receives) return;
  uint64_t number;
  memcpy(&number, slot->bytes[receives] + secret_bytes, sizeof number);
  if (completion->byte_len != message_bytes ||
      !is_filled(slot->bytes[receives], message_bytes, number)) {
    add(field_wrong, 1);
  }
  receive(slot);
  fill(slot->bytes[sends], message_bytes, number + 1);
  if (rdma_post_send(slot->id, (void*)name_of(slot, sends), slot->bytes[sends], message_bytes,
                     slot->region, 0) != 0) {
    complain("rdma_post_send", strerror(errno));
  }
  add(field_messages, 1);
}

static void handle_completions(void) {
  struct ibv_cq* of;
  void* context;
  check(ibv_get_cq_event(completions, &of, &context), "ibv_get_cq_event");
  ibv_ack_cq_events(of, 1);
  check(ibv_req_notify_cq(of, 0), "ibv_req_notify_cq");
  struct ibv_wc completion;
  while (ibv_poll_cq(of, 1, &completion) > 0) handle_completion(&completion);
}

int serve(const char* port) {
  struct rdma_event_channel* channel = rdma_create_event_channel();
  if (channel == NULL) fail("rdma_create_event_channel");
  check(fcntl(channel->fd, F_SETFL, O_NONBLOCK), "fcntl");
  struct sockaddr_in address = address_at(port);
  struct rdma_cm_id* listener;
  check(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP), "rdma_create_id");
  check(rdma_bind_addr(listener, (struct sockaddr*)&address), "rdma_bind_addr");
  check(rdma_listen(listener, 128), "rdma_listen");
  page[field_ready] = 1;
  for (;;) {
    struct pollfd waits[] = {{.fd = channel->fd, .events = POLLIN},
                             {.fd = completions != NULL ? completions->fd : -1, .events = POLLIN}};
    if (poll(waits, 2, 100) < 0) continue;
    if (waits[0].revents != 0) handle_event(channel);
    if (waits[1].revents != 0) handle_completions();
    if (device != NULL) look_for_device_events(device);
  }
}
