#pragma once

/* A verbs program that goes on when it is interrupted. A server and a client do random work over
   RC queue pairs in both directions, check every byte, and connect anew after each error. The
   driver of tests/chaos interrupts them. The program knows nothing of Tulle. */

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../integrity/pattern.h"
#include "../integrity/verbs.h"
#include "page.h"

struct options {
  bool is_server;
  const char* socket; /* the path of the side channel, which no network namespace confines */
  int gid_index;
  uint64_t seed;
};
extern struct options options;
extern volatile struct page* page;

uint64_t now_ns(void);
void pause_ms(long milliseconds);
/* Writes a line to the log. */
void note(const char* format, ...) __attribute__((format(printf, 1, 2)));

/* --- calls.c: how long verbs calls take --- */

struct call_timer {
  uint64_t begin;
  uint64_t processor; /* time that the thread has used */
  long page_reads;    /* pages that this process has waited for */
  uint64_t interrupted;
};
struct call_timer call_begin(void);
void call_end(const struct call_timer* timer, enum call call);
/* Makes a call, measures it, and has its result. */
#define TIMED(name, expression)                   \
  ({                                              \
    const struct call_timer timer = call_begin(); \
    __typeof__(expression) result = (expression); \
    call_end(&timer, CALL_##name);                \
    result;                                       \
  })

/* --- stalls.c: how long this machine's processors stood still --- */

/* Runs until its parent ends, and notes in the file at `path` when a processor stood still. Returns
   an exit status if that cannot be done. */
int stalls_watch(const char* path);
/* Returns for how much of this time a processor stood still, by the file that CHAOS_STALLS names;
   0 if there is none. */
uint64_t stalled_ns(uint64_t begin, uint64_t end);

/* --- plan.c: the work of a round --- */

#define GUARD 256u              /* bytes before and after each place that is checked */
#define SLOT_BYTES (64u * 1024) /* guards included */
#define LONG_BYTES (2048u * 1024)
#define SLOTS 33u /* the last one is long */
#define HALF_BYTES ((SLOTS - 1) * (size_t)SLOT_BYTES + LONG_BYTES)
#define LINKS 3 /* queue pairs; the last one has a shared receive queue */

struct operation {
  enum verb verb;
  unsigned link;
  bool fence;
  uint32_t length;
  uint64_t stream;
  uint64_t before, operand; /* of an atomic: the word's old value, and the operand */
};

/* Draws the operations of one side, one for each slot. */
void plan(struct operation* operations, uint64_t seed);
bool is_atomic(const struct operation* operation);
bool consumes_receive(const struct operation* operation);
uint64_t after_atomic(const struct operation* operation);
static inline size_t slot_offset(unsigned slot) { return (size_t)slot * SLOT_BYTES; }
static inline size_t slot_bytes(unsigned slot) {
  return slot + 1 == SLOTS ? LONG_BYTES : SLOT_BYTES;
}

/* --- memory.c: targets, then sources and landing places, where a role always has them --- */

uint8_t* target_slot(unsigned slot);
uint8_t* source_slot(unsigned slot);
void memory_open(void);
void memory_take_away(enum command command, uint64_t part, uint64_t microseconds);
/* Gives memory back whose time is over, or any at once. */
void memory_give_back(bool at_once);
/* True if bytes of a half were lost since the last call of memory_forget(). */
bool memory_lost_targets(void);
bool memory_lost_sources(void);
void memory_forget(void);
/* Watches this role's memory, without a device, until it is ended. */
void memory_watch(void) __attribute__((noreturn));

/* --- verify.c --- */

/* What is known of an operation's end. */
enum knowledge {
  SUCCEEDED, /* all bytes are there */
  UNKNOWN,   /* each byte is as before or as after */
  /* The memory was unmapped meanwhile. A device may still reach the pages that were registered,
     with what they held, or the zeros of new memory. So the operation may have left any bytes in
     its own range. Outside of it, a byte may be zero too. */
  LOST
};
void slot_clear(uint8_t* slot, unsigned index);
void verify_target(unsigned index, const struct operation* theirs, enum knowledge knowledge);
void verify_source(unsigned index, const struct operation* ours, enum knowledge knowledge);

/* --- side_channel.c --- */

/* Connects with the peer. Tries once, for some milliseconds. */
bool side_channel_open(void);
void side_channel_close(void);
/* Closes all of it, in a child whose parent goes on. */
void side_channel_leave(void);
/* Sends our bytes and receives the peer's. Returns false if the peer is gone. */
bool side_channel_swap(const void* ours, void* theirs, size_t bytes);

/* --- device.c: the device's objects, which may be refused at any time --- */

struct link {
  struct ibv_qp* qp;
  uint32_t psn;
};
struct device {
  struct ibv_context* context;
  struct ibv_pd* pd;
  struct ibv_mr* region;
  struct ibv_comp_channel* channel;
  struct ibv_cq* send_cq;
  struct ibv_cq* receive_cq;
  struct ibv_srq* srq;
  struct link links[LINKS];
};
extern struct device device;

/* Makes what is not there yet. Returns false if something was refused. */
bool device_open(void);
/* How much device_close() destroys. */
enum depth { QUEUES, OBJECTS, EVERYTHING };
void device_close(enum depth depth);

/* --- session.c --- */

/* Connects and works until something fails. */
void session_run(struct random* random);

/* --- commands.c --- */

/* Does what the driver asks for. Everything that waits calls it. */
void obey(void);
/* True once after the command close_device. */
bool asked_to_close(void);
