// Tests steering, and that the group keeps its order when any process that holds it dies.

#include "live/path/packets/socket_group.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <optional>

#include "live/path/packets/udp_socket.h"
#include "live/test_network_test.h"

namespace tulle::live {
namespace {

class SocketGroupTest : public testing::Test {
 protected:
  void SetUp() override {
    enter_test_network();
    port_ = read_settings().port;
    auto sender = bind_udp(0, PortUse::exclusive);
    ASSERT_TRUE(sender);
    sender_ = std::move(*sender);
  }

  void send(QpNumber to, bool ipv6 = false) {
    const std::array<std::uint8_t, 12> bth = {4,
                                              0,
                                              0xFF,
                                              0xFF,
                                              0,
                                              static_cast<std::uint8_t>(to.value >> 16),
                                              static_cast<std::uint8_t>(to.value >> 8),
                                              static_cast<std::uint8_t>(to.value)};
    send_bytes({reinterpret_cast<const std::byte*>(bth.data()), bth.size()}, ipv6);
  }
  void send_bytes(std::span<const std::byte> bytes, bool ipv6 = false) {
    sockaddr_in6 name{};
    name.sin6_family = AF_INET6;
    name.sin6_port = htons(port_);
    inet_pton(AF_INET6, ipv6 ? "::1" : "::ffff:127.0.0.1", &name.sin6_addr);
    ASSERT_EQ(sendto(sender_.get(), bytes.data(), bytes.size(), 0,
                     reinterpret_cast<const sockaddr*>(&name), sizeof(name)),
              static_cast<ssize_t>(bytes.size()));
  }
  static bool take(const SocketGroup& group, std::uint32_t slot) {
    std::byte byte;
    return recv(group.socket(slot), &byte, 1, MSG_DONTWAIT | MSG_TRUNC) >= 0;
  }
  // Returns all slots that have a datagram, and takes one from each.
  static std::vector<std::uint32_t> slots_with_data(const SocketGroup& group) {
    std::vector<std::uint32_t> found;
    for (std::uint32_t slot = 0; slot < slots; ++slot) {
      if (take(group, slot)) found.push_back(slot);
    }
    return found;
  }
  void expect_steered(SocketGroup& group) {
    std::vector<UniqueFd> locks;
    for (std::uint32_t slot = 0; slot < slots; ++slot) {
      UniqueFd lock = group.lock(slot);
      if (lock) locks.push_back(std::move(lock));
    }
    for (std::uint32_t slot = 0; slot < slots; ++slot) {
      send(QpNumber(slot * qps_per_slot + slot), slot % 2 == 1);
      ASSERT_EQ(slots_with_data(group), std::vector<std::uint32_t>{slot});
    }
  }

  std::uint16_t port_ = 0;
  UniqueFd sender_;
};

TEST(SlotOf, IsAlwaysASlot) {
  EXPECT_EQ(slot_of(QpNumber(0)), 0u);
  EXPECT_EQ(slot_of(QpNumber(qps_per_slot)), 1u);
  EXPECT_EQ(slot_of(QpNumber(qp_number_max)), slots - 1);
  EXPECT_EQ(slot_of(QpNumber(0xFF00'0000 + qps_per_slot)), 1u) << "numbers have 24 bits";
}

TEST_F(SocketGroupTest, EachSlotGetsItsQueuePairs) {
  auto group = SocketGroup::create(port_);
  ASSERT_TRUE(group) << group.error().message;
  expect_steered(*group);
  const UniqueFd lock = group->lock(3);
  send(QpNumber(3 * qps_per_slot));
  send(QpNumber(4 * qps_per_slot - 1));
  EXPECT_TRUE(take(*group, 3));
  EXPECT_TRUE(take(*group, 3));
}

// A process that had the slot before may have been another user's, and its peers may still send.
TEST_F(SocketGroupTest, LateDatagramsForOthersOfTheSlotDoNotComeIn) {
  auto group = SocketGroup::create(port_);
  ASSERT_TRUE(group);
  const QpNumbers numbers{first_qp_of(3, 2), qps_per_process};
  const UniqueFd lock = group->lock(3, numbers);
  ASSERT_TRUE(lock);
  const std::uint32_t last = numbers.first + numbers.count - 1;
  for (const std::uint32_t late : {numbers.first - 1, last + 1, first_qp_of(3, 0)}) {
    for (const bool ipv6 : {false, true}) send(QpNumber(late), ipv6);
    EXPECT_FALSE(take(*group, 3)) << late;
  }
  for (const std::uint32_t own : {numbers.first, last}) {
    send(QpNumber(own));
    EXPECT_TRUE(take(*group, 3)) << own;
  }
}

TEST_F(SocketGroupTest, ShortDatagramsHarmNobody) {
  auto group = SocketGroup::create(port_);
  ASSERT_TRUE(group);
  std::vector<UniqueFd> locks;
  for (std::uint32_t slot = 1; slot < slots; ++slot) locks.push_back(group->lock(slot));
  const std::array<std::byte, 8> zeros{};
  for (std::size_t size = 0; size <= zeros.size(); ++size) {
    send_bytes(std::span(zeros).first(size));
  }
  EXPECT_TRUE(slots_with_data(*group).empty());
}

TEST_F(SocketGroupTest, TheGateOfAFreeSlotIsClosed) {
  auto group = SocketGroup::create(port_);
  ASSERT_TRUE(group);
  send(QpNumber(9 * qps_per_slot));
  EXPECT_FALSE(take(*group, 9));
  UniqueFd lock = group->lock(9);
  ASSERT_TRUE(lock);
  EXPECT_TRUE(group->is_locked(9));
  EXPECT_FALSE(group->lock(9));  // a slot can be locked only once
  send(QpNumber(9 * qps_per_slot));
  lock.reset();
  EXPECT_FALSE(group->is_locked(9));
  lock = group->lock(9);  // datagrams that waited for the last owner are drained
  ASSERT_TRUE(lock);
  EXPECT_FALSE(take(*group, 9));
}

TEST_F(SocketGroupTest, TheVaultKeepsTheOrder) {
  std::optional<SocketGroup> group;
  {
    auto created = SocketGroup::create(port_);
    ASSERT_TRUE(created);
    group.emplace(std::move(*created));
  }
  UniqueFd vault(fcntl(group->vault(), F_DUPFD_CLOEXEC, 0));
  const UniqueFd lock = group->lock(5);
  group->record(5).pid = 4711;
  group.reset();                             // the agent is gone
  EXPECT_FALSE(SocketGroup::create(port_));  // but the port is still held
  auto recovered = SocketGroup::recover(std::move(vault));
  ASSERT_TRUE(recovered) << recovered.error().message;
  EXPECT_EQ(recovered->port(), port_);
  EXPECT_EQ(recovered->record(5).pid, 4711);
  EXPECT_TRUE(recovered->is_locked(5));
  EXPECT_FALSE(recovered->is_locked(6));
  expect_steered(*recovered);
}

TEST_F(SocketGroupTest, ThePortIsFreeOnceAllAreGone) {
  for (int i = 0; i < 3; ++i) {
    auto group = SocketGroup::create(port_);
    ASSERT_TRUE(group) << group.error().message;
  }
}

TEST_F(SocketGroupTest, ABusyPortIsSaidToBeBusy) {
  auto foreign = bind_udp(port_, PortUse::shared);
  ASSERT_TRUE(foreign);
  auto group = SocketGroup::create(port_);
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().error_number, EADDRINUSE);
}

}  // namespace
}  // namespace tulle::live
