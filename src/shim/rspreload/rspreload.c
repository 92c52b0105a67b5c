// librspreload makes unmodified programs that use sockets use rsockets instead.
//
// A socket of such a program is an ordinary socket that is not connected, with an rsocket behind
// it. Calls on any other descriptor go to the C library, and what reaches the ordinary socket
// without a call of ours gets an error (ENOTCONN). A connection that cannot be made over RDMA is
// made over TCP or UDP: the number then becomes that of another ordinary socket. A program that
// seals what it sends (TULLE_SECURE) gets an error in place of it.
//
// epoll.c has the calls of epoll. The sockets stay with the process that made them: in a forked
// child they are not connected, and closing them does nothing to the parent's.

#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "preload.h"

// --- the C library's functions ---

REAL(int, socket, (int, int, int))
REAL(int, bind, (int, const struct sockaddr*, socklen_t))
REAL(int, listen, (int, int))
REAL(int, accept, (int, struct sockaddr*, socklen_t*))
REAL(int, accept4, (int, struct sockaddr*, socklen_t*, int))
REAL(int, connect, (int, const struct sockaddr*, socklen_t))
REAL(int, shutdown, (int, int))
REAL(int, close, (int))
REAL(int, poll, (struct pollfd*, nfds_t, int))
REAL(int, select, (int, fd_set*, fd_set*, fd_set*, struct timeval*))
REAL(int, getpeername, (int, struct sockaddr*, socklen_t*))
REAL(int, getsockname, (int, struct sockaddr*, socklen_t*))
REAL(int, getsockopt, (int, int, int, void*, socklen_t*))
REAL(int, setsockopt, (int, int, int, const void*, socklen_t))
REAL(int, fcntl, (int, int, ...))
REAL(int, ioctl, (int, unsigned long, ...))
REAL(int, fcntl64, (int, int, ...))
REAL(int, fclose, (FILE*))
REAL(int, close_range, (unsigned, unsigned, int))
REAL(void, closefrom, (int))
REAL(int, dup, (int))
REAL(int, dup2, (int, int))
REAL(int, dup3, (int, int, int))
REAL(int, __fxstat, (int, int, struct stat*))
REAL(int, __fxstat64, (int, int, struct stat64*))
REAL(int, fstat, (int, struct stat*))
REAL(int, fstat64, (int, struct stat64*))
REAL(int, pselect, (int, fd_set*, fd_set*, fd_set*, const struct timespec*, const sigset_t*))
REAL(void, _exit, (int))
REAL(void, longjmp, (jmp_buf, int))
REAL(void, _longjmp, (jmp_buf, int))
REAL(void, siglongjmp, (sigjmp_buf, int))
REAL(void, __longjmp_chk, (jmp_buf, int))

static int began_sealed;
static int asks_for_seals(void) {
  const char* key_file = getenv("TULLE_SECURE");
  return key_file != NULL && *key_file != '\0';
}

__attribute__((constructor)) static void begin(void) {
  began_sealed = asks_for_seals();
  begin_table();
  // Signal handlers call these, and nothing may be looked up there for the first time.
  find_close(), find__exit(), find_fstat(), find_shutdown(), find_longjmp(), find__longjmp(),
      find_siglongjmp(), find___longjmp_chk();
}

// Returns true if nothing may leave this host in clear. A program may clear its environment later.
static int is_sealed(void) { return began_sealed || asks_for_seals(); }

// Returns a descriptor that the program may use for an rsocket. `flags` are those of socket(2):
// SOCK_CLOEXEC counts.
//
// Calls that are not ours reach the descriptor itself: of a signal handler, of a program that
// inherits it, system calls. Where nothing may leave in clear, it is a socket without addresses of
// IP.
static int make_number(int flags) {
  const int family = is_sealed() ? AF_UNIX : AF_INET;
  const int fd = find_socket()(family, SOCK_STREAM | (flags & SOCK_CLOEXEC), 0);
  if (fd < 0 || (make_place(fd) && begin_endings())) return fd;
  find_close()(fd);
  return refuse(ENOMEM);
}

