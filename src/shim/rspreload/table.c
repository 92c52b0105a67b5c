// The table of the program's descriptors, and what becomes of it in a forked child.

#define _GNU_SOURCE

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "preload.h"

// An entry is the number of an rsocket plus one, or of a poll set plus one, negated. 0 means that
// the descriptor is not ours. In a forked child, those of its parent have separate values.
enum { page_entries = 1024, pages_max = 1024 };
enum { parents_socket = INT_MIN, parents_epoll = INT_MIN + 1 };
struct page {
  atomic_int values[page_entries];
  atomic_ulong inodes[page_entries];  // of the descriptors behind a socket
  struct ending endings[page_entries];
};
static _Atomic(struct page*) pages[pages_max];
static pthread_mutex_t table_mutex = PTHREAD_MUTEX_INITIALIZER;

static _Thread_local int inside;

int is_inside(void) { return inside; }

int begin_call(void) {
  const int before = inside;
  inside = 1;
  return before;
}

void end_call(const int* before) { inside = *before; }

void forget_call(void) {
  inside = 0;
  forget_wait();
}

// A child of vfork() or of posix_spawn() has its parent's memory: what it closes and copies must
// not change the table.
static pid_t owner;
int may_change(void) { return getpid() == owner; }

// A child by clone(2) alone has a copy of that memory, and ran no handler of pthread_atfork(3). The
// kernel wipes this page in it. Linux before 4.14 does not, and there is none.
static volatile int* parents_mark;
static void make_mark(void) {
  const size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
  void* page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED || madvise(page, bytes, MADV_WIPEONFORK) != 0) return;
  parents_mark = page;
  *parents_mark = 1;
}
static int is_unprepared_child(void) { return parents_mark != NULL && *parents_mark == 0; }

void lock(pthread_mutex_t* mutex, sigset_t* before) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, before);
  pthread_mutex_lock(mutex);
}

void unlock(pthread_mutex_t* mutex, const sigset_t* before) {
  pthread_mutex_unlock(mutex);
  pthread_sigmask(SIG_SETMASK, before, NULL);
}

static struct page* page_of(int fd, int create) {
  if (fd < 0 || fd >= page_entries * pages_max) return NULL;
  struct page* page = atomic_load(&pages[fd / page_entries]);
  if (page == NULL && create) {
    sigset_t before;
    lock(&table_mutex, &before);
    page = atomic_load(&pages[fd / page_entries]);
    if (page == NULL) {
      page = calloc(1, sizeof *page);
      atomic_store(&pages[fd / page_entries], page);
    }
    unlock(&table_mutex, &before);
  }
  return page;
}

int make_place(int fd) { return page_of(fd, 1) != NULL; }

struct ending* ending_of(int number) {
  struct page* page = page_of(number, 0);
  return page != NULL ? &page->endings[number % page_entries] : NULL;
}

int entry_of(int fd) {
  struct page* page = page_of(fd, 0);
  return page != NULL ? atomic_load(&page->values[fd % page_entries]) : 0;
}

static unsigned long inode_of(int fd) {
  struct stat found;
  return fstat(fd, &found) == 0 ? (unsigned long)found.st_ino : 0;
}

void note_descriptor(int fd) {
  struct page* page = page_of(fd, 0);
  if (page != NULL) atomic_store(&page->inodes[fd % page_entries], inode_of(fd));
}

// rsockets have descriptors as well. One of them may have a number that the program closed by a
// call that is not ours.
static int is_busy(int fd) {
  if (!inside || entry_of(fd) <= 0) return 0;
  const int error = errno;
  const unsigned long inode = inode_of(fd);
  errno = error;
  return inode == atomic_load(&page_of(fd, 0)->inodes[fd % page_entries]);
}

// The locks of its parent's rsockets may be held for ever in such a child.
int value_of(int fd) {
  const int value = inside ? 0 : entry_of(fd);
  if (value == 0 || !is_unprepared_child()) return value;
  return value > 0 || value == parents_socket ? parents_socket : parents_epoll;
}

int rsocket_of(int fd) {
  const int value = value_of(fd);
  if (value > 0) return value - 1;
  return is_busy(fd) ? busy : -1;
}

// The calls under way on rsockets, by their numbers: dup2() waits a moment for those on the rsocket
// that it replaces. A jump out of a call leaves it counted, and such a wait is longer.
enum { counters = 256, wait_milliseconds = 10 };
static atomic_int under_way[counters];

