#include "live/process/callers_mutex.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace tulle::live {
namespace {

using std::chrono::milliseconds;

TEST(CallersMutexTest, OneHasTheLock) {
  CallersMutex mutex;
  auto held = mutex.lock();
  EXPECT_TRUE(held.owns_lock());
  EXPECT_FALSE(mutex.lock_within(milliseconds(1)).owns_lock());
  held.unlock();
  EXPECT_TRUE(mutex.lock_within(milliseconds(1)).owns_lock());
}

TEST(CallersMutexTest, AWaiterGetsInBetweenTwoTurns) {
  CallersMutex mutex;
  EXPECT_FALSE(mutex.is_awaited());
  auto held = mutex.lock();
  std::atomic<bool> has_had_it = false;
  std::thread waiter([&] {
    const auto own = mutex.lock();
    has_had_it = true;
  });
  while (!mutex.is_awaited()) std::this_thread::yield();
  held.unlock();
  // On a machine that is very busy, one turn may not be enough.
  while (!has_had_it) mutex.let_others_in();
  waiter.join();
  EXPECT_FALSE(mutex.is_awaited());
}

TEST(CallersMutexTest, AChildForgetsWhoHadIt) {
  CallersMutex mutex;
  auto held = mutex.lock();
  held.release();  // its thread is not in the child
  mutex.forget_in_child();
  EXPECT_TRUE(mutex.lock().owns_lock());
}

}  // namespace
}  // namespace tulle::live
