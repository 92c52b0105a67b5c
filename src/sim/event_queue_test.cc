#include "sim/event_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "base/random.h"

namespace tulle::sim {
namespace {

TEST(EventQueue, ByTimeThenNodeThenOrderOfPlanning) {
  EventQueue<int> queue;
  EXPECT_TRUE(queue.empty());
  EXPECT_TRUE(queue.next().is_never());
  queue.add(Time{5}, 1, 50);
  queue.add(Time{3}, 2, 32);
  queue.add(Time{3}, 1, 31);
  queue.add(Time{3}, 1, 310);
  queue.add(Time{9}, 0, 90);
  EXPECT_EQ(queue.next(), Time{3});
  for (const int expected : {31, 310, 32, 50, 90}) EXPECT_EQ(queue.pop().what, expected);
  EXPECT_TRUE(queue.empty());
}

// Compares the queue with a sorted list. Events are added while others are taken out.
TEST(EventQueue, Random) {
  constexpr std::uint64_t seed = 11;
  SCOPED_TRACE(seed);
  Random random(seed);
  EventQueue<int> queue;
  std::vector<std::tuple<std::int64_t, std::uint32_t, int>> model;
  int serial = 0;
  std::int64_t now = 0;
  for (int round = 0; round < 5'000; ++round) {
    if (model.empty() || random.below(100) < 55) {
      const std::int64_t at = now + static_cast<std::int64_t>(random.below(8));
      const auto node = static_cast<std::uint32_t>(random.below(3));
      queue.add(Time{at}, node, serial);
      model.emplace_back(at, node, serial++);
      continue;
    }
    const auto first = std::min_element(model.begin(), model.end());
    const auto event = queue.pop();
    EXPECT_EQ(std::tuple(event.at.ps, event.node, event.what), *first);
    now = event.at.ps;
    model.erase(first);
  }
  EXPECT_EQ(queue.size(), model.size());
}

}  // namespace
}  // namespace tulle::sim
