/* Each operation alone: every verb that a transport has, at lengths around the path MTU's
   multiples, gathered and scattered, inline and not, with either side as the initiator. */

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "integrity.h"

enum verb { SEND, SEND_IMMEDIATE, WRITE, WRITE_IMMEDIATE, READ, COMPARE_AND_SWAP, FETCH_AND_ADD };

static const struct {
  const char* name;
  enum ibv_wr_opcode opcode;
  enum ibv_wc_opcode completion;
  bool consumes_receive;
  bool immediate;
} verbs[] = {
    [SEND] = {"SEND", IBV_WR_SEND, IBV_WC_SEND, true, false},
    [SEND_IMMEDIATE] = {"SEND with immediate", IBV_WR_SEND_WITH_IMM, IBV_WC_SEND, true, true},
    [WRITE] = {"RDMA WRITE", IBV_WR_RDMA_WRITE, IBV_WC_RDMA_WRITE, false, false},
    [WRITE_IMMEDIATE] = {"RDMA WRITE with immediate", IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_RDMA_WRITE,
                         true, true},
    [READ] = {"RDMA READ", IBV_WR_RDMA_READ, IBV_WC_RDMA_READ, false, false},
    [COMPARE_AND_SWAP] = {"CMP & SWAP", IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WC_COMP_SWAP, false, false},
    [FETCH_AND_ADD] = {"FETCH & ADD", IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_FETCH_ADD, false, false},
};

#define WR_ID 0xC0FFEE0000000000ull

struct step {
  enum verb verb;
  uint32_t length;
  /* Number of pieces that the initiator gathers (READ: scatters) and that the target scatters. */
  unsigned pieces;
  bool inline_data;
  bool solicited;
  bool initiator; /* true if this side initiates */
  uint32_t immediate;
  uint64_t stream;
  struct layout here;  /* layout in the initiator's memory */
  struct layout there; /* layout in the target's memory */
  char what[128];
};

static struct step plan(struct endpoint* e, const struct link* link, struct random* random,
                        enum verb verb, uint32_t length, unsigned pieces, bool inline_data,
                        bool server_initiates) {
  struct step step = {.verb = verb, .length = length, .pieces = pieces, .inline_data = inline_data};
  step.initiator = server_initiates == e->is_server;
  step.solicited = random_below(random, 2) == 1;
  step.immediate = (uint32_t)random_next(random);
  step.stream = random_next(random);
  step.here = layout_of(random, length, pieces);
  /* The responder of a WRITE or READ sees one contiguous range; a receive scatters. */
  step.there = layout_of(random, length, verb == SEND || verb == SEND_IMMEDIATE ? pieces : 1);
  snprintf(step.what, sizeof step.what, "%s %s of %u bytes, %u pieces%s%s, %s initiates",
           link->type == IBV_QPT_RC   ? (link->has_srq ? "RC (SRQ)" : "RC")
           : link->type == IBV_QPT_UC ? "UC"
                                      : "UD",
           verbs[verb].name, length, pieces, inline_data ? ", inline" : "",
           step.solicited ? ", solicited" : "", server_initiates ? "the server" : "the client");
  return step;
}

static unsigned gather(struct endpoint* e, const struct layout* layout, const uint8_t* at,
                       struct ibv_sge* sge) {
  unsigned count = 0;
  for (unsigned i = 0; i < layout->count; ++i) {
    if (layout->piece[i].length == 0) continue; /* a length of 0 would mean 2^31 (IBTA 10.6.3.2) */
    sge[count++] = (struct ibv_sge){.addr = (uintptr_t)at + layout->piece[i].offset,
                                    .length = layout->piece[i].length,
                                    .lkey = e->region->lkey};
  }
  return count;
}

/* Returns the bytes that the GRH takes before a received message: 40 on UD, else 0. */
static uint32_t grh_bytes(const struct link* link) { return link->type == IBV_QPT_UD ? 40 : 0; }

