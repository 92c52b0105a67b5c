#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <string.h>

#include "chaos.h"

struct hello { /* what each side tells its peer */
  uint64_t seed;
  uint64_t memory;
  uint32_t rkey;
  uint32_t mtu;
  union ibv_gid gid;
  struct {
    uint32_t number, psn;
  } qp[LINKS];
};

struct outcome {      /* what each side tells its peer after a round */
  uint64_t succeeded; /* a bit for each of its operations */
  uint8_t lost_targets, lost_sources;
};

struct session {
  struct hello here, there;
  uint64_t seed; /* of both sides' plans */
  uint8_t timeout, retry_count;
  bool events;
  bool patient; /* tells the peer about errors, instead of leaving at once */
  struct operation ours[SLOTS], theirs[SLOTS];
  uint64_t posted, succeeded; /* a bit for each of our operations */
  uint64_t received;          /* a bit for each of the peer's operations whose receive completed */
  unsigned completed;
};

static bool failed(const char* what, int error) {
  note("failed: %s: %s", what, strerror(error));
  return false;
}

/* --- connecting ------------------------------------------------------------------------------- */

static bool greet(struct session* s, struct random* random) {
  struct ibv_port_attr port;
  s->here = (struct hello){.seed = random_next(random),
                           .memory = (uintptr_t)target_slot(0),
                           .rkey = device.region->rkey};
  if (ibv_query_port(device.context, 1, &port) != 0) return failed("ibv_query_port", errno);
  s->here.mtu = port.active_mtu;
  if (ibv_query_gid(device.context, 1, options.gid_index, &s->here.gid) != 0)
    return failed("ibv_query_gid", errno);
  for (unsigned i = 0; i < LINKS; ++i) {
    s->here.qp[i].number = device.links[i].qp->qp_num;
    s->here.qp[i].psn = device.links[i].psn;
  }
  if (!side_channel_swap(&s->here, &s->there, sizeof s->here)) return false;
  s->seed = options.is_server ? s->here.seed : s->there.seed;
  char here[INET6_ADDRSTRLEN], there[INET6_ADDRSTRLEN];
  inet_ntop(AF_INET6, &s->here.gid, here, sizeof here);
  inet_ntop(AF_INET6, &s->there.gid, there, sizeof there);
  note("session from %s to %s, timeout %u, retry count %u", here, there, s->timeout,
       s->retry_count);
  return true;
}

static int modify(struct ibv_qp* qp, struct ibv_qp_attr* attributes, int mask) {
  return TIMED(modify_qp, ibv_modify_qp(qp, attributes, mask));
}

