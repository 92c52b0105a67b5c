// Tests that a sender is held back while the receiver's buffer is full, and not indefinitely.

#include "live/path/packets/backlog.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <optional>
#include <vector>

#include "live/path/packets/udp_socket.h"
#include "live/test_network_test.h"

namespace tulle::live {
namespace {

constexpr std::uint32_t slot = 5;
constexpr std::size_t datagram_bytes = 4'096;

class BacklogTest : public testing::Test {
 protected:
  void SetUp() override {
    enter_test_network();
    auto created = SocketGroup::create(read_settings().port);
    ASSERT_TRUE(created) << created.error().message;
    group_.emplace(std::move(*created));
    lock_ = group_->lock(slot);
    auto sender = bind_udp(0, PortUse::exclusive);
    ASSERT_TRUE(sender);
    sender_ = std::move(*sender);
  }

  Backlog backlog() const { return Backlog(UniqueFd(fcntl(group_->vault(), F_DUPFD_CLOEXEC, 0))); }

  bool send() {
    std::vector<std::uint8_t> bytes(datagram_bytes);
    bytes[5] = slot << (8 - slot_bits);
    sockaddr_in6 name{};
    name.sin6_family = AF_INET6;
    name.sin6_port = htons(group_->port());
    inet_pton(AF_INET6, "::ffff:127.0.0.1", &name.sin6_addr);
    return sendto(sender_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT,
                  reinterpret_cast<const sockaddr*>(&name), sizeof(name)) > 0;
  }
  int drain() const {
    int taken = 0;
    std::byte byte;
    while (recv(group_->socket(slot), &byte, 1, MSG_DONTWAIT | MSG_TRUNC) >= 0) ++taken;
    return taken;
  }
  // Returns the number of datagrams that are sent before one is held back.
  int fill(Backlog& backlog) {
    constexpr int many = 100'000;
    int sent = 0;
    while (sent < many && backlog.admits(slot, datagram_bytes, Time::zero())) sent += send();
    EXPECT_LT(sent, many);
    return sent;
  }

  std::optional<SocketGroup> group_;
  UniqueFd lock_;
  UniqueFd sender_;
};

TEST_F(BacklogTest, NothingIsLostAndAnEmptyBufferIsUsedAgain) {
  Backlog backlog = this->backlog();
  for (int round = 0; round < 3; ++round) {
    const int sent = fill(backlog);
    EXPECT_GT(sent, 8);
    EXPECT_EQ(drain(), sent);
  }
}

TEST_F(BacklogTest, TwoSendersAtOnceLoseNothing) {
  Backlog one = this->backlog();
  Backlog other = this->backlog();
  int sent = 0;
  for (bool room = true; room;) {
    const bool first = one.admits(slot, datagram_bytes, Time::zero());
    const bool second = other.admits(slot, datagram_bytes, Time::zero());
    if (first) sent += send();
    if (second) sent += send();
    room = first || second;
  }
  EXPECT_EQ(drain(), sent);
}

TEST_F(BacklogTest, PatienceEnds) {
  Backlog backlog = this->backlog();
  fill(backlog);
  const Time just_before = Backlog::patience - Time::nanoseconds(1);
  EXPECT_FALSE(backlog.admits(slot, datagram_bytes, just_before));  // fill() saw it full at zero
  EXPECT_TRUE(backlog.admits(slot, datagram_bytes, Backlog::patience));
  drain();
  fill(backlog);
  EXPECT_FALSE(backlog.admits(slot, datagram_bytes, Time::zero()));
  EXPECT_TRUE(backlog.admits(slot + 1, datagram_bytes, Time::zero()));
}

TEST_F(BacklogTest, WithoutAVaultNothingIsHeldBack) {
  Backlog backlog{UniqueFd()};
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(backlog.admits(slot, 65'487, Time::zero()));
}

}  // namespace
}  // namespace tulle::live
