#pragma once

/* A verbs program of the project's own that looks at every byte: what each operation must place,
   what it must leave alone, and what its completion must say. It is written against libibverbs'
   headers alone and knows nothing of Tulle, so that it can be run over any other device too.

   Two processes, a server and a client, follow the same plan, which a seed determines; a TCP
   connection keeps them in step. Both initiate, both are targets. */

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct options {
  const char* server; /* null: this is the server */
  const char* port;   /* TCP */
  const char* device; /* null: the first */
  int gid_index;
  int mtu; /* path MTU in bytes; 0: the port's */
  const char* mode;
  uint64_t seed;
  int rounds;     /* of the mix, and in the streams a factor */
  bool events;    /* wait for completion events instead of polling */
  bool lossy;     /* the network loses: unreliable messages may be missing, never wrong */
  bool soft_roce; /* one of the two devices is the Linux kernel's Soft-RoCE (rxe, as of 6.1) */
};

/* Ends the process with status 1 and a line that says what is wrong. */
void die(const char* format, ...) __attribute__((noreturn, format(printf, 1, 2)));
double now_seconds(void);

/* --- pattern.c: bytes that are known at every place --- */

/* A seeded stream of numbers, the same on both sides. */
struct random {
  uint64_t state;
};
uint64_t random_next(struct random* random);
uint32_t random_below(struct random* random, uint32_t bound);

/* Byte `position` of stream `stream`. */
void pattern_fill(uint8_t* to, size_t bytes, uint64_t stream, size_t position);
#define BACKGROUND 0xBACC6A0D /* the stream that lies wherever nothing was placed */

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

/* --- side_channel.c: a TCP connection between the two --- */

void side_channel_open(const struct options* options);
/* Sends ours, receives theirs, of equal size. */
void side_channel_swap(const void* ours, void* theirs, size_t bytes);
/* The server's say in a value that both must know. */
uint64_t side_channel_agree(uint64_t value);

/* --- endpoint.c: the device's objects --- */

#define GUARD 256u              /* bytes before and after each place that is checked */
#define SLOT_BYTES (64u * 1024) /* the longest message, guards included */
#define SLOTS 64u
#define HALF_BYTES (SLOTS * SLOT_BYTES)
#define UD_QKEY 0x11111111u

struct address { /* what one side tells the other */
  uint64_t memory;
  uint32_t rkey;
  uint32_t spare_rkey; /* of a region that allows no remote access */
  uint64_t spare_memory;
  union ibv_gid gid;
};

struct endpoint {
  const struct options* options;
  bool is_server;
  bool is_soft_roce; /* only where the options speak of it */
  struct ibv_context* context;
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

/* Both are here. What either stored before, operations that are posted after it find; what these
   did before it, either sees after it. */
void barrier(struct endpoint* endpoint);

static inline uint8_t* target_slot(struct endpoint* endpoint, unsigned slot) {
  return endpoint->memory + (size_t)slot * SLOT_BYTES;
}
static inline uint8_t* source_slot(struct endpoint* endpoint, unsigned slot) {
  return endpoint->memory + HALF_BYTES + (size_t)slot * SLOT_BYTES;
}
/* Where the peer's target slot lies in the peer's memory. */
static inline uint64_t remote_slot(const struct endpoint* endpoint, unsigned slot) {
  return endpoint->there.memory + (uint64_t)slot * SLOT_BYTES;
}

/* The next completion. False: none before the limit. */
bool next_completion(struct endpoint* endpoint, struct ibv_cq* cq, struct ibv_wc* wc,
                     double seconds);
/* The next completion, which must be there within the time limit, successful,
   and have this wr_id and opcode. */
struct ibv_wc expect_completion(struct endpoint* endpoint, struct ibv_cq* cq, uint64_t wr_id,
                                enum ibv_wc_opcode opcode, const char* what);
void post_send(struct link* link, struct ibv_send_wr* wr);
void post_receive(struct endpoint* endpoint, struct link* link, struct ibv_recv_wr* wr);
/* A receive into one contiguous place. */
void post_plain_receive(struct endpoint* endpoint, struct link* link, uint64_t wr_id, uint8_t* at,
                        uint32_t bytes);

/* Puts the background over a whole slot, and compares a whole slot with the background plus a
   message of `stream` laid out from `at` bytes on. */
void slot_clear(uint8_t* slot);
void slot_put(uint8_t* slot, const struct layout* layout, uint32_t at, uint64_t stream);
void slot_verify(struct endpoint* endpoint, const uint8_t* slot, const struct layout* layout,
                 uint32_t at, uint64_t stream, const char* what);

/* --- the parts of the program --- */

void run_single(struct endpoint* endpoint); /* each operation alone, in every shape */
void run_mix(struct endpoint* endpoint);    /* many at once, on several queue pairs, both ways */
void run_streams(
    struct endpoint* endpoint); /* unreliable messages: none wrong, and unless lossy none missing */
void run_refusals(struct endpoint* endpoint);    /* what must fail, with its completion status */
void run_windows(struct endpoint* endpoint);     /* memory windows of either type */
void run_until_error(struct endpoint* endpoint); /* the client writes until its peer is gone */
void run_idle(struct endpoint* endpoint);        /* connected, doing nothing, until ended */
