#pragma once

// What the calls of librspreload share.

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

struct watch;

#define EXPORT __attribute__((visibility("default")))

// Defines find_NAME(), which looks up the next library's function of that name once and returns it.
#define REAL(result, name, parameters)                     \
  static result(*real_##name) parameters;                  \
  static result(*find_##name(void)) parameters {           \
    if (real_##name == NULL) {                             \
      *(void**)&real_##name = dlsym(RTLD_NEXT, #name);     \
      if (real_##name == NULL) abort(); /* no C library */ \
    }                                                      \
    return real_##name;                                    \
  }

static inline int refuse(int error) {
  errno = error;
  return -1;
}

// --- table.c ---

// Bracket a call of rsockets. They open and close descriptors themselves, and those are not looked
// up. The bracket also ends when the thread is cancelled in the call; a signal handler that jumps
// out of it calls forget_call().
int begin_call(void);  // returns what end_call() wants
void end_call(const int* before);
void forget_call(void);
int is_inside(void);

#define INSIDE(type, call)                                               \
  ({                                                                     \
    const int before_ __attribute__((cleanup(end_call))) = begin_call(); \
    const type result_ = call;                                           \
    result_;                                                             \
  })

// Returns false in a child of vfork(), whose parent's table it is, and of clone(2) alone.
int may_change(void);
void begin_table(void);

// A signal handler may close a socket while its thread holds one of these locks: until unlock(), no
// signal comes.
void lock(pthread_mutex_t* mutex, sigset_t* before);
void unlock(pthread_mutex_t* mutex, const sigset_t* before);

// Returns what the table has for a descriptor; 0 if it is not ours. value_of() returns 0 within a
// call of rsockets, too.
int entry_of(int fd);
int value_of(int fd);
// Forgets a descriptor, and ends what it refers to with the last one.
void leave(int fd);
// Makes room in the table for a descriptor. Returns false if there is no memory.
int make_place(int fd);
// Makes a descriptor refer to an rsocket, whose value is its number plus one, or a copy to what the
// original refers to, and closes what the descriptor referred to before, as leave() does.
// stand_for() returns false if there is no memory, share() its first argument.
int stand_for(int fd, int value);
int share(int fd, int value);
unsigned first_number_beyond(void);
// Returns the rsocket behind a descriptor of the program, or -1 if there is none. Within a call of
// rsockets, which a signal handler has interrupted, returns `busy`: the call may hold locks.
enum { busy = -2 };
int rsocket_of(int fd);
// The call of the C library for a descriptor without an rsocket. One whose rsocket is busy is not
// connected, and must not be reached.
#define PASS(socket, call) ((socket) == busy ? refuse(EAGAIN) : (call))
// Notes that a descriptor refers to another thing of the kernel's.
void note_descriptor(int fd);
// Does the same as rsocket_of(), and keeps dup2() a moment from closing that rsocket, until
// let_go().
int hold_rsocket(int fd);
void let_go(const int* socket);
#define HELD __attribute__((cleanup(let_go)))
// Returns the poll set behind a descriptor of epoll, or -1 if there is none.
int poll_set_of(int fd);
// Makes a descriptor of epoll refer to a poll set. Returns false if there is no memory.
int stand_for_poll_set(int fd, int set);
// Returns true for a descriptor of a forked child's parent; of a socket, it says once that the
// child cannot use it.
int is_parents_epoll(int fd);
int is_parents_socket(int fd);

// --- ending.c ---

// The end of an rsocket or a poll set, by its number.
struct ending {
  struct ending* next;
  atomic_int value;
  atomic_int asked;
  atomic_uint done;  // how often what was asked was done
};
struct ending* ending_of(int number);  // of table.c
// Starts the thread that ends them. Returns false if there is none.
int begin_endings(void);
// Hand over what a value names, to be ended, what a descriptor refers to, to be shut down, and
// watches, to be freed. A signal handler may call these anywhere. end_value() waits a moment for
// the end, except within a call of rsockets.
void end_value(int value);
void shut_later(int fd, int how);
void discard_watches(struct watch* watches);
void forget_endings(void);
// Waits a moment for all ends.
void await_endings(void);

// --- epoll.c ---

// A descriptor of epoll that watches a socket.
struct watch {
  int epoll;
  struct epoll_event event;
  struct watch* next;
};
// Takes the watches of a socket, or frees them.
struct watch* take_watches(int fd);
void free_watches(struct watch* watches);
// Around a fork, so that no other thread of the parent holds the lock in the child; and in the
// child, whose parent has the sockets.
void lock_watches(void);
void unlock_watches(void);
void forget_all_watches(void);
// Closes a poll set with its last descriptor.
void close_poll_set(int set);
// Lets the kernel's epoll watch a socket that has become an ordinary one. Frees the watches.
void watch_plain(int fd, struct watch* watches);

// --- memory.c ---

// Begins to remember what a program asks of a new rsocket. Returns false if there is no memory.
int begin_memory(int socket, int domain);
// Remember an option and an address that were set.
void remember_option(int socket, int level, int option, const void* value, socklen_t bytes);
void remember_address(int socket, const struct sockaddr* address, socklen_t bytes);
// Returns the rsocket's domain, and the address that it was bound to, which has no bytes if there
// is none. Returns -1 if more was asked of the rsocket than is remembered.
int recall_address(int socket, struct sockaddr_storage* address, socklen_t* bytes);
// Give an ordinary socket the options of an rsocket, and its address. bind_again() tries for a
// while, and returns -1 with errno if that cannot be.
void repeat_options(int socket, int fd);
int bind_again(int fd, const struct sockaddr_storage* address, socklen_t bytes, int milliseconds);
void lock_memories(void);
void unlock_memories(void);

// --- mask.c ---

// The C library's ppoll().
int real_wait(struct pollfd* fds, nfds_t count, const struct timespec* timeout,
              const sigset_t* mask);

// Makes a call that waits, with the signal mask in force during the wait alone, as in ppoll(2).
// rsockets wait by poll(), which is ours, and hands the mask to the kernel. Nothing changes the
// mask if it is null.
struct masked_wait {
  const sigset_t* mask;
  const sigset_t* outer;
  sigset_t before;
};
struct masked_wait begin_wait(const sigset_t* mask);
void end_wait(const struct masked_wait* wait);
// Returns 0, or -1 with EINTR if a signal came that the mask lets through.
int take_signals(const sigset_t* mask);
#define MASKED(mask, call)                                                                \
  ({                                                                                      \
    const struct masked_wait wait_ __attribute__((cleanup(end_wait))) = begin_wait(mask); \
    const int waited_ = call;                                                             \
    waited_ != 0 || wait_.mask == NULL ? waited_ : take_signals(wait_.mask);              \
  })
// A jump out of a wait ends it.
void forget_wait(void);
// Returns true if the thread is in such a wait, where poll_masked() waits in place of poll().
int has_mask(void);
int poll_masked(struct pollfd* fds, nfds_t count, int timeout);

static inline int64_t now_milliseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

// Rounds up, so that nobody wakes early.
static inline int milliseconds_of(const struct timespec* time) {
  const int64_t all = (int64_t)time->tv_sec * 1000 + (time->tv_nsec + 999999) / 1000000;
  return all > INT32_MAX ? INT32_MAX : (int)all;
}