// Takes the rsocket over: if there is no descriptor for it, it is closed.
static int give_number(int socket, int flags) {
  const int fd = make_place(socket) ? make_number(flags) : refuse(ENOMEM);
  if (fd >= 0) {
    stand_for(fd, socket + 1);
    return fd;
  }
  const int error = errno;
  INSIDE(int, rclose(socket));
  return refuse(error);
}

// An ordinary socket that is not connected looks ready to a program that waits for it, and a
// server's child would turn around its parent's listener without end. This one is never readable.
static void become_quiet(int fd) {
  static int ends[2] = {-1, -1};
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&mutex);
  if (ends[0] < 0) socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends);
  pthread_mutex_unlock(&mutex);
  const int is_closed_by_exec = find_fcntl()(fd, F_GETFD) & FD_CLOEXEC;
  if (ends[0] < 0) return;
  find_dup3()(ends[0], fd, is_closed_by_exec ? O_CLOEXEC : 0);
  note_descriptor(fd);
}

// --- making and ending sockets ---

EXPORT int socket(int domain, int type, int protocol) {
  const int kind = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC);
  const int is_ip = domain == AF_INET || domain == AF_INET6;
  const int is_known = kind == SOCK_STREAM || kind == SOCK_DGRAM;
  if (!is_ip || !is_known || is_inside() || !may_change()) {
    // rsockets make their own sockets of IP by the system call: here, a program asks.
    if (is_ip && is_sealed()) return refuse(EOPNOTSUPP);
    return find_socket()(domain, type, protocol);
  }
  const int made = INSIDE(int, rsocket(domain, kind, protocol));
  if (made < 0 && is_sealed()) return -1;
  if (made < 0) return find_socket()(domain, type, protocol);
  if (!begin_memory(made, domain)) {
    INSIDE(int, rclose(made));
    return refuse(ENOMEM);
  }
  if ((type & SOCK_NONBLOCK) != 0) INSIDE(int, rfcntl(made, F_SETFL, O_NONBLOCK));
  return give_number(made, type);
}

EXPORT int bind(int fd, const struct sockaddr* address, socklen_t bytes) {
  const int socket = rsocket_of(fd);
  if (socket < 0) return PASS(socket, find_bind()(fd, address, bytes));
  const int result = INSIDE(int, rbind(socket, address, bytes));
  if (result == 0) remember_address(socket, address, bytes);
  return result;
}

EXPORT int listen(int fd, int backlog) {
  const int socket = rsocket_of(fd);
  if (socket < 0) return PASS(socket, find_listen()(fd, backlog));
  const int result = INSIDE(int, rlisten(socket, backlog));
  if (result == 0 && may_change()) become_quiet(fd);
  return result;
}

// What the thread's accept() will return. A jump out of the call closes it.
static _Thread_local int number_of_accept = -1;

static void close_number(const int* number) {
  const int fd = *number;
  if (fd < 0) return;
  if (number_of_accept == fd) number_of_accept = -1;
  const int error = errno;
  find_close()(fd);
  errno = error;
}

// A connection that was taken and finds no descriptor is lost. The descriptor comes first, as it
// does in the kernel. A child of another thread has it until it starts a program.
EXPORT int accept4(int fd, struct sockaddr* address, socklen_t* bytes, int flags) {
  const int socket = rsocket_of(fd);
  if (is_parents_socket(fd)) return refuse(EINVAL);
  if (socket < 0) return PASS(socket, find_accept4()(fd, address, bytes, flags));
  int number __attribute__((cleanup(close_number))) = make_number(SOCK_CLOEXEC);
  if (number < 0) return -1;
  number_of_accept = number;
  const int accepted = INSIDE(int, raccept(socket, address, bytes));
  if (accepted < 0) return accepted;
  if ((flags & SOCK_NONBLOCK) != 0) INSIDE(int, rfcntl(accepted, F_SETFL, O_NONBLOCK));
  const int result = number;
  number = -1;
  // A signal handler has jumped about within itself.
  if (number_of_accept != result) return give_number(accepted, flags);
  number_of_accept = -1;
  if (!make_place(accepted)) return give_number(accepted, flags);
  stand_for(result, accepted + 1);
  if ((flags & SOCK_CLOEXEC) == 0) find_fcntl()(result, F_SETFD, 0);
  return result;
}

