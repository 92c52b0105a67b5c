/* Speaks to an MPI library (plugin.h). It is compiled once for each. */

#include "mpi/plugin.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

/*
 * The first part of a message has a fixed length and tells how long the whole is, so that short
 * messages, which are many, need no second one. MPI libraries send so many bytes without asking the
 * receiver first.
 */
enum { first_bytes = 4000, part_bytes_max = 1 << 30 };
enum { tag_first = 1, tag_rest = 2 };

struct first {
  uint64_t count;
  unsigned char bytes[first_bytes];
};

static struct tulle_mpi self;
static MPI_Comm ranks;
static struct first *to_first, *from_first; /* by rank */
static MPI_Request* requests;
static uint32_t* rank_of_request;
static int request_count, request_room;
static uint64_t silence_max;              /* in nanoseconds */
static tulle_mpi_silence told_of_silence; /* null: nobody is told */

static const char* failure(int code) {
  static char text[MPI_MAX_ERROR_STRING + 1];
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return "MPI has failed";
  for (char* c = text; *c != 0; ++c) {
    if (*c == '\n') *c = ' ';
  }
  return text;
}

static MPI_Request* next_request(uint32_t rank) {
  if (request_count == request_room) {
    const int room = request_room == 0 ? 64 : 2 * request_room;
    MPI_Request* more = realloc(requests, (size_t)room * sizeof *more);
    if (more == NULL) return NULL;
    requests = more;
    uint32_t* ranks_too = realloc(rank_of_request, (size_t)room * sizeof *ranks_too);
    if (ranks_too == NULL) return NULL;
    rank_of_request = ranks_too;
    request_room = room;
  }
  rank_of_request[request_count] = rank;
  return &requests[request_count++];
}

static long now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000L + time.tv_nsec;
}

