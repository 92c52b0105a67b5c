#include <string.h>

#include "chaos.h"

static const char* const verbs[VERBS] = {"SEND",
                                         "SEND with immediate",
                                         "WRITE",
                                         "WRITE with immediate",
                                         "READ",
                                         "atomic compare & swap",
                                         "atomic fetch & add"};

void slot_clear(uint8_t* slot, unsigned index) {
  pattern_fill(slot, slot_bytes(index), BACKGROUND, 0);
}

static bool is_inside(const struct operation* o, size_t byte) {
  return byte >= GUARD && byte < GUARD + (size_t)o->length;
}

/* Counts the bytes that are not what they may be. `before` and `after` are what the slot was, and
   what it is when the operation is complete. */
static void compare(const uint8_t* slot, const uint8_t* before, const uint8_t* after,
                    unsigned index, const struct operation* o, enum knowledge knowledge,
                    const char* what) {
  const size_t bytes = slot_bytes(index);
  page->kilobytes_verified += bytes / 1024;
  if (memcmp(slot, after, bytes) == 0) return;
  uint64_t wrong = 0, missing = 0;
  size_t first = 0;
  for (size_t i = 0; i < bytes; ++i) {
    if (slot[i] == after[i] || (knowledge != SUCCEEDED && slot[i] == before[i])) continue;
    if (knowledge == LOST && (slot[i] == 0 || is_inside(o, i))) continue;
    if (wrong + missing == 0) first = i;
    if (slot[i] == before[i])
      ++missing;
    else
      ++wrong;
  }
  if (wrong + missing == 0) return;
  page->wrong_bytes += wrong;
  page->false_successes += missing > 0;
  note(
      "WRONG: %s %u, a %s of %u bytes, which %s: %llu wrong bytes, %llu missing ones, the first "
      "at %lld is %#04x, before %#04x, after %#04x",
      what, index, verbs[o->verb], o->length,
      knowledge == SUCCEEDED ? "succeeded" : "did not surely succeed", (long long)wrong,
      (long long)missing, (long long)first - GUARD, slot[first], before[first], after[first]);
}

static uint8_t before[LONG_BYTES], after[LONG_BYTES];

static void put_word(uint8_t* slot, uint64_t word) { memcpy(slot + GUARD, &word, 8); }

/* A failed atomic was executed as a whole or not at all. */
static bool is_whole_word(const uint8_t* slot, const uint8_t* one, const uint8_t* other) {
  return memcmp(slot + GUARD, one + GUARD, 8) == 0 || memcmp(slot + GUARD, other + GUARD, 8) == 0;
}

static void verify(const uint8_t* slot, unsigned index, const struct operation* o,
                   enum knowledge knowledge, const char* what) {
  if (is_atomic(o) && knowledge == UNKNOWN && !is_whole_word(slot, before, after)) {
    page->wrong_bytes += 8;
    note("WRONG: %s %u, an atomic operation that failed left half a word", what, index);
  }
  compare(slot, before, after, index, o, knowledge, what);
}

void verify_target(unsigned index, const struct operation* theirs, enum knowledge knowledge) {
  slot_clear(before, index);
  slot_clear(after, index);
  if (is_atomic(theirs)) {
    put_word(before, theirs->before);
    put_word(after, after_atomic(theirs));
  } else {
    pattern_fill(after + GUARD, theirs->length, theirs->stream, 0);
    if (theirs->verb == READ) memcpy(before, after, slot_bytes(index));
  }
  verify(target_slot(index), index, theirs, knowledge, "target");
}

void verify_source(unsigned index, const struct operation* ours, enum knowledge knowledge) {
  slot_clear(before, index);
  slot_clear(after, index);
  if (is_atomic(ours)) {
    put_word(after, ours->before);
  } else {
    pattern_fill(after + GUARD, ours->length, ours->stream, 0);
    if (ours->verb != READ) memcpy(before, after, slot_bytes(index));
  }
  verify(source_slot(index), index, ours, knowledge, "source");
}
