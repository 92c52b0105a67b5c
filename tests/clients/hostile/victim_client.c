// The victim's client: one connection that stays, and new ones beside it.

#define _GNU_SOURCE

#include <errno.h>
#include <poll.h>
#include <rdma/rdma_verbs.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "victim.h"

enum { sends = 0, receives = 1, timeout_milliseconds = 10000, connect_pause_ns = 20000000 };

struct client {
  struct rdma_event_channel* channel;
  struct rdma_cm_id* id;
  struct ibv_mr* region;
  struct ibv_mr* stripe_region;
  struct welcome welcome;
  uint64_t number;
  uint8_t bytes[2][message_bytes];
  uint8_t stripes[2][stripe_bytes];
};

// Waits for an event, which must be of that type. Prints what comes instead.
static bool expect(struct client* client, enum rdma_cm_event_type type) {
  struct pollfd wait = {.fd = client->channel->fd, .events = POLLIN};
  struct rdma_cm_event* event;
  if (poll(&wait, 1, timeout_milliseconds) <= 0 ||
      rdma_get_cm_event(client->channel, &event) != 0) {
    fprintf(stderr, "hostile_victim: no event, but %s was due\n", rdma_event_str(type));
    return false;
  }
  const bool is_right = event->event == type && event->status == 0;
  if (!is_right) {
    fprintf(stderr, "hostile_victim: %s with status %d instead of %s\n",
            rdma_event_str(event->event), event->status, rdma_event_str(type));
  }
  if (is_right && type == RDMA_CM_EVENT_ESTABLISHED &&
      event->param.conn.private_data_len >= sizeof client->welcome) {
    memcpy(&client->welcome, event->param.conn.private_data, sizeof client->welcome);
  }
  rdma_ack_cm_event(event);
  return is_right;
}

static bool is_done(int result, const char* what) {
  if (result != 0) fprintf(stderr, "hostile_victim: %s: %s\n", what, strerror(errno));
  return result == 0;
}

static void disconnect(struct client* client, bool is_connected) {
  if (client->id == NULL) return;
  if (is_connected && rdma_disconnect(client->id) == 0) {
    expect(client, RDMA_CM_EVENT_DISCONNECTED);
  }
  if (client->region != NULL) rdma_dereg_mr(client->region);
  if (client->stripe_region != NULL) rdma_dereg_mr(client->stripe_region);
  client->region = client->stripe_region = NULL;
  if (client->id->qp != NULL) rdma_destroy_qp(client->id);
  rdma_destroy_id(client->id);
  client->id = NULL;
}

static bool receive(struct client* client) {
  return is_done(
      rdma_post_recv(client->id, NULL, client->bytes[receives], message_bytes, client->region),
      "rdma_post_recv");
}

