#include "live/agent/gid_table.h"

#include <gtest/gtest.h>

#include <set>

namespace tulle::live {
namespace {

GidEntry entry(std::uint32_t address, std::uint32_t interface_index = 2) {
  return {Gid::from_ipv4(address), interface_index, "eth" + std::to_string(interface_index)};
}

// Returns the addresses by index, 0 for a hole.
std::vector<std::uint32_t> addresses(const GidTable& table) {
  std::vector<std::uint32_t> found;
  for (const GidEntry& each : table.entries()) {
    found.push_back(each.in_use() ? each.gid.ipv4() : 0);
  }
  return found;
}

HeldBy held_by_nobody(std::size_t) { return HeldBy::nobody; }

using Addresses = std::vector<std::uint32_t>;

TEST(GidTable, WhatIsRemovedLeavesAHoleAndNothingMoves) {
  GidTable table({entry(1), entry(2), entry(3)});
  EXPECT_TRUE(table.update(std::array{entry(1), entry(3)}, held_by_nobody));
  EXPECT_EQ(addresses(table), (Addresses{1, 0, 3}));
  EXPECT_FALSE(table.update(std::array{entry(3), entry(1)}, held_by_nobody)) << "in any order";
  EXPECT_EQ(addresses(table), (Addresses{1, 0, 3}));
}

TEST(GidTable, WhatIsNewTakesTheFirstHoleThenTheEnd) {
  GidTable table({entry(1), entry(2), entry(3)});
  table.update(std::array{entry(3)}, held_by_nobody);
  EXPECT_TRUE(table.update(std::array{entry(3), entry(4)}, held_by_nobody));
  EXPECT_EQ(addresses(table), (Addresses{4, 0, 3}));
  EXPECT_TRUE(table.update(std::array{entry(3), entry(4), entry(5), entry(6)}, held_by_nobody));
  EXPECT_EQ(addresses(table), (Addresses{4, 5, 3, 6}));
}

TEST(GidTable, AHoleThatIsHeldIsPassedOver) {
  GidTable table({entry(1), entry(2), entry(3)});
  table.update(std::array{entry(3)}, held_by_nobody);
  std::set<std::size_t> held = {0};
  const auto holder_of = [&held](std::size_t index) {
    return held.contains(index) ? HeldBy::limited_users : HeldBy::nobody;
  };
  table.update(std::array{entry(3), entry(4)}, holder_of);
  EXPECT_EQ(addresses(table), (Addresses{0, 4, 3}));
  held.clear();
  table.update(std::array{entry(3), entry(4), entry(5)}, holder_of);
  EXPECT_EQ(addresses(table), (Addresses{5, 4, 3}));
}

TEST(GidTable, WhatReturnsGetsItsHoleBack) {
  GidTable table({entry(1), entry(2), entry(3)});
  table.update(std::array{entry(3)}, held_by_nobody);
  table.update(std::array{entry(3), entry(2)}, [](std::size_t) { return HeldBy::own_user; });
  EXPECT_EQ(addresses(table), (Addresses{0, 2, 3}));
}

// The processes that refer to the old address have not been asked yet.
TEST(GidTable, WhatIsRemovedAndWhatIsNewAtOnceDoNotMeet) {
  GidTable table({entry(1)});
  table.update(std::array{entry(2)}, held_by_nobody);
  EXPECT_EQ(addresses(table), (Addresses{0, 2}));
}

TEST(GidTable, OneAddressOnTwoInterfacesHasTwoEntries) {
  GidTable table({entry(1, 2)});
  table.update(std::array{entry(1, 2), entry(1, 3)}, held_by_nobody);
  EXPECT_EQ(addresses(table), (Addresses{1, 1}));
  table.update(std::array{entry(1, 3)}, held_by_nobody);
  EXPECT_EQ(addresses(table), (Addresses{0, 1}));
}

TEST(GidTable, WhatFindsNoRoomIsLeftOut) {
  std::vector<GidEntry> many;
  for (std::uint32_t i = 1; i <= gids_max + 2; ++i) many.push_back(entry(i));
  GidTable table(std::vector<GidEntry>(many.begin(), many.begin() + 3));
  EXPECT_TRUE(table.update(many, held_by_nobody));
  EXPECT_EQ(table.entries().size(), gids_max);
  EXPECT_FALSE(table.update(many, held_by_nobody));
  EXPECT_EQ(GidTable(many).entries().size(), gids_max);
}

// One process of another user must not keep new addresses out for ever.
TEST(GidTable, AFullTableTakesHolesThatOnlyLimitedUsersHold) {
  const auto by_limited = [](std::size_t) { return HeldBy::limited_users; };
  const auto by_own = [](std::size_t) { return HeldBy::own_user; };
  GidTable table;
  for (std::uint32_t i = 1; i <= gids_max; ++i) table.update(std::array{entry(i)}, by_limited);
  ASSERT_EQ(table.entries().size(), gids_max);
  EXPECT_TRUE(table.update(std::array{entry(1'000)}, by_limited));
  EXPECT_EQ(addresses(table).at(0), 1'000u);
  table.update(std::array{entry(2'000)}, by_own);
  EXPECT_EQ(std::ranges::count(addresses(table), 2'000u), 0) << "the own user's keep their meaning";
}

}  // namespace
}  // namespace tulle::live
