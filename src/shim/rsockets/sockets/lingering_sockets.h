#pragma once

// Sockets that are closed and whose last bytes are on their way. The service looks after them.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "shim/rsockets/sockets/socket.h"

namespace tulle::rsockets {

class LingeringSockets {
 public:
  static constexpr std::chrono::milliseconds longest{60'000};
  static constexpr std::size_t count_max = 128;  // each has about five descriptors

  // Returns the oldest one, which lingers no longer, if there are too many.
  std::shared_ptr<Socket> add(std::shared_ptr<Socket> socket) {
    std::shared_ptr<Socket> oldest;
    const std::lock_guard guard(mutex_);
    sockets_.push_back({std::move(socket), Clock::now() + longest});
    if (sockets_.size() <= count_max) return oldest;
    oldest = std::move(sockets_.front().socket);
    sockets_.pop_front();
    return oldest;
  }
  // Returns true if a socket lingers no longer: it is done, or it has done so for long, or others
  // took its place.
  bool is_over(const Socket& socket, bool is_done) {
    const std::lock_guard guard(mutex_);
    const auto found =
        std::ranges::find(sockets_, &socket, [](const One& one) { return one.socket.get(); });
    const bool is_over = is_done || found == sockets_.end() || Clock::now() >= found->due;
    if (is_over && found != sockets_.end()) sockets_.erase(found);
    if (sockets_.empty()) empty_.notify_all();
    return is_over;
  }
  // Waits until none lingers, no longer than that.
  void wait(std::chrono::milliseconds most) {
    std::unique_lock lock(mutex_);
    empty_.wait_for(lock, most, [this] { return sockets_.empty(); });
  }

 private:
  struct One {
    std::shared_ptr<Socket> socket;
    Clock::time_point due;
  };

  std::mutex mutex_;
  std::condition_variable empty_;
  std::deque<One> sockets_;  // the oldest first
};

}  // namespace tulle::rsockets
