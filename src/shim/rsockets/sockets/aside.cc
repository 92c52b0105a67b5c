// Threads of rsockets, and those for work that may wait. The service must not wait, because all
// sockets depend on it.

#include <signal.h>

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <new>
#include <thread>

#include "shim/rsockets/sockets/socket.h"

namespace tulle::rsockets {

void start_thread(std::function<void()> run) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  try {
    std::thread(std::move(run)).detach();
  } catch (const std::exception&) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw std::bad_alloc();  // calls of the C API return ENOMEM then
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

namespace {

class Lane {
 public:
  bool add(std::function<void()> work, std::size_t waiting_max) {
    const std::lock_guard guard(mutex_);
    if (waiting_.size() >= waiting_max) return false;
    waiting_.push_back(std::move(work));
    if (idle_ < waiting_.size() && threads_ < threads_max) add_thread();
    came_.notify_one();
    return true;
  }

 private:
  static constexpr std::size_t threads_max = 8;

  // Those that there are do the work if the system gives no more.
  void add_thread() {
    try {
      start_thread([this] { run(); });
      ++threads_;
    } catch (const std::exception&) {
      if (threads_ == 0) waiting_.pop_back();
      if (threads_ == 0) throw;
    }
  }

  [[noreturn]] void run() {
    for (;;) {
      std::function<void()> work;
      {
        std::unique_lock lock(mutex_);
        ++idle_;
        came_.wait(lock, [this] { return !waiting_.empty(); });
        --idle_;
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
  std::size_t threads_ = 0;
  std::size_t idle_ = 0;
};

// Anybody can make a socket look for a way. A way that is refused is looked for again with a later
// datagram. Answers have a bound for each listener (stream.cc).
constexpr std::size_t ways_max = 256;

using Lanes = std::array<Lane, 2>;

}  // namespace

bool run_aside(Aside kind, std::function<void()> work) {
  try {
    return of_process<Lanes>()[static_cast<std::size_t>(kind)].add(
        std::move(work), kind == Aside::ways ? ways_max : SIZE_MAX);
  } catch (const std::exception&) {
    return false;  // there is no memory, or no thread
  }
}

}  // namespace tulle::rsockets
