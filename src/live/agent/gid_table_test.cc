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

bool held_by_nobody(std::size_t) { return false; }

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
  const auto is_held = [&held](std::size_t index) { return held.contains(index); };
  table.update(std::array{entry(3), entry(4)}, is_held);
  EXPECT_EQ(addresses(table), (Addresses{0, 4, 3}));
  held.clear();
  table.update(std::array{entry(3), entry(4), entry(5)}, is_held);
  EXPECT_EQ(addresses(table), (Addresses{5, 4, 3}));
}

TEST(GidTable, WhatReturnsGetsItsHoleBack) {
  GidTable table({entry(1), entry(2), entry(3)});
  table.update(std::array{entry(3)}, held_by_nobody);
  table.update(std::array{entry(3), entry(2)}, [](std::size_t) { return true; });
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

}  // namespace
}  // namespace tulle::live