/* Tells of the first rank for which a request waits. The requests stay as they are. */
static void tell_of_silence(void) {
  for (int i = 0; i < request_count; ++i) {
    int done = 1;
    if (MPI_Request_get_status(requests[i], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return;
    if (done) continue;
    told_of_silence(rank_of_request[i]);
    return;
  }
}

/*
 * Waits for all requests. MPI libraries wait by looking all the time, which keeps other ranks from
 * running where there are more of them than processors. So this looks for half a millisecond at
 * most, and sleeps between looks afterwards. Where looking was in vain, since others have the
 * processors, it looks for less: the kernel prefers those that have slept. The sleeps become
 * longer, since another rank may have to do something alone. All times are in nanoseconds.
 */
static int wait_all(void) {
  enum { looking_max = 500000, looking_min = 5000, sleep_min = 10000, sleep_max = 1000000 };
  static long looking = looking_max;
  const long begin = now(), end = begin + looking;
  long sleep = sleep_min;
  int has_told = told_of_silence == NULL;
  for (int has_slept = 0;;) {
    int done = 0;
    const int code = MPI_Testall(request_count, requests, &done, MPI_STATUSES_IGNORE);
    if (code != MPI_SUCCESS || done) {
      if (!has_slept && looking < looking_max) looking += looking / 8;
      return code;
    }
    if (!has_slept && now() < end) continue;
    if (!has_slept) {
      has_slept = 1;
      looking = looking / 2 > looking_min ? looking / 2 : looking_min;
      prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0); /* a sleep then is as short as it is asked to be */
    }
    const struct timespec moment = {0, sleep};
    nanosleep(&moment, NULL);
    if (sleep < sleep_max) sleep += sleep / 8;
    if (has_told || (uint64_t)(now() - begin) < silence_max) continue;
    has_told = 1;
    tell_of_silence();
  }
}

/* Sends or receives the bytes behind the first ones, in parts that MPI can count. */
static const char* move(uint32_t rank, unsigned char* bytes, uint64_t count, int is_sent) {
  for (uint64_t at = 0; at < count; at += part_bytes_max) {
    const int part = count - at < part_bytes_max ? (int)(count - at) : part_bytes_max;
    MPI_Request* request = next_request(rank);
    if (request == NULL) return "there is too little memory";
    const int code =
        is_sent ? MPI_Isend(bytes + at, part, MPI_BYTE, (int)rank, tag_rest, ranks, request)
                : MPI_Irecv(bytes + at, part, MPI_BYTE, (int)rank, tag_rest, ranks, request);
    if (code != MPI_SUCCESS) return failure(code);
  }
  return NULL;
}

static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

static const char* exchange_first(const struct tulle_mpi_message* to) {
  request_count = 0;
  for (uint32_t r = 0; r < self.size; ++r) {
    if (r == self.rank) continue;
    const uint64_t inside = smaller(to[r].count, first_bytes);
    to_first[r].count = to[r].count;
    if (inside > 0) memcpy(to_first[r].bytes, to[r].bytes, inside);
    MPI_Request* request = next_request(r);
    if (request == NULL) return "there is too little memory";
    int code = MPI_Irecv(&from_first[r], sizeof(struct first), MPI_BYTE, (int)r, tag_first, ranks,
                         request);
    if (code != MPI_SUCCESS) return failure(code);
    request = next_request(r);
    if (request == NULL) return "there is too little memory";
    code = MPI_Isend(&to_first[r], (int)(sizeof(uint64_t) + inside), MPI_BYTE, (int)r, tag_first,
                     ranks, request);
    if (code != MPI_SUCCESS) return failure(code);
  }
  const int code = wait_all();
  return code == MPI_SUCCESS ? NULL : failure(code);
}

static const char* exchange(const struct tulle_mpi_message* to, tulle_mpi_room room,
                            void* context) {
  const char* failed = exchange_first(to);
  request_count = 0;
  for (uint32_t r = 0; failed == NULL && r < self.size; ++r) {
    if (r == self.rank) continue;
    const uint64_t count = from_first[r].count;
    unsigned char* bytes = room(context, r, count);
    if (bytes == NULL && count > 0) return "a message is too long";
    const uint64_t inside = smaller(count, first_bytes);
    if (inside > 0) memcpy(bytes, from_first[r].bytes, inside);
    failed = move(r, bytes + inside, count - inside, 0);
    const uint64_t sent = smaller(to[r].count, first_bytes);
    if (failed == NULL) {
      failed = move(r, (unsigned char*)(uintptr_t)to[r].bytes + sent, to[r].count - sent, 1);
    }
  }
  if (failed != NULL || request_count == 0) return failed;
  const int code = wait_all();
  return code == MPI_SUCCESS ? NULL : failure(code);
}

static void watch(uint64_t nanoseconds, tulle_mpi_silence told) {
  silence_max = nanoseconds;
  told_of_silence = told;
}

static void end(void) {
  MPI_Comm_free(&ranks);
  MPI_Finalize();
}

static void abort_all(int status) {
  MPI_Abort(MPI_COMM_WORLD, status);
  _Exit(status);
}

const struct tulle_mpi* tulle_mpi_begin(uint32_t version);

const struct tulle_mpi* tulle_mpi_begin(uint32_t version) {
  if (version != TULLE_MPI_VERSION) return NULL;
  int provided = MPI_THREAD_SINGLE, rank = 0, size = 0;
  if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS) return NULL;
  if (MPI_Comm_dup(MPI_COMM_WORLD, &ranks) != MPI_SUCCESS ||
      MPI_Comm_set_errhandler(ranks, MPI_ERRORS_RETURN) != MPI_SUCCESS ||
      MPI_Comm_rank(ranks, &rank) != MPI_SUCCESS || MPI_Comm_size(ranks, &size) != MPI_SUCCESS) {
    return NULL;
  }
  to_first = calloc((size_t)size, sizeof *to_first);
  from_first = calloc((size_t)size, sizeof *from_first);
  if (to_first == NULL || from_first == NULL) return NULL;
  self.rank = (uint32_t)rank;
  self.size = (uint32_t)size;
  self.any_thread = provided >= MPI_THREAD_SERIALIZED;
  self.exchange = exchange;
  self.watch = watch;
  self.end = end;
  self.abort = abort_all;
  return &self;
}
