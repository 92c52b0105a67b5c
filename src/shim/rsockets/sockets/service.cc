// The service is one thread that drives connections on while the program does something else,
// accepts connection requests, notices peers that went away, and keeps connections alive.

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <vector>

#include "shim/rsockets/sockets/socket.h"

namespace tulle::rsockets {
namespace {

constexpr int no_memory_pause_microseconds = 10'000;

class Service {
 public:
  static Service& instance() { return of_process<Service>(); }

  void watch(int fd, const std::shared_ptr<Socket>& socket) {
    const std::lock_guard guard(mutex_);
    start();
    watched_[fd] = {socket, std::nullopt};
    wake();
  }

  void set_timer(int fd, Clock::time_point due) {
    const std::lock_guard guard(mutex_);
    if (const auto found = watched_.find(fd); found != watched_.end()) {
      found->second.due = due != Clock::time_point{} ? std::optional(due) : std::nullopt;
    }
    wake();
  }

  void forget(int fd) {
    const std::lock_guard guard(mutex_);
    watched_.erase(fd);
    wake();
  }

 private:
  struct Watched {
    std::weak_ptr<Socket> socket;
    std::optional<Clock::time_point> due;
  };

  void start() {
    if (is_running_) return;
    if (wake_fd_ < 0) wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    start_thread([this] { run(); });
    is_running_ = true;
  }

  void wake() {
    const std::uint64_t one = 1;
    if (wake_fd_ >= 0) [[maybe_unused]]
      const ssize_t written = write(wake_fd_, &one, sizeof one);
  }

  void run() {
    std::vector<pollfd> waiting;
    for (;;) {
      try {
        turn(waiting);
      } catch (const std::bad_alloc&) {
        usleep(no_memory_pause_microseconds);  // the descriptors tell once more what is to be done
      }
    }
  }

  void turn(std::vector<pollfd>& waiting) {
    const int timeout = fill(waiting);
    if (poll(waiting.data(), waiting.size(), timeout) < 0) return;
    std::uint64_t ignored = 0;
    if (waiting.front().revents != 0) {
      [[maybe_unused]] const ssize_t taken = read(wake_fd_, &ignored, sizeof ignored);
    }
    for (std::size_t i = 1; i < waiting.size(); ++i) {
      if (waiting[i].revents == 0) continue;
      if (const auto socket = find(waiting[i].fd)) socket->on_readable();
    }
    for (const auto& socket : take_due()) socket->on_time();
  }

  // Fills in the descriptors to wait for. Returns the milliseconds until the first timer, at most
  // 60,000, or -1 if there is no timer.
  int fill(std::vector<pollfd>& waiting) {
    const std::lock_guard guard(mutex_);
    waiting.clear();
    waiting.push_back({wake_fd_, POLLIN, 0});
    std::optional<Clock::time_point> first;
    for (const auto& [fd, watched] : watched_) {
      waiting.push_back({fd, POLLIN, 0});
      if (watched.due) first = first ? std::min(*first, *watched.due) : *watched.due;
    }
    if (!first) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*first - Clock::now());
    return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000));
  }

  std::shared_ptr<Socket> find(int fd) {
    const std::lock_guard guard(mutex_);
    const auto found = watched_.find(fd);
    return found != watched_.end() ? found->second.socket.lock() : nullptr;
  }

  std::vector<std::shared_ptr<Socket>> take_due() {
    std::vector<std::shared_ptr<Socket>> due;
    const std::lock_guard guard(mutex_);
    const Clock::time_point now = Clock::now();
    for (auto& [fd, watched] : watched_) {
      if (!watched.due || *watched.due > now) continue;
      watched.due.reset();
      if (auto socket = watched.socket.lock()) due.push_back(std::move(socket));
    }
    return due;
  }

  std::mutex mutex_;
  std::map<int, Watched> watched_;
  int wake_fd_ = -1;
  bool is_running_ = false;
};

}  // namespace

void watch(int fd, const std::shared_ptr<Socket>& socket) { Service::instance().watch(fd, socket); }

void set_timer(int fd, Clock::time_point due) { Service::instance().set_timer(fd, due); }

void forget(int fd) { Service::instance().forget(fd); }

}  // namespace tulle::rsockets
