#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "chaos.h"

/* A process that gets the number of a dead one watches the addresses that the dead one had. */
#define SERVER_MEMORY 0x200000000000u
#define CLIENT_MEMORY 0x210000000000u
#define WATCHED 0x3A7C4ED /* the stream of bytes that a watching process keeps */

static struct {
  uint8_t* at; /* null: nothing is taken away */
  size_t bytes;
  bool is_unmapped;
  uint64_t until;
} gone;
static bool lost_targets, lost_sources;

static uint8_t* memory(void) {
  return (uint8_t*)(options.is_server ? SERVER_MEMORY : CLIENT_MEMORY);
}

uint8_t* target_slot(unsigned slot) { return memory() + slot_offset(slot); }
uint8_t* source_slot(unsigned slot) { return memory() + HALF_BYTES + slot_offset(slot); }

static void map(uint8_t* at, size_t bytes) {
  for (int tries = 0; tries < 10000; ++tries, pause_ms(1)) { /* memory may be scarce for a while */
    void* got =
        mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (got == at) return;
  }
  note("cannot map memory: %s", strerror(errno));
  exit(3);
}

void memory_open(void) { map(memory(), 2 * HALF_BYTES); }

void memory_take_away(enum command command, uint64_t part, uint64_t microseconds) {
  memory_give_back(true);
  gone.at = memory() + (part == 1 ? HALF_BYTES : 0);
  gone.bytes = part == 2 ? 2 * HALF_BYTES : HALF_BYTES;
  gone.is_unmapped = command == COMMAND_unmap;
  gone.until = now_ns() + microseconds * 1000;
  if (gone.is_unmapped) {
    lost_targets |= part != 1;
    lost_sources |= part != 0;
    munmap(gone.at, gone.bytes);
  } else {
    mprotect(gone.at, gone.bytes, command == COMMAND_protect_all ? PROT_NONE : PROT_READ);
  }
}

void memory_give_back(bool at_once) {
  if (gone.at == NULL || (!at_once && now_ns() < gone.until)) return;
  if (gone.is_unmapped)
    map(gone.at, gone.bytes);
  else
    mprotect(gone.at, gone.bytes, PROT_READ | PROT_WRITE);
  gone.at = NULL;
}

bool memory_lost_targets(void) { return lost_targets; }
bool memory_lost_sources(void) { return lost_sources; }
void memory_forget(void) { lost_targets = lost_sources = false; }

void memory_watch(void) {
  uint8_t* expected = malloc(2 * HALF_BYTES);
  if (expected == NULL) exit(3);
  pattern_fill(memory(), 2 * HALF_BYTES, WATCHED, 0);
  memcpy(expected, memory(), 2 * HALF_BYTES);
  page->step = STEP_watches;
  for (;; pause_ms(1)) {
    page->rounds += 1;
    if (memcmp(memory(), expected, 2 * HALF_BYTES) == 0) continue;
    uint64_t wrong = 0, first = 0;
    for (size_t i = 0; i < 2 * HALF_BYTES; ++i) {
      if (memory()[i] != expected[i] && wrong++ == 0) first = i;
    }
    page->wrong_bytes += wrong;
    note("WRONG: %llu bytes of a process that has no device were changed, the first at %llu",
         (long long)wrong, (long long)first);
    memcpy(expected, memory(), 2 * HALF_BYTES);
  }
}
