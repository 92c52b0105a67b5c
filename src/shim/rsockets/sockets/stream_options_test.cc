#include "shim/rsockets/sockets/stream_options.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <rdma/rsocket.h>

#include <array>
#include <cerrno>
#include <chrono>

#include "shim/rsockets/sockets/fake_device_test.h"

namespace tulle::rsockets {
namespace {

class StreamOptionsTest : public testing::Test {
 protected:
  int set(int level, int option, int value, StreamOptions::Stage stage = {.is_idle = true}) {
    return options.set(stage, level, option, &value, sizeof value);
  }
  int get(int level, int option) {
    int value = -1;
    socklen_t bytes = sizeof value;
    EXPECT_EQ(options.get(level, option, &value, bytes), 0);
    EXPECT_EQ(bytes, sizeof value);
    return value;
  }

  FakeNetwork network;
  FakeConnection connection{network};
  SocketSettings settings = default_settings();
  StreamOptions options{connection, settings};
};

TEST_F(StreamOptionsTest, WhatIsWrittenIsReadBack) {
  constexpr std::array<std::array<int, 2>, 5> all{{{SOL_SOCKET, SO_REUSEADDR},
                                                   {SOL_SOCKET, SO_KEEPALIVE},
                                                   {SOL_SOCKET, SO_OOBINLINE},
                                                   {IPPROTO_TCP, TCP_NODELAY},
                                                   {IPPROTO_IPV6, IPV6_V6ONLY}}};
  for (const auto& [level, option] : all) {
    EXPECT_EQ(get(level, option), 0);
    EXPECT_EQ(set(level, option, 5), 0);
    EXPECT_EQ(get(level, option), 1);
  }
  EXPECT_EQ(set(SOL_SOCKET, 12'345, 1), ENOTSUP);
  EXPECT_EQ(set(IPPROTO_UDP, 1, 1), ENOTSUP);
}

TEST_F(StreamOptionsTest, BuffersThatExistKeepTheirSize) {
  EXPECT_EQ(set(SOL_SOCKET, SO_RCVBUF, 50'000), 0);
  EXPECT_EQ(get(SOL_SOCKET, SO_RCVBUF), 100'000);
  EXPECT_EQ(set(SOL_SOCKET, SO_RCVBUF, 60'000, {.has_receive_buffer = true}), 0);
  EXPECT_EQ(get(SOL_SOCKET, SO_RCVBUF), 100'000);
  EXPECT_EQ(set(SOL_SOCKET, SO_SNDBUF, 70'000, {.has_send_buffer = true}), 0);
  EXPECT_NE(get(SOL_SOCKET, SO_SNDBUF), 140'000);
  EXPECT_EQ(set(SOL_SOCKET, SO_RCVBUF, -1), EINVAL);
}

TEST_F(StreamOptionsTest, ResourcesAreChosenBeforeTheyAreThere) {
  EXPECT_EQ(set(SOL_RDMA, RDMA_SQSIZE, 33), 0);
  EXPECT_EQ(get(SOL_RDMA, RDMA_SQSIZE), 33);
  EXPECT_EQ(set(SOL_RDMA, RDMA_SQSIZE, 44, {.has_resources = true}), EINVAL);
  EXPECT_EQ(get(SOL_RDMA, RDMA_SQSIZE), 33);
  constexpr std::array<std::byte, 3> route{};
  EXPECT_EQ(options.set({}, SOL_RDMA, RDMA_ROUTE, route.data(), route.size()), 0);
  EXPECT_EQ(options.route().size(), route.size());
}

TEST_F(StreamOptionsTest, AChangeOfKeepAliveIsReportedOnce) {
  EXPECT_EQ(options.keep_alive_due(), Clock::time_point{});
  EXPECT_EQ(set(IPPROTO_TCP, TCP_KEEPIDLE, 7), 0);
  EXPECT_FALSE(options.take_new_keep_alive()) << "nothing is kept alive";
  EXPECT_EQ(set(SOL_SOCKET, SO_KEEPALIVE, 1), 0);
  EXPECT_TRUE(options.take_new_keep_alive());
  EXPECT_FALSE(options.take_new_keep_alive());
  const auto before = Clock::now();
  const auto due = options.keep_alive_due();
  EXPECT_GE(due, before + std::chrono::seconds(7));
  EXPECT_LE(due, Clock::now() + std::chrono::seconds(7));
  EXPECT_EQ(set(IPPROTO_TCP, TCP_KEEPIDLE, 9), 0);
  EXPECT_TRUE(options.take_new_keep_alive());
  EXPECT_EQ(set(IPPROTO_TCP, TCP_KEEPIDLE, 0), EINVAL);
}

}  // namespace
}  // namespace tulle::rsockets