EXPORT int accept(int fd, struct sockaddr* address, socklen_t* bytes) {
  if (value_of(fd) == 0 && rsocket_of(fd) != busy) return find_accept()(fd, address, bytes);
  return accept4(fd, address, bytes, 0);
}

static int close_failed(int fd) {
  const int error = errno;
  find_close()(fd);
  return refuse(error);
}

// Replaces the rsocket behind the descriptor by an ordinary socket of the same type, with the same
// address, options and O_NONBLOCK. Ports of streams over RDMA are not the kernel's. A datagram's
// is, and is free only after the rsocket's end.
static int become_plain(int fd, int socket) {
  struct sockaddr_storage address;
  socklen_t address_bytes = 0;
  int type = 0;
  socklen_t bytes = sizeof type;
  const int domain = recall_address(socket, &address, &address_bytes);
  if (domain < 0) return refuse(ENOBUFS);
  if (INSIDE(int, rgetsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &bytes)) != 0) return -1;
  const int flags = INSIDE(int, rfcntl(socket, F_GETFL));
  const int is_closed_by_exec = find_fcntl()(fd, F_GETFD) & FD_CLOEXEC;
  const int plain = find_socket()(domain, type | (flags & O_NONBLOCK), 0);
  if (plain < 0) return -1;
  repeat_options(socket, plain);
  const int is_stream = type == SOCK_STREAM;
  if (is_stream && bind_again(plain, &address, address_bytes, 0) != 0) return close_failed(plain);
  struct watch* watches = take_watches(fd);
  leave(fd);
  const int bound = is_stream ? 0 : bind_again(plain, &address, address_bytes, 1000);
  const int error = errno;
  const int result = find_dup2()(plain, fd);
  find_close()(plain);
  if (result >= 0 && is_closed_by_exec) find_fcntl()(fd, F_SETFD, FD_CLOEXEC);
  watch_plain(fd, watches);
  return bound != 0 ? refuse(error) : result;
}

EXPORT int connect(int fd, const struct sockaddr* address, socklen_t bytes) {
  const int socket = rsocket_of(fd);
  if (is_parents_socket(fd)) return refuse(ENOTSUP);
  if (socket < 0) return PASS(socket, find_connect()(fd, address, bytes));
  const int result = INSIDE(int, rconnect(socket, address, bytes));
  const int error = errno;
  if (result == 0 || error == EINPROGRESS || error == EALREADY || error == EISCONN ||
      error == EINTR || address == NULL || address->sa_family == AF_UNSPEC || is_sealed()) {
    errno = error;
    return result;
  }
  if (become_plain(fd, socket) < 0) return -1;
  return find_connect()(fd, address, bytes);
}

EXPORT int shutdown(int fd, int how) {
  const int socket = rsocket_of(fd);
  if (socket == busy) shut_later(fd, how);
  if (socket < 0) return socket == busy ? 0 : find_shutdown()(fd, how);
  return INSIDE(int, rshutdown(socket, how));
}

// A signal handler may close a socket within a call of rsockets: these look at the table always.

EXPORT int close(int fd) {
  if (entry_of(fd) != 0 && may_change()) leave(fd);
  return find_close()(fd);
}

EXPORT int fclose(FILE* file) {
  const int fd = fileno(file);
  if (entry_of(fd) != 0 && may_change()) leave(fd);
  return find_fclose()(file);
}

static void leave_range(unsigned first, unsigned last) {
  const unsigned end = first_number_beyond();
  for (unsigned fd = first; fd < end && fd <= last && may_change(); ++fd) {
    if (entry_of((int)fd) != 0) leave((int)fd);
  }
}

EXPORT int close_range(unsigned first, unsigned last, int flags) {
  if ((flags & CLOSE_RANGE_CLOEXEC) == 0) leave_range(first, last);
  return find_close_range()(first, last, flags);
}

EXPORT void closefrom(int first) {
  leave_range(first > 0 ? (unsigned)first : 0, UINT_MAX);
  find_closefrom()(first);
}

EXPORT int dup(int fd) {
  const int value = may_change() ? entry_of(fd) : 0;
  return share(find_dup()(fd), value);
}

EXPORT int dup2(int from, int to) {
  if (!may_change()) return find_dup2()(from, to);
  const int value = entry_of(from);
  const int result = find_dup2()(from, to);
  if (result < 0 || from == to) return result;
  stand_for(to, value);
  return result;
}

