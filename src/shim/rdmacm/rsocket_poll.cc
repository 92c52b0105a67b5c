// The calls that wait for several rsockets: poll's, select's and epoll's.

#include <fcntl.h>
#include <pthread.h>
#include <sys/select.h>

#include <algorithm>
#include <span>
#include <vector>

#include "os/cancellation.h"
#include "shim/rdmacm/newer.h"
#include "shim/rdmacm/objects.h"
#include "shim/rsockets/sockets/poll.h"
#include "shim/rsockets/sockets/poll_set.h"

namespace tulle::shim::rdmacm {

namespace {

void add(int fd, short events, std::vector<pollfd>& fds) {
  if (fds.empty() || fds.back().fd != fd) fds.push_back({fd, 0, 0});
  fds.back().events = static_cast<short>(fds.back().events | events);
}

int store(const std::vector<pollfd>& fds, fd_set* readable, fd_set* writable, fd_set* exceptional) {
  for (fd_set* set : {readable, writable, exceptional}) {
    if (set != nullptr) FD_ZERO(set);
  }
  int count = 0;
  const auto put = [&count](fd_set* set, bool holds, int fd) {
    if (set == nullptr || !holds) return;
    FD_SET(fd, set);
    ++count;
  };
  for (const pollfd& each : fds) {
    put(readable, (each.events & POLLIN) != 0 && (each.revents & (POLLIN | POLLHUP | POLLERR)) != 0,
        each.fd);
    put(writable, (each.events & POLLOUT) != 0 && (each.revents & (POLLOUT | POLLERR)) != 0,
        each.fd);
    put(exceptional, (each.revents & POLLPRI) != 0, each.fd);
  }
  return count;
}

}  // namespace

extern "C" {

int rpoll(pollfd* fds, nfds_t count, int timeout_milliseconds) try {
  pthread_testcancel();
  const NoCancellation guard;
  if (fds == nullptr && count > 0) return answer(EFAULT);
  int ready = 0;
  const int error = rsockets::poll_sockets({fds, count}, timeout_milliseconds, ready);
  return error != 0 ? answer(error) : ready;
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

int rselect(int count, fd_set* readable, fd_set* writable, fd_set* exceptional,
            timeval* timeout) try {
  pthread_testcancel();
  const NoCancellation guard;
  if (count < 0 || count > FD_SETSIZE) return answer(EINVAL);
  std::vector<pollfd> fds;
  for (int fd = 0; fd < count; ++fd) {
    if (readable != nullptr && FD_ISSET(fd, readable)) add(fd, POLLIN, fds);
    if (writable != nullptr && FD_ISSET(fd, writable)) add(fd, POLLOUT, fds);
    if (exceptional != nullptr && FD_ISSET(fd, exceptional)) add(fd, POLLPRI, fds);
  }
  int milliseconds = -1;
  if (timeout != nullptr) {
    milliseconds = static_cast<int>(timeout->tv_sec * 1000 + (timeout->tv_usec + 999) / 1000);
  }
  int ready = 0;
  const int error = rsockets::poll_sockets(fds, milliseconds, ready);
  if (error != 0) return answer(error);
  const auto is_closed = [](const pollfd& each) { return (each.revents & POLLNVAL) != 0; };
  if (std::any_of(fds.begin(), fds.end(), is_closed)) return answer(EBADF);
  return store(fds, readable, writable, exceptional);
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

int repoll_create(int flags) try {
  const NoCancellation guard;
  if ((flags & ~(EPOLL_CLOEXEC | O_NONBLOCK)) != 0) return answer(EINVAL);
  int fd = -1;
  const int error = rsockets::create_poll_set((flags & EPOLL_CLOEXEC) != 0, fd);
  return error != 0 ? answer(error) : fd;
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

int repoll_ctl(int fd, int operation, int member, epoll_event* event) try {
  const NoCancellation guard;
  return answer(rsockets::control_poll_set(fd, operation, member, event));
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

int repoll_wait(int fd, epoll_event* events, int capacity, int timeout_milliseconds) try {
  pthread_testcancel();
  const NoCancellation guard;
  if (capacity <= 0) return answer(EINVAL);
  if (events == nullptr) return answer(EFAULT);
  int count = 0;
  const std::span<epoll_event> out(events, static_cast<std::size_t>(capacity));
  const int error = rsockets::wait_poll_set(fd, out, timeout_milliseconds, count);
  return error != 0 ? answer(error) : count;
} catch (const std::bad_alloc&) {
  return answer(ENOMEM);
}

}  // extern "C"

}  // namespace tulle::shim::rdmacm
