// The calls of epoll. A descriptor of epoll is paired with a poll set
// (shim/rsockets/sockets/poll_set.h). The set's members are the rsockets that the program adds, and
// the descriptor itself, which becomes readable as the kernel has an event of an ordinary one.

#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "preload.h"

REAL(int, epoll_create1, (int))
REAL(int, epoll_ctl, (int, int, int, struct epoll_event*))
REAL(int, epoll_wait, (int, struct epoll_event*, int, int))
REAL(int, epoll_pwait, (int, struct epoll_event*, int, int, const sigset_t*))
REAL(int, epoll_pwait2, (int, struct epoll_event*, int, const struct timespec*, const sigset_t*))

// Of librdmacm. Headers before rdma-core 65 do not have them.
int repoll_create(int flags);
int repoll_ctl(int set, int operation, int fd, struct epoll_event* event);
int repoll_wait(int set, struct epoll_event* events, int count, int timeout_milliseconds);

// --- the watches of each socket, for when it becomes an ordinary one ---

enum { buckets = 4096 };
struct watched {
  int fd;
  struct watch* watches;
  struct watched* next;
};
static struct watched* watched[buckets];
static pthread_mutex_t watches_mutex = PTHREAD_MUTEX_INITIALIZER;

// The caller holds the mutex. Returns the place of a socket's entry in its bucket.
static struct watched** watched_at(int fd) {
  struct watched** place = &watched[(unsigned)fd % buckets];
  while (*place != NULL && (*place)->fd != fd) place = &(*place)->next;
  return place;
}

// The entry stays for the number's next socket: a signal handler may call this, and must not free.
struct watch* take_watches(int fd) {
  sigset_t before;
  lock(&watches_mutex, &before);
  struct watched* entry = *watched_at(fd);
  struct watch* watches = entry != NULL ? entry->watches : NULL;
  if (entry != NULL) entry->watches = NULL;
  unlock(&watches_mutex, &before);
  return watches;
}

void free_watches(struct watch* watches) {
  while (watches != NULL) {
    struct watch* next = watches->next;
    free(watches);
    watches = next;
  }
}

void watch_plain(int fd, struct watch* watches) {
  while (watches != NULL) {
    struct watch* next = watches->next;
    find_epoll_ctl()(watches->epoll, EPOLL_CTL_ADD, fd, &watches->event);
    free(watches);
    watches = next;
  }
}

// The caller holds the mutex.
static void unwatch(int epoll, int fd) {
  struct watched* entry = *watched_at(fd);
  if (entry == NULL) return;
  for (struct watch** place = &entry->watches; *place != NULL; place = &(*place)->next) {
    if ((*place)->epoll != epoll) continue;
    struct watch* gone = *place;
    *place = gone->next;
    free(gone);
    return;
  }
}

// The caller holds the mutex. Returns false if there is no memory.
static int watch(int epoll, int fd, const struct epoll_event* event) {
  struct watched** place = watched_at(fd);
  if (*place == NULL) *place = calloc(1, sizeof **place);
  struct watch* new = *place != NULL ? malloc(sizeof *new) : NULL;
  if (new == NULL) return 0;
  (*place)->fd = fd;
  *new = (struct watch){epoll, *event, (*place)->watches};
  (*place)->watches = new;
  return 1;
}

// Keeps what a call that succeeded has changed. Returns 0 or an errno.
static int note(int epoll, int operation, int fd, const struct epoll_event* event) {
  sigset_t before;
  lock(&watches_mutex, &before);
  if (operation != EPOLL_CTL_ADD) unwatch(epoll, fd);
  const int is_kept = operation == EPOLL_CTL_DEL || watch(epoll, fd, event);
  unlock(&watches_mutex, &before);
  return is_kept ? 0 : ENOMEM;
}

void lock_watches(void) { pthread_mutex_lock(&watches_mutex); }
void unlock_watches(void) { pthread_mutex_unlock(&watches_mutex); }
void forget_all_watches(void) { memset(watched, 0, sizeof watched); }

// --- the calls ---

// The data of the descriptor's own event in its set.
static char own;

// A poll set's own copy of the descriptor of epoll, which the program may close while it has
// others.
struct copy {
  int set;
  int epoll;
  struct copy* next;
};
static struct copy* copies;

void close_poll_set(int set) {
  sigset_t before;
  lock(&watches_mutex, &before);
  struct copy** place = &copies;
  while (*place != NULL && (*place)->set != set) place = &(*place)->next;
  struct copy* gone = *place;
  if (gone != NULL) *place = gone->next;
  unlock(&watches_mutex, &before);
  INSIDE(int, rclose(set));
  if (gone != NULL) close(gone->epoll);
  free(gone);
}

