#include "live/message/closer.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <thread>
#include <utility>

#include "live/message/lingering_test.h"

namespace tulle::live {
namespace {

using Clock = std::chrono::steady_clock;

// Returns true once the other end of a pair is closed.
bool is_closed(int fd) {
  pollfd gone{fd, POLLHUP, 0};
  return poll(&gone, 1, 5'000) == 1;
}

TEST(Closer, ClosesWhatItIsGiven) {
  Closer closer;
  for (int i = 0; i < 100; ++i) {
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    const UniqueFd other(pair[1]);
    closer.close(7, UniqueFd(pair[0]));
    EXPECT_TRUE(is_closed(other.get()));
  }
}

TEST(Closer, NeitherTheCallerNorOthersWaitForADescriptorThatLingers) {
  Closer closer;
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

TEST(Closer, MayGoWhileADescriptorLingers) {
  Lingering lingering = linger_for(60);
  ASSERT_TRUE(lingering.own);
  const auto began = Clock::now();
  {
    Closer closer;
    closer.close(7, std::move(lingering.own));
  }
  EXPECT_LT(Clock::now() - began, std::chrono::seconds(30)) << "it waited";
}

}  // namespace
}  // namespace tulle::live
