#include "live/agent/closer.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <thread>
#include <vector>

namespace tulle::live {
namespace {

using Clock = std::chrono::steady_clock;

// A TCP connection whose peer takes nothing, and whose close therefore waits.
struct Lingering {
  UniqueFd own;
  UniqueFd peer;
};
Lingering linger_for(int seconds) {
  Lingering made;
  const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(at);
  auto* name = reinterpret_cast<sockaddr*>(&at);
  EXPECT_EQ(bind(listener.get(), name, size), 0);
  EXPECT_EQ(listen(listener.get(), 1), 0);
  EXPECT_EQ(getsockname(listener.get(), name, &size), 0);
  made.own.reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(made.own.get(), name, size), 0);
  made.peer.reset(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const std::vector<std::byte> much(1 << 16);
  while (send(made.own.get(), much.data(), much.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
  }
  const linger wait{1, seconds};
  EXPECT_EQ(setsockopt(made.own.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof(wait)), 0);
  return made;
}

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

TEST(Closer, NeitherTheCallerNorOtherUsersWaitForADescriptorThatLingers) {
  Closer closer;
  Lingering lingering = linger_for(60);
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
  const auto began = Clock::now();
  {
    Closer closer;
    closer.close(7, std::move(lingering.own));
  }
  EXPECT_LT(Clock::now() - began, std::chrono::seconds(30)) << "it waited";
}

}  // namespace
}  // namespace tulle::live
