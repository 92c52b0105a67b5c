// The calls that move data.

#define _GNU_SOURCE

#include <errno.h>
#include <rdma/rsocket.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "preload.h"

REAL(ssize_t, recv, (int, void*, size_t, int))
REAL(ssize_t, recvfrom, (int, void*, size_t, int, struct sockaddr*, socklen_t*))
REAL(ssize_t, recvmsg, (int, struct msghdr*, int))
REAL(ssize_t, read, (int, void*, size_t))
REAL(ssize_t, readv, (int, const struct iovec*, int))
REAL(ssize_t, send, (int, const void*, size_t, int))
REAL(ssize_t, sendto, (int, const void*, size_t, int, const struct sockaddr*, socklen_t))
REAL(ssize_t, sendmsg, (int, const struct msghdr*, int))
REAL(ssize_t, write, (int, const void*, size_t))
REAL(ssize_t, writev, (int, const struct iovec*, int))
REAL(int, recvmmsg, (int, struct mmsghdr*, unsigned, int, struct timespec*))
REAL(int, sendmmsg, (int, struct mmsghdr*, unsigned, int))
REAL(ssize_t, sendfile, (int, int, off_t*, size_t))

EXPORT ssize_t recv(int fd, void* data, size_t bytes, int flags) {
  HELD const int socket = hold_rsocket(fd);
  if (socket < 0) return PASS(socket, find_recv()(fd, data, bytes, flags));
  return INSIDE(ssize_t, rrecv(socket, data, bytes, flags));
}

EXPORT ssize_t recvfrom(int fd, void* data, size_t bytes, int flags, struct sockaddr* from,
                        socklen_t* from_bytes) {
  HELD const int socket = hold_rsocket(fd);
  if (socket < 0) return PASS(socket, find_recvfrom()(fd, data, bytes, flags, from, from_bytes));
  return INSIDE(ssize_t, rrecvfrom(socket, data, bytes, flags, from, from_bytes));
}

EXPORT ssize_t recvmsg(int fd, struct msghdr* message, int flags) {
  HELD const int socket = hold_rsocket(fd);
  if (socket < 0) return PASS(socket, find_recvmsg()(fd, message, flags));
  return INSIDE(ssize_t, rrecvmsg(socket, message, flags));
}

EXPORT ssize_t read(int fd, void* data, size_t bytes) {
  HELD const int socket = hold_rsocket(fd);
  if (socket < 0) return PASS(socket, find_read()(fd, data, bytes));
  return INSIDE(ssize_t, rread(socket, data, bytes));
}

EXPORT ssize_t readv(int fd, const struct iovec* vectors, int count) {
  HELD const int socket = hold_rsocket(fd);
  if (socket < 0) return PASS(socket, find_readv()(fd, vectors, count));
  return INSIDE(ssize_t, rreadv(socket, vectors, count));
}

// Like TCP, raises SIGPIPE for a program that has shut the socket for sending.
static ssize_t tell_pipe(int socket, ssize_t result, int flags) {
  if (result >= 0 || errno != EPIPE || (flags & MSG_NOSIGNAL) != 0) return result;
  int type = 0;
  socklen_t bytes = sizeof type;
  const int error = INSIDE(int, rgetsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &bytes));
  if (error == 0 && type == SOCK_STREAM) raise(SIGPIPE);
  errno = EPIPE;
  return result;
}

EXPORT ssize_t send(int fd, const void* data, size_t bytes, int flags) {
  HELD const int socket = hold_rsocket(fd);
  if (socket < 0) return PASS(socket, find_send()(fd, data, bytes, flags));
  return tell_pipe(socket, INSIDE(ssize_t, rsend(socket, data, bytes, flags)), flags);
}

EXPORT ssize_t sendto(int fd, const void* data, size_t bytes, int flags, const struct sockaddr* to,
                      socklen_t to_bytes) {
  HELD const int socket = hold_rsocket(fd);
  if (socket < 0) return PASS(socket, find_sendto()(fd, data, bytes, flags, to, to_bytes));
  const ssize_t sent = INSIDE(ssize_t, rsendto(socket, data, bytes, flags, to, to_bytes));
  return tell_pipe(socket, sent, flags);
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr* message, int flags) {
  HELD const int socket = hold_rsocket(fd);
  if (socket < 0) return PASS(socket, find_sendmsg()(fd, message, flags));
  return tell_pipe(socket, INSIDE(ssize_t, rsendmsg(socket, message, flags)), flags);
}

EXPORT ssize_t write(int fd, const void* data, size_t bytes) {
  HELD const int socket = hold_rsocket(fd);
  if (socket < 0) return PASS(socket, find_write()(fd, data, bytes));
  return tell_pipe(socket, INSIDE(ssize_t, rwrite(socket, data, bytes)), 0);
}

