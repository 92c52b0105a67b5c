// Waiting for several sockets at once.

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <memory_resource>
#include <mutex>
#include <vector>

#include "os/cancellation.h"
#include "shim/rsockets/sockets/poll.h"
#include "shim/rsockets/sockets/socket.h"

namespace tulle::rsockets {
namespace {

// Several threads may wait for one socket, but an event of it wakes only the one that takes it. The
// gate wakes the others, so that they look for themselves.
class Gate {
 public:
  static Gate& instance() { return of_process<Gate>(); }
  // A thread that polls. It may be cancelled while it waits.
  class Poller {
   public:
    explicit Poller(Gate& gate) : gate_(gate) {
      std::call_once(gate_.created_, [this] {
        gate_.fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
      });
      gate_.pollers_.fetch_add(1);
    }
    ~Poller() { gate_.pollers_.fetch_sub(1); }
    Poller(const Poller&) = delete;
    Poller& operator=(const Poller&) = delete;
    int fd() const { return gate_.fd_; }

   private:
    Gate& gate_;
  };
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

using Sockets = std::pmr::vector<std::shared_ptr<Socket>>;
using Waiting = std::pmr::vector<pollfd>;

// A signal handler may poll, and must not allocate: this is enough for some dozens of descriptors.
constexpr std::size_t memory_bytes = 2048;

Sockets find_all(std::span<const pollfd> fds, std::pmr::memory_resource& memory) {
  Sockets sockets(&memory);
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

// Returns 0 or an errno.
int wait_for_any(std::span<pollfd> waiting, int milliseconds) {
  const CancellationPoint point;
  return poll(waiting.data(), waiting.size(), milliseconds) < 0 ? errno : 0;
}

// Sleeps for one round. Returns 0 or an errno.
int sleep(const Sockets& sockets, std::span<pollfd> fds, Waiting& waiting, int gate,
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
  if (const int error = wait_for_any(waiting, milliseconds); error != 0) return error;
  if (waiting.back().revents != 0) Gate::instance().take();
  for (std::size_t i = 0; i < fds.size(); ++i) {
    if (sockets[i] != nullptr && waiting[i].revents != 0) sockets[i]->drain();
  }
  count = check(sockets, fds);
  return 0;
}

}  // namespace

int poll_sockets(std::span<pollfd> fds, int timeout_milliseconds, int& count) {
  std::array<std::byte, memory_bytes> buffer;
  std::pmr::monotonic_buffer_resource memory(buffer.data(), buffer.size());
  const Sockets sockets = find_all(fds, memory);
  const Clock::time_point start = Clock::now();
  const SocketSettings& settings = default_settings();
  count = 0;
  do {
    count = check(sockets, fds);
    if (count > 0 || timeout_milliseconds == 0) return 0;
  } while (Clock::now() - start < settings.polling);

  Waiting waiting(&memory);
  waiting.reserve(fds.size() + 1);
  const Gate::Poller poller(Gate::instance());
  int error = 0;
  while (count == 0 && error == 0) {
    auto round = settings.wake_up;
    if (timeout_milliseconds > 0) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(
          start + std::chrono::milliseconds(timeout_milliseconds) - Clock::now());
      if (left.count() <= 0) break;
      round = std::min(round, left);
    }
    error = sleep(sockets, fds, waiting, poller.fd(), static_cast<int>(round.count()), count);
  }
  return error;
}

void wake_pollers() { Gate::instance().wake(); }

}  // namespace tulle::rsockets