static bool begin(struct client* client, const char* port) {
  struct sockaddr_in address = address_at(port);
  return is_done(rdma_create_id(client->channel, &client->id, NULL, RDMA_PS_TCP),
                 "rdma_create_id") &&
         is_done(
             rdma_resolve_addr(client->id, NULL, (struct sockaddr*)&address, timeout_milliseconds),
             "rdma_resolve_addr") &&
         expect(client, RDMA_CM_EVENT_ADDR_RESOLVED) &&
         is_done(rdma_resolve_route(client->id, timeout_milliseconds), "rdma_resolve_route") &&
         expect(client, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

static bool connect_to(struct client* client, const char* port) {
  struct ibv_qp_init_attr attributes = {
      .cap = {.max_send_wr = 4, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1},
      .qp_type = IBV_QPT_RC,
      .sq_sig_all = 1};
  struct rdma_conn_param asked = parameters;
  asked.private_data = secret;
  asked.private_data_len = secret_bytes;
  if (!begin(client, port)) return false;
  if (!is_done(rdma_create_qp(client->id, NULL, &attributes), "rdma_create_qp")) return false;
  client->region = rdma_reg_msgs(client->id, client->bytes, sizeof client->bytes);
  client->stripe_region = rdma_reg_msgs(client->id, client->stripes, sizeof client->stripes);
  if (client->region == NULL || client->stripe_region == NULL) return false;
  return receive(client) && is_done(rdma_connect(client->id, &asked), "rdma_connect") &&
         expect(client, RDMA_CM_EVENT_ESTABLISHED);
}

static bool completes(int count, const struct ibv_wc* completion, const char* what) {
  if (count == 1 && completion->status == IBV_WC_SUCCESS) return true;
  complain(what, ibv_wc_status_str(completion->status));
  return false;
}

// Exchanges a message. Returns false if the connection is of no more use.
static bool exchange(struct client* client) {
  const uint64_t began = now_ns();
  const uint64_t number = client->number += 2 * message_bytes;
  struct ibv_wc completion = {.status = IBV_WC_GENERAL_ERR};
  fill(client->bytes[sends], message_bytes, number);
  if (rdma_post_send(client->id, NULL, client->bytes[sends], message_bytes, client->region, 0) !=
      0) {
    complain("rdma_post_send", strerror(errno));
    return false;
  }
  if (!completes(rdma_get_send_comp(client->id, &completion), &completion, "a SEND")) return false;
  if (!completes(rdma_get_recv_comp(client->id, &completion), &completion, "an answer")) {
    return false;
  }
  if (!is_filled(client->bytes[receives], message_bytes, number + 1)) add(field_wrong, 1);
  if (!receive(client)) return false;
  const uint64_t took = now_ns() - began;
  add(field_messages, 1);
  add(field_message_ns, took);
  note_longest(field_longest_message_ns, took);
  return true;
}

// Writes to the server's memory and reads it again.
static bool write_and_read(struct client* client) {
  struct ibv_wc completion = {.status = IBV_WC_GENERAL_ERR};
  fill(client->stripes[sends], stripe_bytes, client->number);
  memset(client->stripes[receives], 0, stripe_bytes);
  if (rdma_post_write(client->id, NULL, client->stripes[sends], stripe_bytes, client->stripe_region,
                      0, client->welcome.address, client->welcome.rkey) != 0 ||
      !completes(rdma_get_send_comp(client->id, &completion), &completion, "a WRITE")) {
    return false;
  }
  if (rdma_post_read(client->id, NULL, client->stripes[receives], stripe_bytes,
                     client->stripe_region, 0, client->welcome.address,
                     client->welcome.rkey) != 0 ||
      !completes(rdma_get_send_comp(client->id, &completion), &completion, "a READ")) {
    return false;
  }
  if (!is_filled(client->stripes[receives], stripe_bytes, client->number)) add(field_wrong, 1);
  return true;
}

static void visit(struct client* visitor, const char* port) {
  const uint64_t began = now_ns();
  visitor->number = began;
  const bool is_connected = connect_to(visitor, port);
  const uint64_t took = now_ns() - began;
  if (is_connected && exchange(visitor)) {
    add(field_connections, 1);
    add(field_connect_ns, took);
  } else {
    add(field_failed_connections, 1);
  }
  note_longest(field_longest_connect_ns, took);
  disconnect(visitor, is_connected);
}

int work(const char* port) {
  static struct client steady, visitor;
  steady.channel = rdma_create_event_channel();
  visitor.channel = rdma_create_event_channel();
  if (steady.channel == NULL || visitor.channel == NULL) fail("rdma_create_event_channel");
  if (!connect_to(&steady, port)) fail("the connection");
  page[field_ready] = 1;
  uint64_t visited = now_ns();
  for (uint64_t round = 0;; ++round) {
    if (page[field_paused]) {
      usleep(1000);
      continue;
    }
    if (!exchange(&steady) || (round % 8 == 0 && !write_and_read(&steady))) return 1;
    if (now_ns() - visited < connect_pause_ns) continue;
    visit(&visitor, port);
    visited = now_ns();
    look_for_device_events(steady.id->verbs);
    struct pollfd event = {.fd = steady.channel->fd, .events = POLLIN};
    if (poll(&event, 1, 0) > 0) {
      complain("the connection that stays", "an event");
      return 1;
    }
  }
}
