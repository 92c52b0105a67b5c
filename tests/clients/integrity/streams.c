/* Unreliable messages in a stream, one direction at a time: UC messages of several packets, UD
   messages of one. Over a network that loses packets, some messages may be missing, but those
   that arrive are complete. */

#include <arpa/inet.h>
#include <stdio.h>
#include <unistd.h>

#include "integrity.h"

#define MESSAGES SLOTS

static uint32_t length_of(const struct endpoint* e, const struct link* link, unsigned i) {
  const uint32_t mtu = 128u << e->mtu;
  const uint32_t most = link->type == IBV_QPT_UD ? mtu + 1 : 5 * mtu;
  struct random random = {e->options->seed + i};
  return random_below(&random, most < SLOT_BYTES / 2 ? most : SLOT_BYTES / 2);
}

static struct layout whole(uint32_t length) {
  return (struct layout){.count = 1, .span = length, .piece = {{0, length}}};
}

static uint64_t stream_of(const struct endpoint* e, unsigned i) {
  return e->options->seed * 31 + i;
}

static void send_all(struct endpoint* e, struct link* link, const char* what) {
  for (unsigned i = 0; i < MESSAGES; ++i) {
    const struct layout layout = whole(length_of(e, link, i));
    slot_clear(source_slot(e, i));
    slot_put(source_slot(e, i), &layout, GUARD, stream_of(e, i));
    struct ibv_sge sge = {(uintptr_t)source_slot(e, i) + GUARD, layout.span, e->region->lkey};
    struct ibv_send_wr wr = {.wr_id = i,
                             .opcode = IBV_WR_SEND_WITH_IMM,
                             .sg_list = &sge,
                             .num_sge = layout.span > 0 ? 1 : 0,
                             .send_flags = IBV_SEND_SIGNALED,
                             .imm_data = htonl(i)};
    post_send(link, &wr);
    /* Messages go out a few at a time: nothing paces an unreliable sender but the sender itself. */
    expect_completion(e, e->send_cq, i, IBV_WC_SEND, what);
    if (i % 8 == 7) usleep(1000);
  }
}

static void receive_all(struct endpoint* e, struct link* link, const char* what) {
  const uint32_t grh = link->type == IBV_QPT_UD ? 40 : 0;
  unsigned received = 0;
  int last = -1;
  bool seen[MESSAGES] = {false};
  for (;;) {
    struct ibv_wc wc;
    const bool lossy = e->options->lossy;
    if (received == MESSAGES && !lossy) break;
    if (!next_completion(e, e->receive_cq, &wc, lossy ? 0.3 : 30)) break;
    if (wc.status != IBV_WC_SUCCESS)
      die("%s: status %d (%s)", what, wc.status, ibv_wc_status_str(wc.status));
    const unsigned i = ntohl(wc.imm_data);
    if ((wc.wc_flags & IBV_WC_WITH_IMM) == 0 || i >= MESSAGES || wc.wr_id >= MESSAGES)
      die("%s: not ours", what);
    const struct layout layout = whole(length_of(e, link, i));
    if (wc.byte_len != layout.span + grh)
      die("%s: byte_len %u, not %u", what, wc.byte_len, layout.span + grh);
    /* A network that doubles and swaps packets may do so with unreliable messages. Any other
       network keeps UC's order. */
    if (!lossy && (seen[i] || (link->type == IBV_QPT_UC && (int)i <= last)))
      die("%s: %u after %d", what, i, last);
    const bool again = seen[i];
    seen[i] = true;
    last = (int)i;
    uint8_t* slot = target_slot(e, (unsigned)wc.wr_id);
    const uint32_t begin = GUARD + grh, end = SLOT_BYTES - GUARD;
    if (grh > 0) pattern_fill(slot + GUARD, grh, BACKGROUND, GUARD);
    /* A message that lost its end may have left its beginning in the buffer, behind the message
       that came after it. */
    if (lossy)
      pattern_fill(slot + begin + layout.span, end - begin - layout.span, BACKGROUND,
                   begin + layout.span);
    slot_verify(e, slot, &layout, GUARD + grh, stream_of(e, i), what);
    received += !again;
  }
  if (!e->options->lossy && received != MESSAGES)
    die("%s: %u of %u messages", what, received, MESSAGES);
  if (received < MESSAGES / 4) die("%s: only %u of %u messages", what, received, MESSAGES);
  printf("%s: %u of %u messages\n", what, received, MESSAGES);
  e->operations += received;
}

static void run_stream(struct endpoint* e, enum ibv_qp_type type) {
  for (int server_sends = 0; server_sends < 2; ++server_sends) {
    struct link link = link_open(e, type, false);
    const bool sender = server_sends == e->is_server;
    char what[64];
    snprintf(what, sizeof what, "%s stream from the %s", type == IBV_QPT_UC ? "UC" : "UD",
             server_sends ? "server" : "client");
    for (unsigned i = 0; i < MESSAGES && !sender; ++i) {
      slot_clear(target_slot(e, i));
      post_plain_receive(e, &link, i, target_slot(e, i) + GUARD, SLOT_BYTES - 2 * GUARD);
    }
    barrier(e);
    if (sender)
      send_all(e, &link, what);
    else
      receive_all(e, &link, what);
    barrier(e);
    link_close(&link); /* discards unused receives, too */
  }
}

void run_streams(struct endpoint* e) {
  run_stream(e, IBV_QPT_UC);
  run_stream(e, IBV_QPT_UD);
}
