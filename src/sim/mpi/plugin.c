/* Speaks to an MPI library (plugin.h). It is compiled once for each. */

#include "sim/mpi/plugin.h"

#include <mpi.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

/*
 * The first MPI message between two ranks has the length of each piece. If all pieces together are
 * short, as they mostly are, they are in that message, and no other one follows: MPI libraries send
 * so many bytes without asking the receiver first. Longer pieces follow, each straight from where
 * it is stored.
 */
enum { short_bytes_max = 3700, part_bytes_max = 1 << 30 };
enum { tag_first = 1, tag_piece = 2 };

struct first {
  uint64_t version; /* TULLE_MPI_VERSION */
  uint64_t pieces;
  uint64_t bytes_of_piece[TULLE_MPI_PIECES_MAX];
  unsigned char bytes[short_bytes_max];
};

static struct tulle_mpi self;
static MPI_Comm ranks;
static struct first *to_first, *from_first; /* by rank */
static MPI_Request* requests;
static MPI_Status* statuses;
static uint32_t* rank_of_request;
static int* bytes_of_request; /* to be received; any_bytes: so many as come */
static int request_count, request_room;
static uint64_t silence_max;              /* in nanoseconds */
static tulle_mpi_silence told_of_silence; /* null: nobody is told */
static uint32_t* silent;                  /* room for all ranks */

static const char* failure(int code) {
  static char text[MPI_MAX_ERROR_STRING + 1];
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return "MPI has failed";
  for (char* c = text; *c != 0; ++c) {
    if (*c == '\n') *c = ' ';
  }
  return text;
}

enum { any_bytes = -1 };

/* Returns the list with so much room. If there is too little memory, it stays as it is. */
static void* grown(void* list, int room, size_t bytes_each, int* has_failed) {
  void* more = realloc(list, (size_t)room * bytes_each);
  if (more != NULL) return more;
  *has_failed = 1;
  return list;
}

static int make_room_for_requests(int room) {
  int has_failed = 0;
  requests = grown(requests, room, sizeof *requests, &has_failed);
  statuses = grown(statuses, room, sizeof *statuses, &has_failed);
  rank_of_request = grown(rank_of_request, room, sizeof *rank_of_request, &has_failed);
  bytes_of_request = grown(bytes_of_request, room, sizeof *bytes_of_request, &has_failed);
  if (!has_failed) request_room = room;
  return !has_failed;
}

static MPI_Request* next_request(uint32_t rank, int bytes) {
  if (request_count == request_room &&
      !make_room_for_requests(request_room == 0 ? 64 : 2 * request_room)) {
    return NULL;
  }
  rank_of_request[request_count] = rank;
  bytes_of_request[request_count] = bytes;
  return &requests[request_count++];
}

static long now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000L + time.tv_nsec;
}

/*
 * Reports the ranks for which a request waits. The requests stay as they are; those of a rank
 * follow each other.
 */
