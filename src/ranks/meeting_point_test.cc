#include "ranks/meeting_point.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>
#include <vector>

#include "os/free_ports_test.h"

namespace tulle::ranks {
namespace {

constexpr std::chrono::milliseconds moment{100};

std::string free_port() { return free_ports(SOCK_STREAM, 1)[0]; }

TEST(MeetingPoint, PeersMeetByEitherFamily) {
  for (const std::string& address : {"127.0.0.1:" + free_port(), "[::1]:" + free_port()}) {
    auto listener = listen_at(address);
    ASSERT_TRUE(listener) << listener.error().message;
    auto peer = connect_to(address, moment);
    ASSERT_TRUE(peer) << peer.error().message;
    const UniqueFd accepted(accept4(listener->get(), nullptr, nullptr, SOCK_NONBLOCK));
    ASSERT_TRUE(accepted);
    EXPECT_EQ(send(peer->get(), "x", 1, 0), 1);
    char byte = 0;
    EXPECT_EQ(recv(accepted.get(), &byte, 1, 0), 1);
    auto second = listen_at(address);
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().message,
              "--meet: cannot listen at " + address + ": Address already in use");
  }
}

TEST(MeetingPoint, OneWaitsForTheOtherABoundedTime) {
  const auto began = std::chrono::steady_clock::now();
  const std::string address = "127.0.0.1:" + free_port();
  const auto peer = connect_to(address, moment);
  const auto took = std::chrono::steady_clock::now() - began;
  ASSERT_FALSE(peer);
  EXPECT_EQ(peer.error().message, "nobody listens at " + address + ": Connection refused");
  EXPECT_GE(took, moment);
  EXPECT_LT(took, std::chrono::seconds(5));
}

TEST(MeetingPoint, WhatIsNoAddressIsNamed) {
  for (const std::string& address :
       std::vector<std::string>{"", "127.0.0.1", ":1", "127.0.0.1:", "[]:1"}) {
    const std::string expected = "--meet: \"" + address + "\" is no HOST:PORT";
    EXPECT_EQ(listen_at(address).error().message, expected);
    EXPECT_EQ(connect_to(address, moment).error().message, expected);
  }
  for (const std::string& address :
       std::vector<std::string>{"127.0.0.1:http", "[127.0.0.1x:1", "x127.0.0.1]:1", "a b:1"}) {
    const auto listener = listen_at(address);
    ASSERT_FALSE(listener) << address;
    EXPECT_TRUE(listener.error().message.starts_with("--meet: " + address + ": "))
        << listener.error().message;
  }
}

TEST(MeetingPoint, LinesOfOthersAreShortAndHarmless) {
  EXPECT_EQ(short_line("as it is"), "as it is");
  EXPECT_EQ(short_line(std::string(501, 'a')).size(), 500u);
  EXPECT_EQ(short_line("a\nb\x1b[2J").find_first_of("\n\x1b"), std::string::npos);
}

}  // namespace
}  // namespace tulle::ranks
