#include "live/message/closer.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <thread>
#include <utility>
#include <vector>

#include "live/message/lingering_test.h"
#include "live/message/socket.h"

namespace tulle::live {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t threads_max = 2;

// Returns true once the other end of a pair is closed.
bool is_closed(int fd) {
  pollfd gone{fd, POLLHUP, 0};
  return poll(&gone, 1, 5'000) == 1;
}

TEST(Closer, ClosesWhatItIsGiven) {
  Closer closer(threads_max, nullptr);
  for (int i = 0; i < 100; ++i) {
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    const UniqueFd other(pair[1]);
    closer.close(7, UniqueFd(pair[0]));
    EXPECT_TRUE(is_closed(other.get()));
  }
}

TEST(Closer, NeitherTheCallerNorOthersWaitForADescriptorThatLingers) {
  Closer closer(threads_max, nullptr);
  Lingering lingering = linger_for(60);
  ASSERT_TRUE(lingering.own);
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  const UniqueFd other(pair[1]);
  closer.close(7, std::move(lingering.own));
  closer.close(8, UniqueFd(pair[0]));
  EXPECT_TRUE(is_closed(other.get()));
  EXPECT_EQ(closer.waiting(7), 1u) << "this descriptor must linger for the test to count";
  lingering.peer.reset();  // resets the connection, and with it ends the wait
  const auto deadline = Clock::now() + std::chrono::seconds(20);
  while (closer.waiting(7) > 0 && Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(closer.waiting(7), 0u);
}

// A descriptor, and the other end that tells when it is closed.
struct Watched {
  UniqueFd own;
  UniqueFd other;
};
Watched watched(int type = SOCK_STREAM) {
  int pair[2] = {-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, pair), 0);
  return {UniqueFd(pair[0]), UniqueFd(pair[1])};
}
bool is_closed_now(const Watched& each) {
  pollfd gone{each.other.get(), POLLHUP, 0};
  return poll(&gone, 1, 50) == 1;
}

// Its other descriptors do not take the other threads.
TEST(Closer, ASenderKeepsOneThreadWaiting) {
  Closer closer(threads_max, nullptr);
  std::vector<UniqueFd> peers;
  for (int i = 0; i < 3; ++i) {
    Lingering lingering = linger_for(60);
    ASSERT_TRUE(lingering.own);
    closer.close(7, std::move(lingering.own));
    peers.push_back(std::move(lingering.peer));
  }
  for (Closer::Sender sender = 8; sender < 20; ++sender) {
    Watched each = watched();
    closer.close(sender, std::move(each.own));
    EXPECT_TRUE(is_closed(each.other.get()));
  }
  EXPECT_EQ(closer.waiting(7), 3u);
}

TEST(Closer, ManySendersHaveABoundedNumberOfThreads) {
  Closer closer(threads_max, nullptr);
  std::vector<UniqueFd> peers;
  for (Closer::Sender sender = 1; sender <= threads_max; ++sender) {
    Lingering lingering = linger_for(60);
    ASSERT_TRUE(lingering.own);
    closer.close(sender, std::move(lingering.own));
    peers.push_back(std::move(lingering.peer));
  }
  Watched last = watched();
  closer.close(7, std::move(last.own));
  EXPECT_FALSE(is_closed_now(last));
  EXPECT_EQ(closer.waiting(7), 1u);
  EXPECT_EQ(closer.waiting(), threads_max + 1);
  peers.pop_back();
  EXPECT_TRUE(is_closed(last.other.get()));
}

#ifdef __GLIBC__
// While this object exists, there is no room for a thread's stack.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&usual_);
    pthread_attr_t none;
    pthread_attr_init(&none);
    pthread_attr_setstacksize(&none, std::size_t{1} << 60);
    EXPECT_EQ(pthread_setattr_default_np(&none), 0);
    pthread_attr_destroy(&none);
  }
  ~NoThreads() {
    pthread_setattr_default_np(&usual_);
    pthread_attr_destroy(&usual_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t usual_;
};

TEST(Closer, WhatFoundNoThreadIsClosedWithTheNextOne) {
  Closer closer(threads_max, nullptr);
  Watched first = watched(), second = watched();
  {
    const NoThreads none;
    closer.close(7, std::move(first.own));
    EXPECT_FALSE(is_closed_now(first));
  }
  closer.close(8, std::move(second.own));
  EXPECT_TRUE(is_closed(first.other.get()));
  EXPECT_TRUE(is_closed(second.other.get()));
}

TEST(Closer, TriesOnceMoreToGetAThread) {
  Closer closer(threads_max, nullptr);
  Watched each = watched();
  {
    const NoThreads none;
    closer.close(7, std::move(each.own));
    EXPECT_FALSE(is_closed_now(each));
  }
  const auto deadline = Clock::now() + std::chrono::seconds(20);
  while (closer.waiting() > 0 && Clock::now() < deadline) {
    closer.retry();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(is_closed_now(each));
}
#endif

// Leaves descriptors in a message that nobody reads, and closes them here.
void leave_unread(int sender, std::vector<UniqueFd> fds) {
  std::vector<int> numbers;
  for (const UniqueFd& fd : fds) numbers.push_back(fd.get());
  EXPECT_TRUE(send_message(sender, std::vector<std::byte>(1), numbers));
}

// A connection with a descriptor that lingers in an unread message, or in one of such a connection.
TEST(Closer, NoUnreadDescriptorDelaysAThreadThatExits) {
  if (syscall(SYS_close_range, ~0u, ~0u, 0) != 0) GTEST_SKIP() << "Linux before 5.9";
  Closer closer(threads_max, std::make_shared<ExitingThreads>());
  std::vector<UniqueFd> peers, others;
  for (int i = 0; i < 200; ++i) {
    Watched each = watched(SOCK_SEQPACKET);
    std::vector<UniqueFd> unread;
    if (i % 10 == 0) {
      Lingering lingering = linger_for(60);
      ASSERT_TRUE(lingering.own);
      unread.push_back(std::move(lingering.own));
      peers.push_back(std::move(lingering.peer));
    }
    if (i % 20 == 0) {
      Watched inner = watched(SOCK_SEQPACKET);
      leave_unread(inner.other.get(), std::move(unread));
      unread.clear();
      unread.push_back(std::move(inner.own));
      unread.push_back(std::move(inner.other));
    }
    leave_unread(each.other.get(), std::move(unread));
    closer.close(7, std::move(each.own));
    others.push_back(std::move(each.other));
  }
  for (const UniqueFd& other : others) ASSERT_TRUE(is_closed(other.get()));
  EXPECT_EQ(closer.waiting(), 0u);
}

TEST(Closer, MayGoWhileADescriptorLingers) {
  Lingering lingering = linger_for(60);
  ASSERT_TRUE(lingering.own);
  const auto began = Clock::now();
  {
    Closer closer(threads_max, nullptr);
    closer.close(7, std::move(lingering.own));
  }
  EXPECT_LT(Clock::now() - began, std::chrono::seconds(30)) << "it waited";
}

}  // namespace
}  // namespace tulle::live