static void tell_of_silence(void) {
  uint32_t count = 0;
  for (int i = 0; i < request_count; ++i) {
    const uint32_t rank = rank_of_request[i];
    int done = 1;
    if (MPI_Request_get_status(requests[i], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return;
    if (!done && (count == 0 || silent[count - 1] != rank)) silent[count++] = rank;
  }
  if (count > 0) told_of_silence(silent, count);
}

/* Returns for how many nanoseconds this thread could run and had no processor; -1: unknown. */
static long waited_for_processor(void) {
  FILE* file = fopen("/proc/thread-self/schedstat", "re");
  long ran = 0, waited = -1;
  if (file == NULL) return -1;
  if (fscanf(file, "%ld %ld", &ran, &waited) != 2) waited = -1;
  fclose(file);
  return waited;
}

/*
 * Returns 1 if others use the processors that this thread wants: since the last call, it has waited
 * for one more than a twentieth of the time, or the kernel does not say.
 */
static int others_want_processors(void) {
  enum { part = 20 };
  static _Thread_local long waited_before, asked_before;
  const long time = now(), waited = waited_for_processor();
  const int wanted = waited < 0 || (waited - waited_before) * part > time - asked_before;
  waited_before = waited;
  asked_before = time;
  return wanted;
}

/*
 * Waits for all requests. MPI libraries wait by looking all the time, which keeps other ranks from
 * running where there are more of them than processors. So this looks for two milliseconds at most,
 * and sleeps between looks afterwards. Where looking was in vain, since others have the processors,
 * it looks for less: the kernel prefers those that have slept. The sleeps become longer, since
 * another rank may have to do something alone. All times are in nanoseconds.
 */
static int wait_all(void) {
  enum { looking_max = 2000000, looking_min = 5000, sleep_min = 10000, sleep_max = 1000000 };
  static long looking = looking_max;
  const long begin = now(), end = begin + looking;
  long sleep = sleep_min;
  int has_told = told_of_silence == NULL;
  for (int has_slept = 0;;) {
    int done = 0;
    const int code = MPI_Testall(request_count, requests, &done, statuses);
    if (code != MPI_SUCCESS || done) {
      if (!has_slept && looking < looking_max) looking += looking / 8;
      return code;
    }
    if (!has_slept && now() < end) continue;
    if (!has_slept) {
      has_slept = 1;
      looking = others_want_processors() ? looking / 2 : 2 * looking;
      if (looking < looking_min) looking = looking_min;
      if (looking > looking_max) looking = looking_max;
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

/* Sends or receives a piece, in parts that MPI can count. */
static const char* move(uint32_t rank, unsigned char* bytes, uint64_t count, int is_sent) {
  for (uint64_t at = 0; at < count; at += part_bytes_max) {
    const int part = count - at < part_bytes_max ? (int)(count - at) : part_bytes_max;
    MPI_Request* request = next_request(rank, is_sent ? any_bytes : part);
    if (request == NULL) return "there is too little memory";
    const int code =
        is_sent ? MPI_Isend(bytes + at, part, MPI_BYTE, (int)rank, tag_piece, ranks, request)
                : MPI_Irecv(bytes + at, part, MPI_BYTE, (int)rank, tag_piece, ranks, request);
    if (code != MPI_SUCCESS) return failure(code);
  }
  return NULL;
}

static const uint64_t uncountable = UINT64_MAX;

/* Returns the bytes of all pieces; uncountable if there are too many of either. */
static uint64_t bytes_of(const struct first* first) {
  uint64_t bytes = 0;
  if (first->pieces > TULLE_MPI_PIECES_MAX) return uncountable;
  for (uint64_t i = 0; i < first->pieces; ++i) {
    if (first->bytes_of_piece[i] > uncountable - bytes) return uncountable;
    bytes += first->bytes_of_piece[i];
  }
  return bytes;
}

/* Fills in the first message, and returns how many bytes of it are to be sent. */
static int write_first(const struct tulle_mpi_message* message, struct first* first) {
  first->version = TULLE_MPI_VERSION;
  first->pieces = message->count;
  for (uint64_t i = 0; i < message->count; ++i) {
    first->bytes_of_piece[i] = message->pieces[i].count;
  }
  const uint64_t bytes = bytes_of(first);
  if (bytes > short_bytes_max) return (int)offsetof(struct first, bytes);
  unsigned char* to = first->bytes;
  for (uint64_t i = 0; i < message->count; ++i) {
    if (message->pieces[i].count == 0) continue;
    memcpy(to, message->pieces[i].bytes, message->pieces[i].count);
    to += message->pieces[i].count;
  }
  return (int)(offsetof(struct first, bytes) + bytes);
}

/* Returns null if each rank has sent as much as its first message says. */
static const char* check_first(void) {
  for (int i = 0; i < request_count; i += 2) { /* a receipt, and what was sent */
    const struct first* first = &from_first[rank_of_request[i]];
    int came = 0;
    const uint64_t bytes = bytes_of(first), within = bytes > short_bytes_max ? 0 : bytes;
    if (MPI_Get_count(&statuses[i], MPI_BYTE, &came) != MPI_SUCCESS) came = 0;
    if (first->version != TULLE_MPI_VERSION) return "a rank runs another build of Tulle";
    if (bytes == uncountable || (uint64_t)came != offsetof(struct first, bytes) + within) {
      return "a message is damaged";
    }
  }
  return NULL;
}

static const char* exchange_first(const struct tulle_mpi_message* to) {
  request_count = 0;
  for (uint32_t r = 0; r < self.size; ++r) {
    if (r == self.rank) continue;
    if (to[r].count > TULLE_MPI_PIECES_MAX) return "a message has too many pieces";
    const int bytes = write_first(&to[r], &to_first[r]);
    memset(&from_first[r], 0, offsetof(struct first, bytes));
    MPI_Request* request = next_request(r, any_bytes);
    if (request == NULL) return "there is too little memory";
    int code = MPI_Irecv(&from_first[r], sizeof(struct first), MPI_BYTE, (int)r, tag_first, ranks,
                         request);
    if (code != MPI_SUCCESS) return failure(code);
    request = next_request(r, any_bytes);
    if (request == NULL) return "there is too little memory";
    code = MPI_Isend(&to_first[r], bytes, MPI_BYTE, (int)r, tag_first, ranks, request);
    if (code != MPI_SUCCESS) return failure(code);
  }
  const int code = wait_all();
  return code == MPI_SUCCESS ? check_first() : failure(code);
}

/* Takes what a rank has sent with its first message, or begins to receive its pieces. */
static const char* receive_from(uint32_t rank, tulle_mpi_room room, void* context) {
  const struct first* first = &from_first[rank];
  const uint64_t count = bytes_of(first);
  unsigned char* bytes = room(context, rank, count);
  if (bytes == NULL && count > 0) return "a message is too long";
  if (count <= short_bytes_max) {
    if (count > 0) memcpy(bytes, first->bytes, count);
    return NULL;
  }
  for (uint64_t i = 0; i < first->pieces; ++i) {
    const char* failed = move(rank, bytes, first->bytes_of_piece[i], 0);
    if (failed != NULL) return failed;
    bytes += first->bytes_of_piece[i];
  }
  return NULL;
}

static const char* send_to(uint32_t rank, const struct tulle_mpi_message* message) {
  if (bytes_of(&to_first[rank]) <= short_bytes_max) return NULL;
  for (uint64_t i = 0; i < message->count; ++i) {
    unsigned char* bytes = (unsigned char*)(uintptr_t)message->pieces[i].bytes;
    const char* failed = move(rank, bytes, message->pieces[i].count, 1);
    if (failed != NULL) return failed;
  }
  return NULL;
}

/* Returns null if each piece has come as long as the first message says. */
static const char* check_pieces(void) {
  for (int i = 0; i < request_count; ++i) {
    int came = 0;
    if (bytes_of_request[i] == any_bytes) continue;
    if (MPI_Get_count(&statuses[i], MPI_BYTE, &came) != MPI_SUCCESS) came = any_bytes;
    if (came != bytes_of_request[i]) return "a message is damaged";
  }
  return NULL;
}

static const char* exchange(const struct tulle_mpi_message* to, tulle_mpi_room room,
                            void* context) {
  const char* failed = exchange_first(to);
  request_count = 0;
  for (uint32_t r = 0; failed == NULL && r < self.size; ++r) {
    if (r == self.rank) continue;
    failed = receive_from(r, room, context);
    if (failed == NULL) failed = send_to(r, &to[r]);
  }
  if (failed != NULL || request_count == 0) return failed;
  const int code = wait_all();
  return code == MPI_SUCCESS ? check_pieces() : failure(code);
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
  silent = calloc((size_t)size, sizeof *silent);
  if (to_first == NULL || from_first == NULL || silent == NULL) return NULL;
  self.rank = (uint32_t)rank;
  self.size = (uint32_t)size;
  self.any_thread = provided >= MPI_THREAD_SERIALIZED;
  self.exchange = exchange;
  self.watch = watch;
  self.end = end;
  self.abort = abort_all;
  return &self;
}
