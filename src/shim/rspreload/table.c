// The table of the program's descriptors, and what becomes of it in a forked child.

#define _GNU_SOURCE

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "preload.h"

// An entry is the number of an rsocket plus one, or of a poll set plus one, negated. 0 means that
// the descriptor is not ours. In a forked child, those of its parent have values of their own.
enum { page_entries = 1024, pages_max = 1024 };
enum { parents_socket = INT_MIN, parents_epoll = INT_MIN + 1 };
static _Atomic(atomic_int*) pages[pages_max];
static pthread_mutex_t table_mutex = PTHREAD_MUTEX_INITIALIZER;
// True while this thread runs an rsocket call. rsockets make sockets themselves, and those are not
// replaced.
_Thread_local int is_inside;
// A child of vfork() or of posix_spawn() has its parent's memory: what it closes and copies must
// not change the table.
static pid_t owner;
int may_change(void) { return !is_inside && getpid() == owner; }

static atomic_int* entry_of(int fd, int create) {
  if (fd < 0 || fd >= page_entries * pages_max) return NULL;
  atomic_int* page = atomic_load(&pages[fd / page_entries]);
  if (page == NULL && create) {
    pthread_mutex_lock(&table_mutex);
    page = atomic_load(&pages[fd / page_entries]);
    if (page == NULL) {
      page = calloc(page_entries, sizeof *page);
      atomic_store(&pages[fd / page_entries], page);
    }
    pthread_mutex_unlock(&table_mutex);
  }
  return page != NULL ? &page[fd % page_entries] : NULL;
}

int value_of(int fd) {
  atomic_int* entry = is_inside ? NULL : entry_of(fd, 0);
  return entry != NULL ? atomic_load(entry) : 0;
}

int rsocket_of(int fd) {
  const int value = value_of(fd);
  return value > 0 ? value - 1 : -1;
}

int poll_set_of(int fd) {
  const int value = value_of(fd);
  return value < 0 && value > parents_epoll ? -value - 1 : -1;
}

int is_parents_epoll(int fd) { return value_of(fd) == parents_epoll; }

// Says once why a server's child does not serve.
int is_parents_socket(int fd) {
  static atomic_flag told = ATOMIC_FLAG_INIT;
  if (value_of(fd) != parents_socket) return 0;
  static const char text[] =
      "tulle: a forked child cannot use its parent's sockets, which stay with the process that "
      "made them: let the server run as one process\n";
  if (!atomic_flag_test_and_set(&told)) {
    const int error = errno;
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    errno = error;
  }
  return 1;
}

// Counts the program's descriptors that stand for the same rsocket or poll set.
static int count_of(int value) {
  int count = 0;
  for (int page = 0; page < pages_max; ++page) {
    atomic_int* entries = atomic_load(&pages[page]);
    if (entries == NULL) continue;
    for (int i = 0; i < page_entries; ++i) count += atomic_load(&entries[i]) == value;
  }
  return count;
}

// Forgets a descriptor, and closes the rsocket or poll set with its last one.
int leave(int fd) {
  atomic_int* entry = entry_of(fd, 0);
  if (entry == NULL || atomic_load(entry) == 0) return 0;
  forget_watches(fd);
  pthread_mutex_lock(&table_mutex);
  const int value = atomic_exchange(entry, 0);
  const int is_ours = value > 0 || value > parents_epoll;
  const int is_last = value != 0 && is_ours && count_of(value) == 0;
  pthread_mutex_unlock(&table_mutex);
  if (!is_last) return 0;
  if (value < 0) close_poll_set(-value - 1);
  return value < 0 ? 0 : INSIDE(int, rclose(value - 1));
}

// Lets a descriptor stand for what the value says. A number that is still in the table was closed
// by a call that is not ours. Returns false if there is no memory.
int stand_for(int fd, int value) {
  leave(fd);
  atomic_int* entry = entry_of(fd, 1);
  if (entry != NULL) atomic_store(entry, value);
  return entry != NULL;
}

int stand_for_poll_set(int fd, int set) { return stand_for(fd, -(set + 1)); }

// Lets a copy of a descriptor stand for the same.
int share(int fd, int value) {
  if (fd >= 0 && value != 0) stand_for(fd, value);
  return fd;
}

// Around a fork, no other thread holds a lock that the child needs.
static void before_fork(void) {
  pthread_mutex_lock(&table_mutex);
  lock_watches();
}
static void after_fork(void) {
  unlock_watches();
  pthread_mutex_unlock(&table_mutex);
}
static void after_fork_in_child(void) {
  after_fork();
  is_inside = 0;
  owner = getpid();
  forget_all_watches();
  for (int page = 0; page < pages_max; ++page) {
    atomic_int* entries = atomic_load(&pages[page]);
    if (entries == NULL) continue;
    for (int i = 0; i < page_entries; ++i) {
      const int value = atomic_load(&entries[i]);
      if (value > 0) atomic_store(&entries[i], parents_socket);
      if (value < 0 && value != parents_socket) atomic_store(&entries[i], parents_epoll);
    }
  }
}

void begin_table(void) {
  owner = getpid();
  pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

// Numbers in later pages are nobody's.
unsigned first_number_beyond(void) {
  unsigned page = pages_max;
  while (page > 0 && atomic_load(&pages[page - 1]) == NULL) --page;
  return page * page_entries;
}