EXPORT int dup3(int from, int to, int flags) {
  if (!may_change()) return find_dup3()(from, to, flags);
  const int value = entry_of(from);
  const int result = find_dup3()(from, to, flags);
  if (result < 0) return result;
  stand_for(to, value);
  return result;
}

EXPORT _Noreturn void _exit(int status) {
  if (may_change()) await_endings();
  find__exit()(status);
  __builtin_unreachable();
}

EXPORT _Noreturn void _Exit(int status) { _exit(status); }

// --- jumps out of a call, which a signal handler may make ---

static void leave_call(void) {
  forget_call();
  close_number(&number_of_accept);
}

EXPORT _Noreturn void longjmp(jmp_buf to, int value) {
  leave_call();
  find_longjmp()(to, value);
  __builtin_unreachable();
}

EXPORT _Noreturn void _longjmp(jmp_buf to, int value) {
  leave_call();
  find__longjmp()(to, value);
  __builtin_unreachable();
}

EXPORT _Noreturn void siglongjmp(sigjmp_buf to, int value) {
  leave_call();
  find_siglongjmp()(to, value);
  __builtin_unreachable();
}

EXPORT _Noreturn void __longjmp_chk(jmp_buf to, int value) {
  leave_call();
  find___longjmp_chk()(to, value);
  __builtin_unreachable();
}

// --- waiting ---

static int has_rsocket(const struct pollfd* fds, nfds_t count) {
  for (nfds_t i = 0; fds != NULL && i < count; ++i) {
    if (rsocket_of(fds[i].fd) != -1) return 1;
  }
  return 0;
}

static void translate(const struct pollfd* fds, nfds_t count, struct pollfd* translated) {
  for (nfds_t i = 0; i < count; ++i) {
    const int socket = rsocket_of(fds[i].fd);
    translated[i] = fds[i];
    if (socket >= 0) translated[i].fd = socket;
  }
}

// Returns true if dup2() has put another rsocket in the place of one.
static int is_replaced(const struct pollfd* fds, nfds_t count, const struct pollfd* translated) {
  for (nfds_t i = 0; i < count; ++i) {
    const int socket = rsocket_of(fds[i].fd);
    if (socket >= 0 && translated[i].fd != socket) return 1;
  }
  return 0;
}

EXPORT int poll(struct pollfd* fds, nfds_t count, int timeout) {
  if (is_inside() && has_mask() && timeout != 0) return poll_masked(fds, count, timeout);
  if (!has_rsocket(fds, count)) return find_poll()(fds, count, timeout);
  if (is_inside()) return refuse(EAGAIN);
  // A signal handler may poll, and must not allocate.
  struct pollfd few[64];
  const int are_few = count <= sizeof few / sizeof *few;
  struct pollfd* translated = are_few ? few : malloc(count * sizeof *translated);
  if (translated == NULL) return refuse(ENOMEM);
  int result;
  do {
    translate(fds, count, translated);
    result = INSIDE(int, rpoll(translated, count, timeout));
  } while (result > 0 && is_replaced(fds, count, translated));
  for (nfds_t i = 0; i < count; ++i) fds[i].revents = translated[i].revents;
  const int error = errno;
  if (!are_few) free(translated);
  errno = error;
  return result;
}

// A select() is a poll() of the descriptors in its sets.
static int poll_sets(int count, fd_set* sets[3], int timeout) {
  static const short events[3] = {POLLIN, POLLOUT, POLLPRI};
  static const short holds[3] = {POLLIN | POLLHUP | POLLERR, POLLOUT | POLLERR, POLLPRI};
  struct pollfd fds[FD_SETSIZE];
  nfds_t used = 0;
  for (int fd = 0; fd < count; ++fd) {
    struct pollfd each = {fd, 0, 0};
    for (int i = 0; i < 3; ++i) {
      if (sets[i] != NULL && FD_ISSET(fd, sets[i])) each.events |= events[i];
    }
    if (each.events != 0) fds[used++] = each;
  }
  const int result = poll(fds, used, timeout);
  if (result < 0) return result;
  int found = 0;
  for (int i = 0; i < 3; ++i) {
    if (sets[i] != NULL) FD_ZERO(sets[i]);
  }
  for (nfds_t at = 0; at < used; ++at) {
    for (int i = 0; i < 3; ++i) {
      if ((fds[at].events & events[i]) == 0 || (fds[at].revents & holds[i]) == 0) continue;
      FD_SET(fds[at].fd, sets[i]);
      ++found;
    }
  }
  return found;
}

