// Threads of rsockets, and those for work that may wait. The service must not wait, because all
// sockets depend on it.

#include <signal.h>

#include <array>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <new>
#include <thread>

#include "rsockets/sockets/socket.h"

namespace tulle::rsockets {

void start_thread(std::function<void()> run) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  try {
    std::thread(std::move(run)).detach();
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

namespace {

class Lane {
 public:
  bool add(std::function<void()> work) {
    const std::lock_guard guard(mutex_);
    if (waiting_.size() >= waiting_max) return false;
    waiting_.push_back(std::move(work));
    if (!is_running_) start_thread([this] { run(); });
    is_running_ = true;
    came_.notify_one();
    return true;
  }

 private:
  // Each may take seconds. A listener answers the request itself that is refused here, and a way is
  // looked for again with the next datagram.
  static constexpr std::size_t waiting_max = 256;

  [[noreturn]] void run() {
    for (;;) {
      std::function<void()> work;
      {
        std::unique_lock lock(mutex_);
        came_.wait(lock, [this] { return !waiting_.empty(); });
        work = std::move(waiting_.front());
        waiting_.pop_front();
      }
      try {
        work();
      } catch (const std::bad_alloc&) {  // the peer asks again, or gives up
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<std::function<void()>> waiting_;
  bool is_running_ = false;
};

using Lanes = std::array<Lane, 2>;

}  // namespace

bool run_aside(Aside kind, std::function<void()> work) {
  try {
    return of_process<Lanes>()[static_cast<std::size_t>(kind)].add(std::move(work));
  } catch (const std::exception&) {
    return false;  // there is no memory, or no thread
  }
}

}  // namespace tulle::rsockets
