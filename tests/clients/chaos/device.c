#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "chaos.h"

#define QUEUE_DEPTH 64

struct device device;

static bool refused(const char* what) {
  page->refusals += 1;
  note("refused: %s: %s", what, strerror(errno));
  return false;
}

static bool open_context(void) {
  int count = 0;
  struct ibv_device** devices = ibv_get_device_list(&count);
  if (devices == NULL) return refused("ibv_get_device_list");
  device.context = count > 0 ? ibv_open_device(devices[0]) : NULL;
  ibv_free_device_list(devices);
  return device.context != NULL || refused("ibv_open_device");
}

static bool open_objects(void) {
  const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                     IBV_ACCESS_REMOTE_ATOMIC;
  if (device.pd == NULL) device.pd = ibv_alloc_pd(device.context);
  if (device.pd == NULL) return refused("ibv_alloc_pd");
  if (device.region == NULL)
    device.region = ibv_reg_mr(device.pd, target_slot(0), 2 * HALF_BYTES, access);
  if (device.region == NULL) return refused("ibv_reg_mr");
  if (device.channel == NULL) device.channel = ibv_create_comp_channel(device.context);
  if (device.channel == NULL) return refused("ibv_create_comp_channel");
  return true;
}

/* Completions of queue pairs that are gone must not meet those of the next, so each session has
   queues of its own. */
static bool open_queues(void) {
  struct ibv_srq_init_attr srq = {.attr = {.max_wr = QUEUE_DEPTH, .max_sge = 1}};
  device.send_cq = ibv_create_cq(device.context, QUEUE_DEPTH, NULL, device.channel, 0);
  if (device.send_cq == NULL) return refused("ibv_create_cq");
  device.receive_cq = ibv_create_cq(device.context, LINKS * QUEUE_DEPTH, NULL, NULL, 0);
  if (device.receive_cq == NULL) return refused("ibv_create_cq");
  device.srq = ibv_create_srq(device.pd, &srq);
  if (device.srq == NULL) return refused("ibv_create_srq");
  for (unsigned i = 0; i < LINKS; ++i) {
    const bool shared = i + 1 == LINKS;
    struct ibv_qp_init_attr init = {.send_cq = device.send_cq,
                                    .recv_cq = device.receive_cq,
                                    .srq = shared ? device.srq : NULL,
                                    .qp_type = IBV_QPT_RC,
                                    .cap = {.max_send_wr = QUEUE_DEPTH,
                                            .max_recv_wr = shared ? 0 : QUEUE_DEPTH,
                                            .max_send_sge = 1,
                                            .max_recv_sge = shared ? 0 : 1}};
    device.links[i].qp = ibv_create_qp(device.pd, &init);
    if (device.links[i].qp == NULL) return refused("ibv_create_qp");
    device.links[i].psn = (device.links[i].qp->qp_num * 2654435761u) & 0xFFFFFF;
  }
  return true;
}

bool device_open(void) {
  return (device.context != NULL || open_context()) && open_objects() && open_queues();
}

/* A region may be busy while a process that is stopped looks at it. Whatever remains goes with the
   device. */
#define DESTROY(object, name, function)                             \
  do {                                                              \
    int error = 0;                                                  \
    for (int tries = 0; (object) != NULL && tries < 100; ++tries) { \
      error = TIMED(name, function(object));                        \
      if (error != EBUSY) break;                                    \
      pause_ms(1);                                                  \
    }                                                               \
    if (error != 0) {                                               \
      page->undestroyed += 1;                                       \
      note("%s: %s (%d)", #function, strerror(error), error);       \
    }                                                               \
    (object) = NULL;                                                \
  } while (0)

static int close_channel(void) {
  const int error = device.channel != NULL ? ibv_destroy_comp_channel(device.channel) : 0;
  device.channel = NULL;
  return error;
}

void device_close(enum depth depth) {
  const uint64_t undestroyed = page->undestroyed;
  for (unsigned i = 0; i < LINKS; ++i) DESTROY(device.links[i].qp, destroy_qp, ibv_destroy_qp);
  DESTROY(device.srq, destroy_srq, ibv_destroy_srq);
  DESTROY(device.send_cq, destroy_cq, ibv_destroy_cq);
  DESTROY(device.receive_cq, destroy_cq, ibv_destroy_cq);
  if (page->undestroyed != undestroyed) depth = EVERYTHING;
  if (depth >= OBJECTS) {
    DESTROY(device.region, dereg_mr, ibv_dereg_mr);
    const int error = close_channel();
    const int other = device.pd != NULL ? ibv_dealloc_pd(device.pd) : 0;
    device.pd = NULL;
    if (error != 0 || other != 0) {
      page->undestroyed += 1;
      note("a channel or a protection domain cannot be destroyed: %d, %d", error, other);
      depth = EVERYTHING;
    }
  }
  if (depth >= EVERYTHING && device.context != NULL) {
    if (ibv_close_device(device.context) != 0) note("ibv_close_device failed");
    device.context = NULL;
  }
}