EXPORT ssize_t writev(int fd, const struct iovec* vectors, int count) {
  HELD const int socket = hold_rsocket(fd);
  if (socket < 0) return PASS(socket, find_writev()(fd, vectors, count));
  return tell_pipe(socket, INSIDE(ssize_t, rwritev(socket, vectors, count)), 0);
}

// Like the kernel, refuses what has no position: bytes that were taken from a pipe and not sent
// could not be given back.
static int check_file(int file, int has_offset) {
  struct stat found;
  if (fstat(file, &found) != 0) return -1;
  if (S_ISFIFO(found.st_mode) && has_offset) return refuse(ESPIPE);
  return S_ISREG(found.st_mode) || S_ISBLK(found.st_mode) ? 0 : refuse(EINVAL);
}

// The position moves only past what was sent.
EXPORT ssize_t sendfile(int to, int from, off_t* offset, size_t count) {
  HELD const int socket = hold_rsocket(to);
  if (socket < 0) return PASS(socket, find_sendfile()(to, from, offset, count));
  if (check_file(from, offset != NULL) != 0) return -1;
  off_t at = offset != NULL ? *offset : lseek(from, 0, SEEK_CUR);
  char buffer[1 << 14];
  ssize_t done = 0;
  ssize_t last = 1;
  while (last > 0 && (size_t)done < count) {
    const size_t left = count - (size_t)done;
    last = pread(from, buffer, left < sizeof buffer ? left : sizeof buffer, at);
    if (last <= 0) break;
    const ssize_t sent =
        tell_pipe(socket, INSIDE(ssize_t, rsend(socket, buffer, (size_t)last, 0)), 0);
    if (sent > 0) done += sent, at += sent;
    last = sent < last ? -1 : sent;
  }
  const int error = errno;
  if (offset != NULL) *offset = at;
  if (offset == NULL && done > 0) lseek(from, at, SEEK_SET);
  errno = error;
  return done > 0 || last >= 0 ? done : -1;
}

_Static_assert(sizeof(off_t) == sizeof(off64_t), "sendfile64 has another offset");
EXPORT ssize_t sendfile64(int to, int from, off64_t* offset, size_t count) {
  return sendfile(to, from, offset, count);
}

// The time limit of recvmmsg(2) is looked at between messages.
EXPORT int recvmmsg(int fd, struct mmsghdr* messages, unsigned count, int flags,
                    struct timespec* limit) {
  HELD const int socket = hold_rsocket(fd);
  if (socket < 0) return PASS(socket, find_recvmmsg()(fd, messages, count, flags, limit));
  const int64_t due = limit != NULL ? now_milliseconds() + milliseconds_of(limit) : INT64_MAX;
  unsigned done = 0;
  for (; done < count && (done == 0 || now_milliseconds() < due); ++done) {
    const int waits_for_one = done > 0 && (flags & MSG_WAITFORONE) != 0;
    const int each = (flags & ~MSG_WAITFORONE) | (waits_for_one ? MSG_DONTWAIT : 0);
    const ssize_t bytes = INSIDE(ssize_t, rrecvmsg(socket, &messages[done].msg_hdr, each));
    if (bytes < 0) return done > 0 ? (int)done : -1;
    messages[done].msg_len = (unsigned)bytes;
  }
  return (int)done;
}

EXPORT int sendmmsg(int fd, struct mmsghdr* messages, unsigned count, int flags) {
  HELD const int socket = hold_rsocket(fd);
  if (socket < 0) return PASS(socket, find_sendmmsg()(fd, messages, count, flags));
  unsigned done = 0;
  for (; done < count; ++done) {
    const ssize_t bytes =
        tell_pipe(socket, INSIDE(ssize_t, rsendmsg(socket, &messages[done].msg_hdr, flags)), flags);
    if (bytes < 0) return done > 0 ? (int)done : -1;
    messages[done].msg_len = (unsigned)bytes;
  }
  return (int)done;
}

// --- what compilers call in place of the above, with the size of the buffer (_FORTIFY_SOURCE) ---

_Noreturn void __chk_fail(void);  // of the C library

EXPORT ssize_t __read_chk(int fd, void* data, size_t bytes, size_t size) {
  return read(fd, data, bytes <= size ? bytes : (__chk_fail(), 0));
}

EXPORT ssize_t __recv_chk(int fd, void* data, size_t bytes, size_t size, int flags) {
  return recv(fd, data, bytes <= size ? bytes : (__chk_fail(), 0), flags);
}

EXPORT ssize_t __recvfrom_chk(int fd, void* data, size_t bytes, size_t size, int flags,
                              struct sockaddr* from, socklen_t* from_bytes) {
  return recvfrom(fd, data, bytes <= size ? bytes : (__chk_fail(), 0), flags, from, from_bytes);
}
