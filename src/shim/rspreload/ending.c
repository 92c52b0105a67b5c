// Ends sockets and poll sets on a thread for that. A signal handler may close a socket while its
// thread allocates memory or holds a lock of rsockets: it only hands the socket over, without
// either.

#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "preload.h"

enum { asks_no_reading = 1, asks_no_writing = 2, asks_end = 4 };
// How long close() waits for the end, and exit() and _exit() for all ends. TCP waits in none, since
// the kernel sends on.
enum { end_milliseconds = 50, exit_milliseconds = 2000, last_milliseconds = 250 };

static _Atomic(struct ending*) endings;  // the newest first
static _Atomic(struct watch*) discarded;
static atomic_uint calls;  // a futex: how often something was handed over
static atomic_int unfinished, is_exiting;
static atomic_int is_running;

static void wake(atomic_uint* word) {
  syscall(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT_MAX, NULL, NULL, 0);
}

static void sleep_on(atomic_uint* word, unsigned value, const struct timespec* limit) {
  syscall(SYS_futex, word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, value, limit, NULL, 0);
}

static void call(void) {
  atomic_fetch_add(&calls, 1);
  wake(&calls);
}

static void hand_over(struct ending* its, int value, int asked) {
  atomic_store(&its->value, value);
  if (atomic_fetch_or(&its->asked, asked) == 0) {
    atomic_fetch_add(&unfinished, 1);
    its->next = atomic_load(&endings);
    while (!atomic_compare_exchange_weak(&endings, &its->next, its)) {
    }
  }
  call();
}

static void await(struct ending* its, unsigned before) {
  const int error = errno;
  const int64_t due = now_milliseconds() + end_milliseconds;
  int64_t left;
  while (atomic_load(&its->done) == before && (left = due - now_milliseconds()) > 0) {
    const struct timespec limit = {0, left * 1000000};
    sleep_on(&its->done, before, &limit);
  }
  errno = error;
}

static int number_of(int value) { return (value > 0 ? value : -value) - 1; }

// Within a call of rsockets, the end may need what the call holds. A thread that was interrupted as
// it allocated may hold up the end, too, until it continues.
void end_value(int value) {
  struct ending* its = ending_of(number_of(value));
  const unsigned before = atomic_load(&its->done);
  hand_over(its, value, asks_end);
  if (!is_inside()) await(its, before);
}

void shut_later(int fd, int how) {
  const int value = entry_of(fd);
  if (value <= 0) return;
  const int asked = how == SHUT_RD   ? asks_no_reading
                    : how == SHUT_WR ? asks_no_writing
                                     : asks_no_reading | asks_no_writing;
  hand_over(ending_of(number_of(value)), value, asked);
}

void discard_watches(struct watch* watches) {
  if (watches == NULL) return;
  struct watch* last = watches;
  while (last->next != NULL) last = last->next;
  last->next = atomic_load(&discarded);
  while (!atomic_compare_exchange_weak(&discarded, &last->next, watches)) {
  }
  call();
}

// A peer that takes no more holds up the end of a socket that blocks, and nobody's after it.
static void end(int value, int asked, int others_wait) {
  static const int ways[4] = {-1, SHUT_RD, SHUT_WR, SHUT_RDWR};
  const int way = ways[asked & (asks_no_reading | asks_no_writing)];
  if (value > 0 && way >= 0) INSIDE(int, rshutdown(value - 1, way));
  if ((asked & asks_end) == 0) return;
  if (value < 0) {
    close_poll_set(-value - 1);
    return;
  }
  if (others_wait && !atomic_load(&is_exiting)) INSIDE(int, rfcntl(value - 1, F_SETFL, O_NONBLOCK));
  INSIDE(int, rclose(value - 1));
}

static struct ending* take_endings(void) {
  struct ending* oldest = NULL;
  struct ending* next;
  for (struct ending* each = atomic_exchange(&endings, NULL); each != NULL; each = next) {
    next = each->next;
    each->next = oldest;
    oldest = each;
  }
  return oldest;
}

// What is handed over may be handed over once more as soon as it is taken.
static void end_one(struct ending* its, int others_wait) {
  const int asked = atomic_exchange(&its->asked, 0);
  end(atomic_load(&its->value), asked, others_wait || atomic_load(&endings) != NULL);
  atomic_fetch_sub(&unfinished, 1);
  atomic_fetch_add(&its->done, 1);
  wake(&its->done);
}

static void* run(void* unused) {
  for (;;) {
    const unsigned seen = atomic_load(&calls);
    free_watches(atomic_exchange(&discarded, NULL));
    struct ending* next = take_endings();
    if (next == NULL) sleep_on(&calls, seen, NULL);
    while (next != NULL) {
      struct ending* each = next;
      next = each->next;
      end_one(each, next != NULL);
    }
  }
  return unused;
}

static void await_all(int milliseconds) {
  const int64_t due = now_milliseconds() + milliseconds;
  const struct timespec a_moment = {0, 1000000};
  atomic_store(&is_exiting, 1);
  while (atomic_load(&is_running) && atomic_load(&unfinished) > 0 && now_milliseconds() < due) {
    nanosleep(&a_moment, NULL);
  }
}

static void await_at_exit(void) { await_all(exit_milliseconds); }
void await_endings(void) { await_all(last_milliseconds); }

int begin_endings(void) {
  static atomic_flag registers = ATOMIC_FLAG_INIT;
  if (atomic_load(&is_running) || atomic_exchange(&is_running, 1)) return 1;
  if (!atomic_flag_test_and_set(&registers)) atexit(await_at_exit);
  pthread_t thread;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  const int error = pthread_create(&thread, NULL, run, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (error == 0) pthread_detach(thread);
  if (error != 0) atomic_store(&is_running, 0);
  return error == 0;
}

void forget_endings(void) {
  atomic_store(&endings, NULL);
  atomic_store(&discarded, NULL);
  atomic_store(&unfinished, 0);
  atomic_store(&is_running, 0);
}
