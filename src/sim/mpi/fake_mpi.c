/*
 * An MPI of one process, for tests of what loads such libraries. Each rank's message comes back as
 * if that rank had sent it. The environment says what it is like:
 * FAKE_MPI="VERSION RANK SIZE ANY_THREAD".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/mpi/plugin.h"

static struct tulle_mpi fake;
static uint64_t watched_nanoseconds;

static const char* exchange(const struct tulle_mpi_message* to, tulle_mpi_room room,
                            void* context) {
  for (uint32_t rank = 0; rank < fake.size; ++rank) {
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < to[rank].count; ++i) bytes += to[rank].pieces[i].count;
    /* A message of one byte is about what a stranger might claim: huge, or more than there is. */
    const char what = bytes == 1 ? *(const char*)to[rank].pieces[0].bytes : 0;
    if (what == 'h') bytes = 1ull << 40;
    if (what == 'm') bytes = 1ull << 35;
    char* at = room(context, rank, bytes);
    if (at == NULL && bytes > 0) return "no room\x1b[2J for\nit";
    for (uint64_t i = 0; i < to[rank].count; ++i) {
      memcpy(at, to[rank].pieces[i].bytes, to[rank].pieces[i].count);
      at += to[rank].pieces[i].count;
    }
  }
  return NULL;
}

/* Tells how long it was to wait, as the number of a rank. */
static void watch(uint64_t nanoseconds, tulle_mpi_silence told) {
  watched_nanoseconds = nanoseconds;
  const uint32_t milliseconds = (uint32_t)(watched_nanoseconds / 1000000);
  told(&milliseconds, 1);
}

static void end(void) { setenv("FAKE_MPI_ENDED", "yes", 1); }

static void stop(int status) { fprintf(stderr, "all ranks end with %d\n", status); }

const struct tulle_mpi* tulle_mpi_begin(uint32_t version);
const struct tulle_mpi* tulle_mpi_begin(uint32_t version) {
  unsigned own = 0;
  const char* what = getenv("FAKE_MPI");
  if (what == NULL) return NULL;
  if (sscanf(what, "%u %u %u %u", &own, &fake.rank, &fake.size, &fake.any_thread) != 4) return NULL;
  fake.exchange = exchange;
  fake.watch = watch;
  fake.end = end;
  fake.abort = stop;
  return version == own ? &fake : NULL;
}
