// rpoll and rselect wait on the descriptors behind rsockets, and on all other descriptors directly.

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "shim/rdmacm/rsocket.h"

namespace tulle::shim::rdmacm {
namespace {

// Several threads may wait for one socket, but an event of it wakes only the one that takes it. The
// gate wakes the others, so that they look for themselves.
class Gate {
 public:
  static Gate& instance() {
    static auto* gate = new Gate;
    return *gate;
  }
  int enter() {
    std::call_once(created_,
                   [this] { fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE); });
    pollers_.fetch_add(1);
    return fd_;
  }
  void leave() { pollers_.fetch_sub(1); }
  void wake() {
    const std::uint64_t count = pollers_.load();
    if (count == 0) return;
    [[maybe_unused]] const ssize_t written = write(fd_, &count, sizeof count);
  }
  void take() {
    std::uint64_t ignored = 0;
    [[maybe_unused]] const ssize_t taken = read(fd_, &ignored, sizeof ignored);
  }

 private:
  std::once_flag created_;
  int fd_ = -1;
  std::atomic<std::uint64_t> pollers_ = 0;
};

using Sockets = std::vector<std::shared_ptr<Socket>>;

Sockets find_all(std::span<const pollfd> fds) {
  Sockets sockets;
  sockets.reserve(fds.size());
  for (const pollfd& each : fds) sockets.push_back(find_socket(each.fd));
  return sockets;
}

int check(const Sockets& sockets, std::span<pollfd> fds) {
  int count = 0;
  for (std::size_t i = 0; i < fds.size(); ++i) {
    fds[i].revents = 0;
    if (sockets[i] != nullptr) {
      fds[i].revents = sockets[i]->ready(fds[i].events);
    } else {
      poll(&fds[i], 1, 0);
    }
    if (fds[i].revents != 0) ++count;
  }
  return count;
}

// Sleeps for one round. Returns 0 or an errno.
int sleep(const Sockets& sockets, std::span<pollfd> fds, std::vector<pollfd>& waiting, int gate,
          int milliseconds, int& count) {
  waiting.clear();
  for (std::size_t i = 0; i < fds.size(); ++i) {
    waiting.push_back(sockets[i] != nullptr ? pollfd{sockets[i]->arm(), POLLIN, 0}
                                            : pollfd{fds[i].fd, fds[i].events, 0});
  }
  waiting.push_back({gate, POLLIN, 0});
  // Events that came before a socket was armed make no descriptor readable.
  count = check(sockets, fds);
  if (count > 0) return 0;
  if (poll(waiting.data(), waiting.size(), milliseconds) < 0) return errno;
  if (waiting.back().revents != 0) Gate::instance().take();
  for (std::size_t i = 0; i < fds.size(); ++i) {
    if (sockets[i] != nullptr && waiting[i].revents != 0) sockets[i]->drain();
  }
  count = check(sockets, fds);
  return 0;
}

int poll_sockets(std::span<pollfd> fds, int timeout_milliseconds) {
  const Sockets sockets = find_all(fds);
  const Clock::time_point start = Clock::now();
  const SocketSettings& settings = default_settings();
  int count = 0;
  do {
    count = check(sockets, fds);
    if (count > 0 || timeout_milliseconds == 0) return count;
  } while (Clock::now() - start < settings.polling);

  std::vector<pollfd> waiting;
  Gate& gate = Gate::instance();
  const int gate_fd = gate.enter();
  int error = 0;
  while (count == 0 && error == 0) {
    auto round = settings.wake_up;
    if (timeout_milliseconds > 0) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(
          start + std::chrono::milliseconds(timeout_milliseconds) - Clock::now());
      if (left.count() <= 0) break;
      round = std::min(round, left);
    }
    error = sleep(sockets, fds, waiting, gate_fd, static_cast<int>(round.count()), count);
  }
  gate.leave();
  if (error == 0) return count;
  errno = error;
  return -1;
}

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

void wake_pollers() { Gate::instance().wake(); }

extern "C" {

int rpoll(pollfd* fds, nfds_t count, int timeout_milliseconds) {
  if (fds == nullptr && count > 0) return answer(EFAULT);
  return poll_sockets({fds, count}, timeout_milliseconds);
}

int rselect(int count, fd_set* readable, fd_set* writable, fd_set* exceptional, timeval* timeout) {
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
  if (poll_sockets(fds, milliseconds) < 0) return -1;
  const auto is_closed = [](const pollfd& each) { return (each.revents & POLLNVAL) != 0; };
  if (std::any_of(fds.begin(), fds.end(), is_closed)) return answer(EBADF);
  return store(fds, readable, writable, exceptional);
}

}  // extern "C"

}  // namespace tulle::shim::rdmacm
