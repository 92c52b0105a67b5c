#include "chaos.h"

bool is_atomic(const struct operation* o) { return o->verb >= COMPARE_AND_SWAP; }

bool consumes_receive(const struct operation* o) {
  return o->verb == SEND || o->verb == SEND_IMMEDIATE || o->verb == WRITE_IMMEDIATE;
}

uint64_t after_atomic(const struct operation* o) {
  return o->verb == FETCH_AND_ADD ? o->before + o->operand : o->operand;
}

/* Short operations are likelier, so that many are outstanding at once. The long slot is a WRITE's
   or a READ's, and most rounds use little of it. */
void plan(struct operation* operations, uint64_t seed) {
  struct random random = {seed};
  for (unsigned i = 0; i < SLOTS; ++i) {
    const bool is_long = i + 1 == SLOTS;
    struct operation* o = &operations[i];
    *o = (struct operation){.verb = random_below(&random, VERBS),
                            .link = random_below(&random, LINKS),
                            .stream = random_next(&random),
                            .before = random_next(&random),
                            .operand = random_next(&random)};
    if (is_long) o->verb = random_below(&random, 2) == 0 ? WRITE : READ;
    const uint32_t most = (uint32_t)slot_bytes(i) - 2 * GUARD;
    o->length = random_below(&random, random_below(&random, 4) == 0 ? most : most / 32);
    o->fence = random_below(&random, 8) == 0;
    if (is_atomic(o)) o->length = 8;
  }
}