static int sets_have_rsocket(int count, fd_set* sets[3]) {
  for (int fd = 0; fd < count && count <= FD_SETSIZE; ++fd) {
    for (int i = 0; i < 3; ++i) {
      if (sets[i] != NULL && FD_ISSET(fd, sets[i]) && rsocket_of(fd) != -1) return 1;
    }
  }
  return 0;
}

EXPORT int select(int count, fd_set* readable, fd_set* writable, fd_set* exceptional,
                  struct timeval* timeout) {
  fd_set* sets[3] = {readable, writable, exceptional};
  if (!sets_have_rsocket(count, sets)) {
    return find_select()(count, readable, writable, exceptional, timeout);
  }
  int milliseconds = -1;
  if (timeout != NULL) {
    const struct timespec time = {timeout->tv_sec, timeout->tv_usec * 1000};
    milliseconds = milliseconds_of(&time);
  }
  return poll_sets(count, sets, milliseconds);
}

EXPORT int ppoll(struct pollfd* fds, nfds_t count, const struct timespec* timeout,
                 const sigset_t* mask) {
  if (!has_rsocket(fds, count)) return real_wait(fds, count, timeout, mask);
  return MASKED(mask, poll(fds, count, timeout != NULL ? milliseconds_of(timeout) : -1));
}

EXPORT int pselect(int count, fd_set* readable, fd_set* writable, fd_set* exceptional,
                   const struct timespec* timeout, const sigset_t* mask) {
  fd_set* sets[3] = {readable, writable, exceptional};
  if (!sets_have_rsocket(count, sets)) {
    return find_pselect()(count, readable, writable, exceptional, timeout, mask);
  }
  return MASKED(mask, poll_sets(count, sets, timeout != NULL ? milliseconds_of(timeout) : -1));
}

// --- what compilers call in place of the above, with the size of the buffer (_FORTIFY_SOURCE) ---

_Noreturn void __chk_fail(void);  // of the C library

EXPORT int __poll_chk(struct pollfd* fds, nfds_t count, int timeout, size_t size) {
  return poll(fds, size / sizeof *fds >= count ? count : (__chk_fail(), 0), timeout);
}

EXPORT int __ppoll_chk(struct pollfd* fds, nfds_t count, const struct timespec* timeout,
                       const sigset_t* mask, size_t size) {
  return ppoll(fds, size / sizeof *fds >= count ? count : (__chk_fail(), 0), timeout, mask);
}

// --- names and options ---

// A socket's descriptor looks like a socket.
EXPORT int fstat(int fd, struct stat* out) {
  const int result = find_fstat()(fd, out);
  if (result == 0 && value_of(fd) > 0) out->st_mode = S_IFSOCK | 0777;
  return result;
}

EXPORT int fstat64(int fd, struct stat64* out) {
  const int result = find_fstat64()(fd, out);
  if (result == 0 && value_of(fd) > 0) out->st_mode = S_IFSOCK | 0777;
  return result;
}

// Programs that were linked before glibc 2.33 call these in place of fstat.
EXPORT int __fxstat(int version, int fd, struct stat* out) {
  const int result = find___fxstat()(version, fd, out);
  if (result == 0 && value_of(fd) > 0) out->st_mode = S_IFSOCK | 0777;
  return result;
}

EXPORT int __fxstat64(int version, int fd, struct stat64* out) {
  const int result = find___fxstat64()(version, fd, out);
  if (result == 0 && value_of(fd) > 0) out->st_mode = S_IFSOCK | 0777;
  return result;
}

EXPORT int getpeername(int fd, struct sockaddr* address, socklen_t* bytes) {
  const int socket = rsocket_of(fd);
  if (socket < 0) return PASS(socket, find_getpeername()(fd, address, bytes));
  return INSIDE(int, rgetpeername(socket, address, bytes));
}

