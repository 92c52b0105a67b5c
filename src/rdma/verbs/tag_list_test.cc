#include "rdma/verbs/tag_list.h"

#include <gtest/gtest.h>

#include <array>

namespace tulle::verbs {
namespace {

constexpr std::uint64_t all = ~std::uint64_t{0};

std::uint32_t add(TagList& list, std::uint64_t wr_id, std::uint64_t tag, std::uint64_t mask = all) {
  std::uint32_t handle = 0;
  EXPECT_EQ(list.add({wr_id, tag, mask, {}}, handle), VerbsStatus::ok);
  return handle;
}

// Returns the wr_id of the request that the tag finds, or 0 if there is none.
std::uint64_t find(TagList& list, std::uint64_t tag) {
  Receive receive;
  return list.match(tag, receive) ? receive.wr_id : 0;
}

TEST(TagList, TheFirstThatFitsIsTakenOnce) {
  TagList list(8);
  add(list, 1, 7);
  add(list, 2, 0x30, 0xF0);
  add(list, 3, 0x34);
  add(list, 4, 7);
  EXPECT_EQ(find(list, 0x34), 2u) << "the masked one is older";
  EXPECT_EQ(find(list, 0x34), 3u);
  EXPECT_EQ(find(list, 0x34), 0u);
  EXPECT_EQ(find(list, 7), 1u);
  EXPECT_EQ(find(list, 7), 4u);
  EXPECT_EQ(list.size(), 0u);
}

TEST(TagList, ATagBeyondItsMaskFitsNothing) {
  TagList list(2);
  add(list, 1, 0x11, 0x0F);
  EXPECT_EQ(find(list, 0x11), 0u);
  EXPECT_EQ(find(list, 0x01), 0u);
}

TEST(TagList, SgesComeBackWithTheMatch) {
  TagList list(2);
  const std::array<Sge, 5> sges = {{{16, 8, LocalKey(1)}, {64, 4, LocalKey(2)}}};
  std::uint32_t handle = 0;
  EXPECT_EQ(list.add({5, 9, all, sges}, handle), VerbsStatus::invalid_argument) << "five";
  ASSERT_EQ(list.add({5, 9, all, std::span(sges).first(2)}, handle), VerbsStatus::ok);
  Receive receive;
  ASSERT_TRUE(list.match(9, receive));
  ASSERT_EQ(receive.sge_count, 2u);
  EXPECT_EQ(receive.sges[1].address, 64u);
  EXPECT_EQ(receive.length(), 12u);
}

TEST(TagList, AHandleNamesItsEntryAndNoLaterOne) {
  TagList list(2);
  const std::uint32_t first = add(list, 1, 1);
  add(list, 2, 2);
  std::uint32_t handle = 0;
  EXPECT_EQ(list.add({3, 3, all, {}}, handle), VerbsStatus::out_of_memory);
  EXPECT_TRUE(list.remove(first));
  EXPECT_FALSE(list.remove(first));
  const std::uint32_t second = add(list, 3, 3);
  EXPECT_NE(second, first) << "in the same place";
  EXPECT_FALSE(list.remove(first));
  for (const std::uint32_t handle : {2u, 3u, ~0u}) EXPECT_FALSE(list.remove(handle));
  EXPECT_EQ(find(list, 2), 2u);
  EXPECT_TRUE(list.remove(second));
  EXPECT_EQ(list.size(), 0u);
}

// A request that is added before the application has looked at an unexpected message may be meant
// for that message.
TEST(TagList, WhatIsAddedWhileBehindWaits) {
  TagList list(8);
  add(list, 1, 1);
  list.count_unexpected();
  EXPECT_FALSE(list.is_synchronized());
  const std::uint32_t removed = add(list, 2, 2);
  add(list, 3, 2);
  EXPECT_EQ(find(list, 2), 0u);
  EXPECT_EQ(find(list, 1), 1u) << "older than the message";
  EXPECT_TRUE(list.remove(removed));
  EXPECT_EQ(find(list, 2), 0u) << "the next waits too";
  list.synchronize(2);
  EXPECT_EQ(find(list, 2), 0u) << "a wrong count";
  list.synchronize(1);
  EXPECT_TRUE(list.is_synchronized());
  EXPECT_EQ(find(list, 2), 3u);
}

}  // namespace
}  // namespace tulle::verbs
