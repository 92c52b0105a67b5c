#pragma once

// The lock of a device, for which a program's threads and the device's own compete. A caller spins
// a little before it sleeps, since others hold the lock for some microseconds at most.

#include <atomic>
#include <chrono>
#include <mutex>
#include <new>

namespace tulle::live {

class CallersMutex {
 public:
  std::unique_lock<std::mutex> lock();
  // Gives up after that time, and returns a lock that holds nothing.
  std::unique_lock<std::mutex> lock_within(std::chrono::milliseconds patience);
  // Returns true if a caller sleeps until it gets the lock.
  bool is_awaited() const { return waiters_.load(std::memory_order_relaxed) > 0; }
  // Yields to callers that wait for the lock. A mutex that is released and taken again at once is
  // not fair: a waiter would sleep on. On a busy machine the waiter gets its processor late, and a
  // yield returns at once, so that the calling thread then sleeps for some milliseconds at most.
  void let_others_in() const;
  // A thread that is not in a forked child may have held it.
  void forget_in_child() { new (&mutex_) std::mutex; }

 private:
  std::mutex mutex_;
  std::atomic<int> waiters_{0};
};

}  // namespace tulle::live