static void prepare_target(struct endpoint* e, struct link* link, const struct step* step) {
  slot_clear(target_slot(e, 0));
  if (step->verb == READ) slot_put(target_slot(e, 0), &step->there, GUARD, step->stream);
  const bool fence = link->type == IBV_QPT_UC && step->verb == WRITE;
  if (!verbs[step->verb].consumes_receive && !fence) return;
  struct ibv_sge sge[MAX_PIECES + 1];
  unsigned count = 0;
  if (step->verb == SEND || step->verb == SEND_IMMEDIATE) {
    if (grh_bytes(link) > 0) {
      sge[count++] = (struct ibv_sge){(uintptr_t)target_slot(e, 1), 40, e->region->lkey};
    }
    count += gather(e, &step->there, target_slot(e, 0) + GUARD, sge + count);
  }
  struct ibv_recv_wr wr = {.wr_id = WR_ID + 1, .sg_list = sge, .num_sge = (int)count};
  post_receive(e, link, &wr);
}

static void initiate(struct endpoint* e, struct link* link, const struct step* step) {
  uint8_t* slot = source_slot(e, 0);
  slot_clear(slot);
  if (step->verb != READ) slot_put(slot, &step->here, GUARD, step->stream);
  struct ibv_sge sge[MAX_PIECES];
  struct ibv_send_wr wr = {.wr_id = WR_ID,
                           .opcode = verbs[step->verb].opcode,
                           .sg_list = sge,
                           .send_flags = IBV_SEND_SIGNALED};
  wr.num_sge = (int)gather(e, &step->here, slot + GUARD, sge);
  wr.imm_data = htonl(step->immediate);
  if (step->inline_data) wr.send_flags |= IBV_SEND_INLINE;
  if (step->solicited) wr.send_flags |= IBV_SEND_SOLICITED;
  wr.wr.rdma.remote_addr = remote_slot(e, 0) + GUARD;
  wr.wr.rdma.rkey = e->there.rkey;
  post_send(link, &wr);
  /* The adapter has copied inline data, so the buffer belongs to the application again. */
  if (step->inline_data) slot_clear(slot);
  expect_completion(e, e->send_cq, WR_ID, verbs[step->verb].completion, step->what);
  if (link->type == IBV_QPT_UC && step->verb == WRITE) {
    /* A message that follows in order shows that the WRITE has arrived. */
    struct ibv_send_wr fence = {
        .wr_id = WR_ID + 2, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
    post_send(link, &fence);
    expect_completion(e, e->send_cq, WR_ID + 2, IBV_WC_SEND, step->what);
  }
  if (step->verb == READ) slot_verify(e, slot, &step->here, GUARD, step->stream, step->what);
}

#define NEXT_HEADER_BTH 0x1B /* IBTA 8.3.3 */

static void check_grh(struct endpoint* e, const uint8_t* grh, const char* what) {
  const uint8_t* from = e->there.gid.raw;
  const uint8_t* to = e->here.gid.raw;
  static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
  if (e->has_ip && memcmp(to, mapped, sizeof mapped) == 0) {
    /* An IPv4 header lies in the last 20 bytes (IBTA A17.4.5.2). */
    if (grh[20] >> 4 != 4 || memcmp(grh + 32, from + 12, 4) != 0 ||
        memcmp(grh + 36, to + 12, 4) != 0) {
      die("%s: the 40 bytes before the message end in no IPv4 header of ours", what);
    }
  } else if (grh[0] >> 4 != 6 || grh[6] != (e->has_ip ? IPPROTO_UDP : NEXT_HEADER_BTH) ||
             memcmp(grh + 8, from, 16) != 0 || memcmp(grh + 24, to, 16) != 0) {
    die("%s: the 40 bytes before the message are no GRH of ours", what);
  }
}

static void check_target(struct endpoint* e, struct link* link, const struct step* step) {
  const bool fence = link->type == IBV_QPT_UC && step->verb == WRITE;
  if (verbs[step->verb].consumes_receive || fence) {
    const bool write = step->verb == WRITE_IMMEDIATE;
    const struct ibv_wc wc = expect_completion(
        e, e->receive_cq, WR_ID + 1, write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV, step->what);
    const uint32_t bytes = fence ? 0 : step->length + grh_bytes(link);
    if (wc.byte_len != bytes) die("%s: byte_len %u, not %u", step->what, wc.byte_len, bytes);
    if (wc.qp_num != link->qp->qp_num)
      die("%s: qp_num %#x, not %#x", step->what, wc.qp_num, link->qp->qp_num);
    const bool immediate = (wc.wc_flags & IBV_WC_WITH_IMM) != 0;
    if (immediate != verbs[step->verb].immediate)
      die("%s: immediate data flag %d", step->what, immediate);
    if (immediate && wc.imm_data != htonl(step->immediate)) {
      die("%s: immediate %#x, not %#x", step->what, ntohl(wc.imm_data), step->immediate);
    }
    if (link->type == IBV_QPT_UD) {
      if ((wc.wc_flags & IBV_WC_GRH) == 0) die("%s: no GRH flag", step->what);
      if (wc.src_qp != link->remote_qp)
        die("%s: src_qp %#x, not %#x", step->what, wc.src_qp, link->remote_qp);
      check_grh(e, target_slot(e, 1), step->what);
    }
  }
  slot_verify(e, target_slot(e, 0), &step->there, GUARD, step->stream, step->what);
}

static void run_step(struct endpoint* e, struct link* link, const struct step* step) {
  if (!step->initiator) prepare_target(e, link, step);
  barrier(e);
  if (step->initiator) initiate(e, link, step);
  barrier(e);
  if (!step->initiator) check_target(e, link, step);
  ++e->operations;
}

/* Runs an atomic. Checks the old and the new value on either side, and that nothing around them
   changed. */
static void run_atomic(struct endpoint* e, struct link* link, struct random* random, enum verb verb,
                       bool equal, bool server_initiates) {
  struct step step = plan(e, link, random, verb, 8, 1, false, server_initiates);
  const uint64_t before = random_next(random), operand = random_next(random),
                 swap = random_next(random);
  const uint64_t compare = equal ? before : operand;
  const uint64_t after = verb == FETCH_AND_ADD ? before + operand : equal ? swap : before;
  uint8_t* target = target_slot(e, 0);
  uint8_t* landing = source_slot(e, 0);
  slot_clear(target);
  slot_clear(landing);
  memcpy(target + GUARD, &before, 8);
  barrier(e);
  if (step.initiator) {
    struct ibv_sge sge = {(uintptr_t)landing + GUARD, 8, e->region->lkey};
    struct ibv_send_wr wr = {.wr_id = WR_ID,
                             .opcode = verbs[verb].opcode,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .send_flags = IBV_SEND_SIGNALED};
    wr.wr.atomic.remote_addr = remote_slot(e, 0) + GUARD;
    wr.wr.atomic.rkey = e->there.rkey;
    wr.wr.atomic.compare_add = verb == FETCH_AND_ADD ? operand : compare;
    wr.wr.atomic.swap = swap;
    post_send(link, &wr);
    expect_completion(e, e->send_cq, WR_ID, verbs[verb].completion, step.what);
  }
  barrier(e);
  uint8_t* changed = step.initiator ? landing : target;
  const uint64_t expected = step.initiator ? before : after;
  uint64_t found;
  memcpy(&found, changed + GUARD, 8);
  if (found != expected)
    die("%s: %#llx, not %#llx", step.what, (long long)found, (long long)expected);
  pattern_fill(changed + GUARD, 8, BACKGROUND, GUARD);
  const struct layout nothing = {0};
  slot_verify(e, changed, &nothing, 0, 0, step.what);
  ++e->operations;
}

static void run_verb(struct endpoint* e, struct link* link, struct random* random, enum verb verb) {
  const uint32_t mtu = 128u << e->mtu;
  const uint32_t lengths[] = {0,       1,       2,           3,    4,       5,           8,
                              63,      64,      200,         256,  mtu - 1, mtu,         mtu + 1,
                              mtu + 4, 2 * mtu, 2 * mtu + 3, 5000, 17001,   8 * mtu + 1, 60000};
  for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; ++i) {
    const uint32_t length = lengths[i];
    if (e->options->lossy && i % 3 != verb % 3)
      continue; /* each loss of a last packet costs a timeout */
    if (length > SLOT_BYTES - 4 * GUARD - MAX_PIECES * 64) continue;
    if (link->type == IBV_QPT_UD && length > mtu) continue;
    for (int shape = 0; shape < 3; ++shape) { /* one piece, several, inline */
      const bool inline_data = shape == 2;
      if (inline_data && (verb == READ || length > 256)) continue;
      const unsigned pieces = shape == 1 ? 2 + random_below(random, MAX_PIECES - 2) : 1;
      for (int server_initiates = 0; server_initiates < 2; ++server_initiates) {
        const struct step step =
            plan(e, link, random, verb, length, pieces, inline_data, server_initiates);
        run_step(e, link, &step);
      }
    }
  }
}