static bool connect_link(struct session* s, unsigned i) {
  struct ibv_qp* qp = device.links[i].qp;
  const uint32_t mtu = s->here.mtu < s->there.mtu ? s->here.mtu : s->there.mtu;
  struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT,
                             .port_num = 1,
                             .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                                IBV_ACCESS_REMOTE_ATOMIC};
  struct ibv_qp_attr receive = {.qp_state = IBV_QPS_RTR,
                                .path_mtu = (enum ibv_mtu)mtu,
                                .dest_qp_num = s->there.qp[i].number,
                                .rq_psn = s->there.qp[i].psn,
                                .max_dest_rd_atomic = 8,
                                .min_rnr_timer = 1,
                                .ah_attr = {.is_global = 1,
                                            .port_num = 1,
                                            .grh = {.dgid = s->there.gid,
                                                    .sgid_index = (uint8_t)options.gid_index,
                                                    .hop_limit = 64}}};
  struct ibv_qp_attr send = {.qp_state = IBV_QPS_RTS,
                             .sq_psn = device.links[i].psn,
                             .timeout = s->timeout,
                             .retry_cnt = s->retry_count,
                             .rnr_retry = 6,
                             .max_rd_atomic = 8};
  int error =
      modify(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (error == 0) {
    error = modify(qp, &receive,
                   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  }
  if (error == 0) {
    error = modify(qp, &send,
                   IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                       IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
  }
  return error == 0 || failed("ibv_modify_qp", error);
}

/* --- a round ---------------------------------------------------------------------------------- */

static bool post_receive(const struct operation* o, unsigned i) {
  struct ibv_sge sge = {.addr = (uintptr_t)target_slot(i) + GUARD,
                        .length = o->verb == WRITE_IMMEDIATE ? 0 : o->length,
                        .lkey = device.region->lkey};
  struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = sge.length > 0 ? 1 : 0};
  struct ibv_recv_wr* bad;
  const int error = o->link + 1 == LINKS
                        ? TIMED(post_recv, ibv_post_srq_recv(device.srq, &wr, &bad))
                        : TIMED(post_recv, ibv_post_recv(device.links[o->link].qp, &wr, &bad));
  return error == 0 || failed("posting a receive", error);
}

/* Stores what the slots hold before the round, and posts its receives. */
static bool prepare(struct session* s, uint64_t round) {
  const uint64_t seed = s->seed + 2 * round;
  page->step = STEP_prepares;
  memory_give_back(true); /* it may have gone while the peers greeted each other */
  s->posted = s->succeeded = s->received = 0;
  s->completed = 0;
  plan(s->ours, seed + (options.is_server ? 0 : 1));
  plan(s->theirs, seed + (options.is_server ? 1 : 0));
  for (unsigned i = 0; i < SLOTS; ++i) {
    const struct operation *ours = &s->ours[i], *theirs = &s->theirs[i];
    slot_clear(source_slot(i), i);
    slot_clear(target_slot(i), i);
    if (ours->verb < READ) pattern_fill(source_slot(i) + GUARD, ours->length, ours->stream, 0);
    if (theirs->verb == READ)
      pattern_fill(target_slot(i) + GUARD, theirs->length, theirs->stream, 0);
    if (is_atomic(theirs)) memcpy(target_slot(i) + GUARD, &theirs->before, 8);
    if (consumes_receive(theirs) && !post_receive(theirs, i)) return false;
  }
  return true;
}

static bool post_one(struct session* s, unsigned i) {
  const struct operation* o = &s->ours[i];
  struct ibv_sge sge = {(uintptr_t)source_slot(i) + GUARD, o->length, device.region->lkey};
  struct ibv_send_wr wr = {.wr_id = i,
                           .opcode = opcodes[o->verb],
                           .sg_list = &sge,
                           .num_sge = o->length > 0 ? 1 : 0,
                           .send_flags = IBV_SEND_SIGNALED | (o->fence ? IBV_SEND_FENCE : 0),
                           .imm_data = htonl(i)};
  const uint64_t remote = s->there.memory + slot_offset(i) + GUARD;
  if (is_atomic(o)) {
    wr.wr.atomic.remote_addr = remote;
    wr.wr.atomic.rkey = s->there.rkey;
    wr.wr.atomic.compare_add = o->verb == FETCH_AND_ADD ? o->operand : o->before;
    wr.wr.atomic.swap = o->operand;
  } else {
    wr.wr.rdma.remote_addr = remote;
    wr.wr.rdma.rkey = s->there.rkey;
  }
  struct ibv_send_wr* bad;
  const int error = TIMED(post_send, ibv_post_send(device.links[o->link].qp, &wr, &bad));
  return error == 0 || failed("ibv_post_send", error);
}

/* A queue pair that refused a request gets no more of them: the peer's receives are in order. */
static void post_all(struct session* s) {
  bool refuses[LINKS] = {false};
  page->step = STEP_posts;
  for (unsigned i = 0; i < SLOTS; ++i) {
    const unsigned link = s->ours[i].link;
    if (refuses[link]) continue;
    refuses[link] = !post_one(s, i);
    if (!refuses[link]) s->posted |= 1ull << i;
    if (i % 8 == 0) obey();
  }
}

static void bad_completion(const struct ibv_wc* wc, const char* what) {
  page->bad_completions += 1;
  note("WRONG: a completion of %llu, status %d, opcode %d, %u bytes: %s", (long long)wc->wr_id,
       wc->status, wc->opcode, wc->byte_len, what);
}

static void take_send(struct session* s, const struct ibv_wc* wc) {
  const uint64_t bit = wc->wr_id < SLOTS ? 1ull << wc->wr_id : 0;
  if ((s->posted & bit) == 0) {
    bad_completion(wc, "no such request is outstanding");
    return;
  }
  s->posted &= ~bit; /* which leaves those that are outstanding */
  ++s->completed;
  if (wc->status != IBV_WC_SUCCESS) {
    if (wc->status != IBV_WC_WR_FLUSH_ERR)
      note("operation %d: %s", (int)wc->wr_id, ibv_wc_status_str(wc->status));
    page->failed_operations += 1;
    return;
  }
  s->succeeded |= bit;
  page->operations += 1;
  const struct operation* o = &s->ours[wc->wr_id];
  if (wc->opcode != completions[o->verb]) bad_completion(wc, "the opcode is another's");
  if (wc->qp_num != device.links[o->link].qp->qp_num) bad_completion(wc, "of another queue pair");
  for (unsigned i = 0; i < wc->wr_id; ++i) {
    if (s->ours[i].link == o->link && (s->posted & 1ull << i) != 0)
      bad_completion(wc, "out of order");
  }
}

static void take_receive(struct session* s, const struct ibv_wc* wc) {
  if (wc->wr_id >= SLOTS) {
    bad_completion(wc, "no such receive was posted");
    return;
  }
  if (wc->status != IBV_WC_SUCCESS) return;
  const struct operation* o = &s->theirs[wc->wr_id];
  s->received |= 1ull << wc->wr_id;
  if (wc->byte_len != o->length) bad_completion(wc, "the length is another's");
  const bool immediate = o->verb != SEND;
  if (immediate != ((wc->wc_flags & IBV_WC_WITH_IMM) != 0))
    bad_completion(wc, "the flag of immediate data");
  else if (immediate && wc->imm_data != htonl((uint32_t)wc->wr_id))
    bad_completion(wc, "the immediate data are another's");
}

static bool poll_receives(struct session* s) {
  struct ibv_wc wc[SLOTS + 1]; /* all that there can be */
  const int count = TIMED(poll_cq, ibv_poll_cq(device.receive_cq, SLOTS + 1, wc));
  for (int i = 0; i < count; ++i) take_receive(s, &wc[i]);
  return count >= 0 || failed("ibv_poll_cq", errno);
}

static void await_event(void) {
  struct pollfd waiting = {.fd = device.channel->fd, .events = POLLIN};
  struct ibv_cq* cq;
  void* context;
  const int error = TIMED(req_notify_cq, ibv_req_notify_cq(device.send_cq, 0));
  if (error != 0 || poll(&waiting, 1, 2) <= 0) return;
  if (ibv_get_cq_event(device.channel, &cq, &context) == 0) ibv_ack_cq_events(cq, 1);
}

/* Every request completes, with success or with an error, whatever happens to the peer. */
static bool collect(struct session* s) {
  page->step = STEP_waits_for_completions;
  while (s->posted != 0) {
    struct ibv_wc wc[16];
    const int count = TIMED(poll_cq, ibv_poll_cq(device.send_cq, 16, wc));
    if (count < 0) return failed("ibv_poll_cq", errno);
    for (int i = 0; i < count; ++i) take_send(s, &wc[i]);
    if (!poll_receives(s)) return false;
    obey();
    if (asked_to_close()) return false;
    if (count > 0) continue;
    if (s->events)
      await_event();
    else
      sched_yield();
  }
  return true;
}

/* The receive of a SEND that succeeded is complete before the sender hears of it. */
static bool check_receives(struct session* s, const struct outcome* theirs) {
  if (!poll_receives(s)) return false;
  for (unsigned i = 0; i < SLOTS; ++i) {
    if (!consumes_receive(&s->theirs[i]) || (theirs->succeeded & 1ull << i) == 0) continue;
    if ((s->received & 1ull << i) != 0) continue;
    page->false_successes += 1;
    note("WRONG: operation %u of the peer succeeded, and its receive has not completed", i);
  }
  return true;
}

static void verify(struct session* s, const struct outcome* ours, const struct outcome* theirs) {
  page->step = STEP_verifies;
  for (unsigned i = 0; i < SLOTS; ++i) {
    const bool ok = (s->succeeded & 1ull << i) != 0;
    const bool lost = ours->lost_sources || theirs->lost_targets;
    verify_source(i, &s->ours[i], lost ? LOST : ok ? SUCCEEDED : UNKNOWN);
    const bool they_ok = (theirs->succeeded & 1ull << i) != 0;
    const bool they_lost = ours->lost_targets || theirs->lost_sources;
    verify_target(i, &s->theirs[i], they_lost ? LOST : they_ok ? SUCCEEDED : UNKNOWN);
  }
}

/* Returns whether another round may follow. */
static bool run_round(struct session* s, uint64_t round) {
  const uint64_t all = (1ull << SLOTS) - 1;
  const uint64_t token = 0xBA221E2 + round;
  uint64_t their_token = 0;
  if (!prepare(s, round)) return false;
  page->step = STEP_waits_for_the_peer;
  if (!side_channel_swap(&token, &their_token, sizeof token)) return false;
  if (token != their_token) {
    note("out of step");
    return false;
  }
  post_all(s);
  const bool polled = collect(s);
  memory_give_back(true);
  struct outcome ours = {.succeeded = s->succeeded,
                         .lost_targets = memory_lost_targets(),
                         .lost_sources = memory_lost_sources()};
  struct outcome theirs = {0};
  page->step = STEP_waits_for_the_peer;
  const bool told = polled && (s->patient || s->succeeded == all) &&
                    side_channel_swap(&ours, &theirs, sizeof ours) && check_receives(s, &theirs);
  memory_give_back(true);
  ours.lost_targets |= memory_lost_targets();
  ours.lost_sources |= memory_lost_sources();
  if (!told) {
    /* A peer that is gone does not say what succeeded. The driver knows if it lost memory, which
       may have been while this process waited for what it would say. */
    const uint8_t may_lose = page->peer_may_lose != 0;
    theirs = (struct outcome){.lost_targets = may_lose, .lost_sources = may_lose};
  }
  verify(s, &ours, &theirs);
  if (!told || s->succeeded != all || theirs.succeeded != all || memory_lost_targets() ||
      memory_lost_sources() || theirs.lost_targets || theirs.lost_sources)
    return false;
  page->rounds += 1;
  return true;
}

void session_run(struct random* random) {
  static const uint8_t timeouts[] = {8, 12, 14, 14};
  static struct session s;
  s = (struct session){.timeout = timeouts[random_below(random, 4)],
                       .retry_count = (uint8_t)(1 + random_below(random, 7)),
                       .events = random_below(random, 2) == 0,
                       .patient = random_below(random, 4) != 0};
  const uint64_t rounds_most = 20 + random_below(random, 2000);
  /* A key goes on to mean the pages that were registered. So memory that was mapped anew is
     registered anew. */
  if (memory_lost_targets() || memory_lost_sources()) device_close(OBJECTS);
  memory_forget();
  page->step = STEP_opens_the_device;
  bool ready = device_open();
  page->step = STEP_connects;
  ready = ready && side_channel_open() && greet(&s, random);
  for (unsigned i = 0; ready && i < LINKS; ++i) ready = connect_link(&s, i);
  if (ready) {
    page->sessions += 1;
    for (uint64_t round = 0; round < rounds_most && run_round(&s, round);) ++round;
  }
  page->step = STEP_closes;
  side_channel_close();
  device_close((enum depth)random_below(random, 3));
  memory_give_back(true);
  if (!ready) pause_ms(3);
}
