#include "live/process/callers_mutex.h"

#include <sched.h>
#include <unistd.h>

#include "base/pause.h"

namespace tulle::live {
namespace {

constexpr int spins_before_sleep = 200;
constexpr int yields_max = 100;
constexpr int naps_max = 50;
constexpr int nap_microseconds = 50;

}  // namespace

std::unique_lock<std::mutex> CallersMutex::lock() {
  std::unique_lock<std::mutex> held(mutex_, std::try_to_lock);
  for (int i = 0; i < spins_before_sleep && !held; ++i) {
    pause_processor();
    static_cast<void>(held.try_lock());
  }
  if (!held) {
    waiters_.fetch_add(1, std::memory_order_relaxed);
    held.lock();
    waiters_.fetch_sub(1, std::memory_order_relaxed);
  }
  return held;
}

std::unique_lock<std::mutex> CallersMutex::lock_within(std::chrono::milliseconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  std::unique_lock<std::mutex> held(mutex_, std::try_to_lock);
  while (!held && std::chrono::steady_clock::now() < until) {
    usleep(100);
    static_cast<void>(held.try_lock());
  }
  return held;
}

void CallersMutex::let_others_in() const {
  for (int i = 0; i < yields_max && is_awaited(); ++i) sched_yield();
  for (int i = 0; i < naps_max && is_awaited(); ++i) usleep(nap_microseconds);
}

}  // namespace tulle::live