/* Runs one operation of some three million bytes from each side. */
static void run_large(struct endpoint* e, struct link* link, struct random* random,
                      enum verb verb) {
  const uint32_t length = 3000001, at = 12345;
  for (int server_initiates = 0; server_initiates < 2; ++server_initiates) {
    struct step step = plan(e, link, random, verb, length, 1, false, server_initiates);
    uint8_t* ours = step.initiator ? source_slot(e, 0) : target_slot(e, 0);
    const bool holds_message = step.initiator != (verb == READ);
    pattern_fill(ours, HALF_BYTES, BACKGROUND, 0);
    if (holds_message) pattern_fill(ours + at, length, step.stream, 0);
    if (!step.initiator && verb == SEND) post_plain_receive(e, link, WR_ID + 1, ours + at, length);
    barrier(e);
    if (step.initiator) {
      struct ibv_sge sge = {(uintptr_t)ours + at, length, e->region->lkey};
      struct ibv_send_wr wr = {.wr_id = WR_ID,
                               .opcode = verbs[verb].opcode,
                               .sg_list = &sge,
                               .num_sge = 1,
                               .send_flags = IBV_SEND_SIGNALED};
      wr.wr.rdma.remote_addr = e->there.memory + at;
      wr.wr.rdma.rkey = e->there.rkey;
      post_send(link, &wr);
      expect_completion(e, e->send_cq, WR_ID, verbs[verb].completion, step.what);
    } else if (verb == SEND) {
      expect_completion(e, e->receive_cq, WR_ID + 1, IBV_WC_RECV, step.what);
    }
    barrier(e);
    if (!holds_message) {
      uint8_t* expected = malloc(HALF_BYTES);
      if (expected == NULL) die("out of memory");
      pattern_fill(expected, HALF_BYTES, BACKGROUND, 0);
      pattern_fill(expected + at, length, step.stream, 0);
      if (memcmp(expected, ours, HALF_BYTES) != 0) die("%s: wrong bytes", step.what);
      e->bytes_verified += HALF_BYTES;
      free(expected);
    }
    ++e->operations;
  }
  pattern_fill(e->memory, 2 * HALF_BYTES, BACKGROUND, 0);
}

void run_single(struct endpoint* e) {
  struct random random = {e->options->seed};
  for (int srq = 0; srq < 2; ++srq) {
    struct link rc = link_open(e, IBV_QPT_RC, srq == 1);
    for (enum verb verb = SEND; verb <= READ; ++verb) run_verb(e, &rc, &random, verb);
    for (int i = 0; i < 16; ++i) {
      run_atomic(e, &rc, &random, i & 1 ? FETCH_AND_ADD : COMPARE_AND_SWAP, i & 2, i & 4);
    }
    run_large(e, &rc, &random, WRITE);
    run_large(e, &rc, &random, READ);
    run_large(e, &rc, &random, SEND);
    link_close(&rc);
  }
  if (e->options->lossy)
    return; /* the steps below wait for messages that may be lost; run_streams does not */
  struct link uc = link_open(e, IBV_QPT_UC, false);
  for (enum verb verb = SEND; verb <= WRITE_IMMEDIATE; ++verb) run_verb(e, &uc, &random, verb);
  link_close(&uc);
  struct link ud = link_open(e, IBV_QPT_UD, false);
  for (enum verb verb = SEND; verb <= SEND_IMMEDIATE; ++verb) run_verb(e, &ud, &random, verb);
  link_close(&ud);
}
