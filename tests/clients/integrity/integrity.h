#pragma once

/* A verbs program of the project's own that checks every byte: what each operation must place,
   what it must leave alone, and what its completion must say. It is written against libibverbs'
   headers alone and knows nothing of Tulle, so that it can run over any other device too.

   Two processes, a server and a client, follow the same plan, which a seed determines. A TCP
   connection keeps them in step. Both are initiators, and both are targets. */

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pattern.h"

struct options {
  const char* server; /* null: this process is the server */
  const char* port;   /* TCP */
  const char* device; /* null: the first device */
  int gid_index;
  int mtu; /* path MTU in bytes; 0: the port's MTU */
  const char* mode;
  uint64_t seed;
  int rounds;     /* rounds of the mix */
  int first_psn;  /* of each queue pair; -1: follows from its number */
  bool events;    /* wait for completion events instead of polling */
  bool lossy;     /* the network loses packets: unreliable messages may be missing, never wrong */
  bool soft_roce; /* one of the two devices is the Linux kernel's Soft-RoCE (rxe, as of 6.1) */
};

/* Ends the process with status 1 and a line that says what is wrong. */
void die(const char* format, ...) __attribute__((noreturn, format(printf, 1, 2)));
double now_seconds(void);

/* --- layouts; pattern.h has the bytes --- */

/* A message cut into pieces with gaps between them. */
#define MAX_PIECES 8
struct layout {
  unsigned count;
  uint32_t span; /* bytes from the start of the first piece to the end of the last */
  struct {
    uint32_t offset;
    uint32_t length;
  } piece[MAX_PIECES];
};
struct layout layout_of(struct random* random, uint32_t length, unsigned pieces);

/* --- side_channel.c: a TCP connection between the two processes --- */

void side_channel_open(const struct options* options);
/* Sends our bytes and receives the peer's, of equal size. */
void side_channel_swap(const void* ours, void* theirs, size_t bytes);
/* Returns the server's value on both sides. */
uint64_t side_channel_agree(uint64_t value);

/* --- endpoint.c: the device's objects --- */

#define GUARD 256u              /* bytes before and after each place that is checked */
#define SLOT_BYTES (64u * 1024) /* the longest message, guards included */
#define SLOTS 64u
#define HALF_BYTES (SLOTS * SLOT_BYTES)
#define UD_QKEY 0x11111111u

struct address { /* what each side tells its peer */
  uint64_t memory;
  uint32_t rkey;
  uint32_t spare_rkey; /* of a region that allows no remote access */
  uint64_t spare_memory;
  union ibv_gid gid;
};

struct endpoint {
  const struct options* options;
  bool is_server;
  bool is_soft_roce; /* this side's device is Soft-RoCE; set only if the options say that one is */
  struct ibv_context* context;
  bool has_ip; /* packets have an IP header in the place of a GRH */
  struct ibv_port_attr port;
  enum ibv_mtu mtu;
  struct ibv_pd* pd;
  struct ibv_comp_channel* channel;
  struct ibv_cq* send_cq;
  struct ibv_cq* receive_cq;
  struct ibv_srq* srq;
  uint8_t* memory; /* two halves of SLOTS slots: targets, then sources and landing places */
  struct ibv_mr* region;
  uint8_t* spare; /* one slot, registered for local use only */
  struct ibv_mr* spare_region;
  struct address here;
  struct address there;
  uint64_t operations;
  uint64_t bytes_verified;
};

struct link { /* a queue pair and its peer's number */
  struct ibv_qp* qp;
  enum ibv_qp_type type;
  bool has_srq;
  uint32_t remote_qp;
  struct ibv_ah* ah; /* UD */
};

void endpoint_open(struct endpoint* endpoint, const struct options* options);
void endpoint_close(struct endpoint* endpoint);
struct link link_open(struct endpoint* endpoint, enum ibv_qp_type type, bool with_srq);
void link_close(struct link* link);

/* Waits until both sides have called it. Operations that are posted afterwards find what either
   side stored before, and either side sees what operations did before. */
void barrier(struct endpoint* endpoint);

static inline uint8_t* target_slot(struct endpoint* endpoint, unsigned slot) {
  return endpoint->memory + (size_t)slot * SLOT_BYTES;
}
static inline uint8_t* source_slot(struct endpoint* endpoint, unsigned slot) {
  return endpoint->memory + HALF_BYTES + (size_t)slot * SLOT_BYTES;
}
/* Returns where the peer's target slot lies in the peer's memory. */
static inline uint64_t remote_slot(const struct endpoint* endpoint, unsigned slot) {
  return endpoint->there.memory + (uint64_t)slot * SLOT_BYTES;
}

/* Gets the next completion. Returns false if none came before the limit. */
bool next_completion(struct endpoint* endpoint, struct ibv_cq* cq, struct ibv_wc* wc,
                     double seconds);
/* Returns the next completion. It must come within the time limit, be successful, and have this
   wr_id and opcode. */
struct ibv_wc expect_completion(struct endpoint* endpoint, struct ibv_cq* cq, uint64_t wr_id,
                                enum ibv_wc_opcode opcode, const char* what);
void post_send(struct link* link, struct ibv_send_wr* wr);
void post_receive(struct endpoint* endpoint, struct link* link, struct ibv_recv_wr* wr);
/* Posts a receive into one contiguous place. */
void post_plain_receive(struct endpoint* endpoint, struct link* link, uint64_t wr_id, uint8_t* at,
                        uint32_t bytes);

/* slot_clear() puts the background over a whole slot. slot_put() adds a message of `stream`,
   laid out from `at` bytes on. slot_verify() compares a whole slot with the background plus that
   message. */
void slot_clear(uint8_t* slot);
void slot_put(uint8_t* slot, const struct layout* layout, uint32_t at, uint64_t stream);
void slot_verify(struct endpoint* endpoint, const uint8_t* slot, const struct layout* layout,
                 uint32_t at, uint64_t stream, const char* what);

/* --- the parts of the program --- */

void run_single(struct endpoint* endpoint); /* each operation alone, in every shape */
void run_mix(struct endpoint* endpoint);    /* many at once, on several queue pairs, both ways */
/* Unreliable messages: none may be wrong, and unless the network is lossy, none may be missing. */
void run_streams(struct endpoint* endpoint);
void run_refusals(struct endpoint* endpoint); /* operations that must fail, with their statuses */
void run_windows(struct endpoint* endpoint);  /* memory windows of either type */
void run_until_error(struct endpoint* endpoint); /* the client works until its peer is gone */
void run_idle(struct endpoint* endpoint);        /* connected, doing nothing, until ended */
