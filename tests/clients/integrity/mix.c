/* Many operations of every kind at once, on several RC queue pairs, in both directions. They
   show whether order, pipelining and loss are handled right. Each operation has a slot of its
   own on either side, and both sides know both plans. */

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "integrity.h"
#include "verbs.h"

#define LINKS 4       /* the last one has a shared receive queue */
#define OPERATIONS 64 /* of one side in a round: one for each slot */
_Static_assert(OPERATIONS <= SLOTS, "a slot each");

struct operation {
  enum verb verb;
  unsigned link;
  bool fence;
  uint32_t length;
  uint64_t stream;
  uint64_t before, operand; /* of an atomic: the word's old value, and the operand */
  struct layout layout;     /* contiguous */
};

static bool is_atomic(const struct operation* o) { return o->verb >= COMPARE_AND_SWAP; }
static bool consumes_receive(const struct operation* o) {
  return o->verb == SEND || o->verb == SEND_IMMEDIATE || o->verb == WRITE_IMMEDIATE;
}

/* Draws a plan. Short operations are likelier, so that many are outstanding at once. */
static void plan(struct operation* operations, uint64_t seed, bool atomics) {
  struct random random = {seed};
  for (unsigned i = 0; i < OPERATIONS; ++i) {
    struct operation* o = &operations[i];
    *o = (struct operation){.verb = random_below(&random, VERBS),
                            .link = random_below(&random, LINKS)};
    if (!atomics && is_atomic(o)) o->verb = WRITE;
    const uint32_t most = SLOT_BYTES - 2 * GUARD;
    o->length = random_below(&random, random_below(&random, 4) == 0 ? most : most / 32);
    o->fence = random_below(&random, 8) == 0;
    o->stream = random_next(&random);
    o->before = random_next(&random);
    o->operand = random_next(&random);
    if (is_atomic(o)) o->length = 8;
    o->layout = (struct layout){.count = 1, .span = o->length, .piece = {{0, o->length}}};
  }
}

static void prepare(struct endpoint* e, struct link* links, const struct operation* ours,
                    const struct operation* theirs) {
  for (unsigned i = 0; i < OPERATIONS; ++i) {
    slot_clear(source_slot(e, i));
    slot_clear(target_slot(e, i));
    if (ours[i].verb < READ) slot_put(source_slot(e, i), &ours[i].layout, GUARD, ours[i].stream);
    if (theirs[i].verb == READ)
      slot_put(target_slot(e, i), &theirs[i].layout, GUARD, theirs[i].stream);
    if (is_atomic(&theirs[i])) memcpy(target_slot(e, i) + GUARD, &theirs[i].before, 8);
    if (!consumes_receive(&theirs[i])) continue;
    const bool lands = theirs[i].verb != WRITE_IMMEDIATE;
    post_plain_receive(e, &links[theirs[i].link], i, target_slot(e, i) + GUARD,
                       lands ? theirs[i].length : 0);
  }
}

static void post(struct endpoint* e, struct link* links, const struct operation* o, unsigned i) {
  struct ibv_sge sge = {(uintptr_t)source_slot(e, i) + GUARD, o->length, e->region->lkey};
  /* Soft-RoCE's fence counts READs and atomics that were sent. A request that must be sent again
     then waits for those behind it, and for itself, without end. */
  const bool fenced = o->fence && !e->is_soft_roce;
  struct ibv_send_wr wr = {.wr_id = i,
                           .opcode = opcodes[o->verb],
                           .sg_list = &sge,
                           .num_sge = o->length > 0 ? 1 : 0,
                           .send_flags = IBV_SEND_SIGNALED | (fenced ? IBV_SEND_FENCE : 0),
                           .imm_data = htonl(i)};
  if (is_atomic(o)) {
    wr.wr.atomic.remote_addr = remote_slot(e, i) + GUARD;
    wr.wr.atomic.rkey = e->there.rkey;
    wr.wr.atomic.compare_add = o->verb == FETCH_AND_ADD ? o->operand : o->before;
    wr.wr.atomic.swap = o->operand;
  } else {
    wr.wr.rdma.remote_addr = remote_slot(e, i) + GUARD;
    wr.wr.rdma.rkey = e->there.rkey;
  }
  post_send(&links[o->link], &wr);
}