EXPORT int getsockname(int fd, struct sockaddr* address, socklen_t* bytes) {
  const int socket = rsocket_of(fd);
  if (socket < 0) return PASS(socket, find_getsockname()(fd, address, bytes));
  return INSIDE(int, rgetsockname(socket, address, bytes));
}

// A socket without an address was made by socket().
static int tell_domain(int socket, void* value, socklen_t* bytes) {
  struct sockaddr_storage name = {0};
  socklen_t name_bytes = sizeof name;
  INSIDE(int, rgetsockname(socket, (struct sockaddr*)&name, &name_bytes));
  const int domain =
      name.ss_family != 0 ? name.ss_family : recall_address(socket, &name, &name_bytes);
  if (domain < 0) return refuse(EOPNOTSUPP);
  if (*bytes > sizeof domain) *bytes = sizeof domain;
  memcpy(value, &domain, *bytes);
  return 0;
}

EXPORT int getsockopt(int fd, int level, int option, void* value, socklen_t* bytes) {
  const int socket = rsocket_of(fd);
  if (socket < 0) return PASS(socket, find_getsockopt()(fd, level, option, value, bytes));
  if (level == SOL_SOCKET && option == SO_DOMAIN && value != NULL && bytes != NULL) {
    return tell_domain(socket, value, bytes);
  }
  return INSIDE(int, rgetsockopt(socket, level, option, value, bytes));
}

EXPORT int setsockopt(int fd, int level, int option, const void* value, socklen_t bytes) {
  const int socket = rsocket_of(fd);
  if (socket < 0) return PASS(socket, find_setsockopt()(fd, level, option, value, bytes));
  const int result = INSIDE(int, rsetsockopt(socket, level, option, value, bytes));
  if (result == 0) remember_option(socket, level, option, value, bytes);
  return result;
}

// O_NONBLOCK is the only status flag that an rsocket has. All other commands concern the descriptor
// itself and go to the C library.
static int control(int fd, int command, long argument, int (*next)(int, int, ...)) {
  const int socket = rsocket_of(fd);
  if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) {
    const int value = may_change() ? entry_of(fd) : 0;
    return share(next(fd, command, argument), value);
  }
  if (socket == -1 || (command != F_GETFL && command != F_SETFL)) {
    return next(fd, command, argument);
  }
  if (socket == busy) return refuse(EAGAIN);
  if (command == F_GETFL) return O_RDWR | INSIDE(int, rfcntl(socket, F_GETFL));
  return INSIDE(int, rfcntl(socket, F_SETFL, (int)argument & O_NONBLOCK));
}

EXPORT int fcntl(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  const long argument = va_arg(arguments, long);
  va_end(arguments);
  return control(fd, command, argument, find_fcntl());
}

EXPORT int fcntl64(int fd, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  const long argument = va_arg(arguments, long);
  va_end(arguments);
  return control(fd, command, argument, find_fcntl64());
}

// Counts the bytes that wait, or those of the first datagram.
static int count_waiting(int socket, int* count) {
  const int flags = MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT;
  int type = 0;
  socklen_t bytes = sizeof type;
  if (INSIDE(int, rgetsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &bytes)) != 0) return -1;
  const size_t room = type == SOCK_STREAM ? INT_MAX : 0;
  const ssize_t found = INSIDE(ssize_t, rrecv(socket, NULL, room, flags));
  if (found < 0 && errno != EAGAIN && errno != EWOULDBLOCK) return -1;
  *count = found > 0 ? (int)found : 0;
  return 0;
}

// Python and others make a socket non-blocking by this call. nginx and Java ask what waits.
EXPORT int ioctl(int fd, unsigned long request, ...) {
  va_list list;
  va_start(list, request);
  void* argument = va_arg(list, void*);
  va_end(list);
  const int socket = rsocket_of(fd);
  if (socket >= 0 && request == FIONREAD) return count_waiting(socket, argument);
  if (socket == busy && (request == FIONREAD || request == FIONBIO)) return refuse(EAGAIN);
  if (socket < 0 || request != FIONBIO) return find_ioctl()(fd, request, argument);
  return INSIDE(int, rfcntl(socket, F_SETFL, *(int*)argument != 0 ? O_NONBLOCK : 0));
}