// Makes the poll set of a descriptor of epoll. Returns it, or -1 with errno.
static int make_set(int epoll) {
  const int set = INSIDE(int, repoll_create(EPOLL_CLOEXEC));
  struct copy* copy = set >= 0 ? malloc(sizeof *copy) : NULL;
  if (copy == NULL) {
    if (set >= 0) INSIDE(int, rclose(set));
    return -1;
  }
  *copy = (struct copy){set, (int)syscall(SYS_fcntl, epoll, F_DUPFD_CLOEXEC, 0), NULL};
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = &own};
  const int is_made =
      copy->epoll >= 0 && INSIDE(int, repoll_ctl(set, EPOLL_CTL_ADD, copy->epoll, &event)) == 0;
  const int error = errno;
  sigset_t before;
  lock(&watches_mutex, &before);
  copy->next = copies;
  copies = copy;
  unlock(&watches_mutex, &before);
  if (is_made && stand_for_poll_set(epoll, set)) return set;
  close_poll_set(set);
  errno = is_made ? ENOMEM : error;
  return -1;
}

EXPORT int epoll_create1(int flags) {
  const int epoll = find_epoll_create1()(flags);
  if (epoll < 0 || is_inside() || !may_change() || make_set(epoll) >= 0) return epoll;
  const int error = errno;
  close(epoll);
  errno = error;
  return -1;
}

EXPORT int epoll_create(int size) {
  if (size > 0) return epoll_create1(0);
  errno = EINVAL;
  return -1;
}

EXPORT int epoll_ctl(int epoll, int operation, int fd, struct epoll_event* event) {
  const int socket = rsocket_of(fd);
  if (socket == busy) return refuse(EAGAIN);
  if (operation == EPOLL_CTL_ADD) is_parents_socket(fd);  // it says so
  int set = poll_set_of(epoll);
  if (set < 0 && socket >= 0 && is_parents_epoll(epoll)) set = make_set(epoll);
  if (set < 0 || socket < 0) return find_epoll_ctl()(epoll, operation, fd, event);
  const int result = INSIDE(int, repoll_ctl(set, operation, socket, event));
  if (result != 0) return result;
  const int error = note(epoll, operation, fd, event);
  if (error == 0) return 0;
  if (operation == EPOLL_CTL_ADD) INSIDE(int, repoll_ctl(set, EPOLL_CTL_DEL, socket, NULL));
  errno = error;
  return -1;
}

// Puts the kernel's events in place of the descriptor's own. Returns the number of events.
static int replace_own(int epoll, struct epoll_event* events, int count, int capacity) {
  for (int i = 0; i < count; ++i) {
    if (events[i].data.ptr != &own) continue;
    events[i] = events[--count];
    const int more = find_epoll_wait()(epoll, events + count, capacity - count, 0);
    return more > 0 ? count + more : count;
  }
  return count;
}

EXPORT int epoll_wait(int epoll, struct epoll_event* events, int capacity, int timeout) {
  const int set = poll_set_of(epoll);
  if (set < 0) return find_epoll_wait()(epoll, events, capacity, timeout);
  const int64_t due = timeout >= 0 ? now_milliseconds() + timeout : 0;
  for (;;) {
    const int count = INSIDE(int, repoll_wait(set, events, capacity, timeout));
    if (count <= 0) return count;
    const int found = replace_own(epoll, events, count, capacity);
    if (found > 0) return found;
    // Another thread took the kernel's events.
    if (timeout < 0) continue;
    const int64_t left = due - now_milliseconds();
    if (left <= 0) return 0;
    timeout = (int)left;
  }
}

EXPORT int epoll_pwait(int epoll, struct epoll_event* events, int capacity, int timeout,
                       const sigset_t* mask) {
  if (poll_set_of(epoll) < 0) return find_epoll_pwait()(epoll, events, capacity, timeout, mask);
  return MASKED(mask, epoll_wait(epoll, events, capacity, timeout));
}

EXPORT int epoll_pwait2(int epoll, struct epoll_event* events, int capacity,
                        const struct timespec* timeout, const sigset_t* mask) {
  if (poll_set_of(epoll) < 0) return find_epoll_pwait2()(epoll, events, capacity, timeout, mask);
  return epoll_pwait(epoll, events, capacity, timeout != NULL ? milliseconds_of(timeout) : -1,
                     mask);
}
