#include "shim/rsockets/protocol/peer_table.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace tulle::rsockets {
namespace {

PeerKey key_of(std::uint32_t number) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = 7174;
  address.sin_addr.s_addr = number;
  return PeerKey::of(reinterpret_cast<const sockaddr&>(address));
}

using Table = PeerTable<std::uint32_t>;

void add(Table& table, std::uint32_t number) {
  table.add(key_of(number), std::make_shared<std::uint32_t>(number));
}

TEST(PeerTable, FindsWhatWasAdded) {
  Table table(4);
  EXPECT_EQ(table.find(key_of(1)), nullptr);
  add(table, 1);
  add(table, 2);
  ASSERT_NE(table.find(key_of(1)), nullptr);
  EXPECT_EQ(*table.find(key_of(1)), 1u);
  EXPECT_EQ(*table.find(key_of(2)), 2u);
}

TEST(PeerTable, ForgetsThePeerThatWasUnusedForTheLongestTime) {
  Table table(3);
  for (const std::uint32_t each : {1u, 2u, 3u}) add(table, each);
  EXPECT_NE(table.find(key_of(1)), nullptr);
  add(table, 4);
  EXPECT_EQ(table.size(), 3u);
  EXPECT_EQ(table.find(key_of(2)), nullptr);
  for (const std::uint32_t each : {1u, 3u, 4u}) EXPECT_NE(table.find(key_of(each)), nullptr);
}

TEST(PeerTable, KeepsPeersThatSomebodyHolds) {
  Table table(2);
  add(table, 1);
  const std::shared_ptr<std::uint32_t> held = table.find(key_of(1));
  for (std::uint32_t each = 2; each < 100; ++each) add(table, each);
  EXPECT_EQ(table.size(), 2u);
  EXPECT_EQ(table.find(key_of(1)), held);
  EXPECT_NE(table.find(key_of(99)), nullptr);

  const std::shared_ptr<std::uint32_t> other = table.find(key_of(99));
  add(table, 100);
  EXPECT_EQ(table.size(), 3u) << "all are held";
}

TEST(PeerTable, IsBounded) {
  Table table(50);
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) {
    const auto number = static_cast<std::uint32_t>(random() % 1000);
    if (const auto found = table.find(key_of(number))) {
      ASSERT_EQ(*found, number);
    } else {
      add(table, number);
    }
    ASSERT_LE(table.size(), 50u);
  }
}

TEST(PeerTable, KeysDifferByAddressPortFamilyAndScope) {
  sockaddr_in6 address = {};
  address.sin6_family = AF_INET6;
  address.sin6_port = 1;
  const auto key = [&] { return PeerKey::of(reinterpret_cast<const sockaddr&>(address)); };
  std::vector<PeerKey> keys = {key(), key_of(0)};
  address.sin6_port = 2;
  keys.push_back(key());
  address.sin6_scope_id = 3;
  keys.push_back(key());
  address.sin6_addr.s6_addr[15] = 1;
  keys.push_back(key());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    for (std::size_t j = 0; j < keys.size(); ++j) EXPECT_EQ(keys[i] == keys[j], i == j);
  }
  address.sin6_flowinfo = 9;
  EXPECT_EQ(key(), keys.back()) << "the flow is none of the peer's name";
}

}  // namespace
}  // namespace tulle::rsockets