int hold_rsocket(int fd) {
  for (;;) {
    const int socket = rsocket_of(fd);
    if (socket < 0) return socket;
    atomic_fetch_add(&under_way[socket % counters], 1);
    if (rsocket_of(fd) == socket) return socket;
    let_go(&socket);
  }
}

void let_go(const int* socket) {
  if (*socket >= 0) atomic_fetch_sub(&under_way[*socket % counters], 1);
}

// A call that waits may take any time: it ends with its socket.
static void await_calls(int socket) {
  const int64_t due = now_milliseconds() + wait_milliseconds;
  const struct timespec a_moment = {0, 50000};
  while (atomic_load(&under_way[socket % counters]) > 0 && now_milliseconds() < due) {
    syscall(SYS_nanosleep, &a_moment, NULL);  // dup2() is no cancellation point
  }
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

// Counts the program's descriptors that refer to the same rsocket or poll set.
static int count_of(int value) {
  int count = 0;
  for (int page = 0; page < pages_max; ++page) {
    struct page* each = atomic_load(&pages[page]);
    if (each == NULL) continue;
    for (int i = 0; i < page_entries; ++i) count += atomic_load(&each->values[i]) == value;
  }
  return count;
}

// Puts a value in the place of a descriptor's in one step, since other threads may use the number
// meanwhile. Ends the rsocket or poll set that was there with its last descriptor; if calls are
// to be spared, once those that are under way have ended.
static void replace(struct page* page, int fd, int new, int spares_calls) {
  atomic_int* place = &page->values[fd % page_entries];
  if (atomic_load(place) == 0 && new == 0) return;
  discard_watches(take_watches(fd));
  const unsigned long inode = new > 0 ? inode_of(fd) : 0;
  sigset_t before;
  lock(&table_mutex, &before);
  const int value = atomic_exchange(place, new);
  atomic_store(&page->inodes[fd % page_entries], inode);
  const int is_ours = value > 0 || value > parents_epoll;
  const int is_last = value != 0 && is_ours && count_of(value) == 0;
  unlock(&table_mutex, &before);
  if (!is_last) return;
  if (value > 0 && spares_calls && !inside) await_calls(value - 1);
  end_value(value);
}

void leave(int fd) {
  struct page* page = page_of(fd, 0);
  if (page != NULL) replace(page, fd, 0, 0);
}

// Makes a descriptor refer to what the value names. A number that is still in the table was closed
// by a call that is not ours, or dup2() replaces it. Returns false if there is no memory.
int stand_for(int fd, int value) {
  struct page* page = page_of(fd, value != 0);
  if (page != NULL) replace(page, fd, value, 1);
  return page != NULL;
}

int stand_for_poll_set(int fd, int set) {
  return make_place(set) && begin_endings() && stand_for(fd, -(set + 1));
}

// Makes a copy of a descriptor refer to the same.
int share(int fd, int value) {
  if (fd >= 0 && value != 0) stand_for(fd, value);
  return fd;
}

// Around a fork, no other thread holds a lock that the child needs.
static sigset_t mask_before_fork;
static void before_fork(void) {
  sigset_t before;
  lock(&table_mutex, &before);
  mask_before_fork = before;
  lock_watches();
  lock_memories();
}
static void after_fork(void) {
  const sigset_t before = mask_before_fork;
  unlock_memories();
  unlock_watches();
  unlock(&table_mutex, &before);
}
static void after_fork_in_child(void) {
  inside = 0;
  owner = getpid();
  if (parents_mark != NULL) *parents_mark = 1;
  for (int i = 0; i < counters; ++i) atomic_store(&under_way[i], 0);
  forget_all_watches();
  for (int page = 0; page < pages_max; ++page) {
    struct page* each = atomic_load(&pages[page]);
    if (each == NULL) continue;
    memset(each->endings, 0, sizeof each->endings);
    for (int i = 0; i < page_entries; ++i) {
      const int value = atomic_load(&each->values[i]);
      if (value > 0) atomic_store(&each->values[i], parents_socket);
      if (value < 0 && value != parents_socket) atomic_store(&each->values[i], parents_epoll);
    }
  }
  forget_endings();
  after_fork();
}

void begin_table(void) {
  owner = getpid();
  make_mark();
  pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

// Numbers in later pages are nobody's.
unsigned first_number_beyond(void) {
  unsigned page = pages_max;
  while (page > 0 && atomic_load(&pages[page - 1]) == NULL) --page;
  return page * page_entries;
}