/* Completions of one queue pair come in the order of its work requests (IBTA 10.8.3.1). */
static void collect(struct endpoint* e, struct ibv_cq* cq, struct link* links,
                    const struct operation* operations, bool sends) {
  int last[LINKS];
  unsigned expected = 0;
  for (unsigned l = 0; l < LINKS; ++l) last[l] = -1;
  for (unsigned i = 0; i < OPERATIONS; ++i) expected += sends || consumes_receive(&operations[i]);
  for (unsigned n = 0; n < expected; ++n) {
    const char* what = sends ? "mix: a send completion" : "mix: a receive completion";
    struct ibv_wc wc;
    if (!next_completion(e, cq, &wc, 60)) die("%s is missing: %u of %u came", what, n, expected);
    if (wc.wr_id >= OPERATIONS) die("%s: wr_id %llu", what, (long long)wc.wr_id);
    const struct operation* o = &operations[wc.wr_id];
    if (wc.status != IBV_WC_SUCCESS) {
      die("%s: operation %d (kind %d, %u bytes, queue pair %#x): status %d (%s)", what,
          (int)wc.wr_id, o->verb, o->length, wc.qp_num, wc.status, ibv_wc_status_str(wc.status));
    }
    if (wc.qp_num != links[o->link].qp->qp_num) die("%s: of another queue pair", what);
    if ((int)wc.wr_id <= last[o->link])
      die("%s: out of order: %d after %d", what, (int)wc.wr_id, last[o->link]);
    last[o->link] = (int)wc.wr_id;
    if (sends) {
      if (wc.opcode != completions[o->verb])
        die("%s: opcode %d, not %d", what, wc.opcode, completions[o->verb]);
      continue;
    }
    if (wc.byte_len != o->length) die("%s: byte_len %u, not %u", what, wc.byte_len, o->length);
    const bool immediate = o->verb != SEND;
    if (immediate != ((wc.wc_flags & IBV_WC_WITH_IMM) != 0)) die("%s: immediate data flag", what);
    if (immediate && wc.imm_data != htonl((uint32_t)wc.wr_id))
      die("%s: immediate %#x", what, wc.imm_data);
  }
}

static void verify_atomic(struct endpoint* e, uint8_t* slot, uint64_t expected, const char* what) {
  uint64_t found;
  memcpy(&found, slot + GUARD, 8);
  if (found != expected) die("%s: %#llx, not %#llx", what, (long long)found, (long long)expected);
  pattern_fill(slot + GUARD, 8, BACKGROUND, GUARD);
  const struct layout nothing = {0};
  slot_verify(e, slot, &nothing, 0, 0, what);
}

static void verify(struct endpoint* e, const struct operation* ours, const struct operation* theirs,
                   int round) {
  char what[80];
  for (unsigned i = 0; i < OPERATIONS; ++i) {
    const struct operation* o = &ours[i];
    snprintf(what, sizeof what, "mix round %d: landing of our operation %u (kind %d)", round, i,
             o->verb);
    if (is_atomic(o))
      verify_atomic(e, source_slot(e, i), o->before, what);
    else
      slot_verify(e, source_slot(e, i), &o->layout, GUARD, o->stream, what);
    o = &theirs[i];
    snprintf(what, sizeof what, "mix round %d: target of their operation %u (kind %d)", round, i,
             o->verb);
    const uint64_t after = o->verb == FETCH_AND_ADD ? o->before + o->operand : o->operand;
    if (is_atomic(o))
      verify_atomic(e, target_slot(e, i), after, what);
    else
      slot_verify(e, target_slot(e, i), &o->layout, GUARD, o->stream, what);
  }
  e->operations += 2 * OPERATIONS;
}

void run_mix(struct endpoint* e) {
  struct link links[LINKS];
  struct operation ours[OPERATIONS], theirs[OPERATIONS];
  /* If the response to an atomic is lost and a request behind it is refused with a NAK,
     Soft-RoCE takes the NAK for an acknowledgement of the atomic too, and completes the atomic
     without its value. */
  const bool atomics_get_lost = e->options->soft_roce && e->options->lossy;
  for (unsigned i = 0; i < LINKS; ++i) links[i] = link_open(e, IBV_QPT_RC, i + 1 == LINKS);
  for (int round = 0; round < e->options->rounds; ++round) {
    const uint64_t seed = e->options->seed * 1000003 + 2 * (uint64_t)round;
    plan(ours, seed + (e->is_server ? 0 : 1), !(atomics_get_lost && e->is_soft_roce));
    plan(theirs, seed + (e->is_server ? 1 : 0), !(atomics_get_lost && !e->is_soft_roce));
    prepare(e, links, ours, theirs);
    barrier(e);
    for (unsigned i = 0; i < OPERATIONS; ++i) post(e, links, &ours[i], i);
    collect(e, e->send_cq, links, ours, true);
    collect(e, e->receive_cq, links, theirs, false);
    barrier(e); /* the peer's WRITEs are complete, so their bytes are here */
    verify(e, ours, theirs, round);
    barrier(e);
  }
  for (unsigned i = 0; i < LINKS; ++i) link_close(&links[i]);
}
