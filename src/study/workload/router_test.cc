#include "study/workload/router.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <vector>

namespace tulle::workload {
namespace {

TEST(Router, ATokensExpertsDiffer) {
  Router router({16, 4, 1, 0, 0, 1});
  for (int i = 0; i < 1'000; ++i) {
    const auto& chosen = router.choose();
    EXPECT_EQ(std::set<std::uint32_t>(chosen.begin(), chosen.end()).size(), 4u);
    EXPECT_LT(*std::ranges::max_element(chosen), 16u);
  }
}

// With this skew nearly all draws meet the most popular expert. A token's second expert then comes
// from the others, whose weights are 977, 17 and five times 1.
TEST(Router, WhatIsLeftIsDrawnByItsWeight) {
  Router router({8, 2, 1, 0, 10, 1});
  std::vector<int> times(8);
  for (int i = 0; i < 1'000; ++i) {
    for (const std::uint32_t expert : router.choose()) ++times[expert];
  }
  std::ranges::sort(times, std::greater());
  EXPECT_GE(times[0], 999);
  EXPECT_NEAR(times[1] / 1'000.0, 977.0 / 999, 0.015);
}

TEST(Router, ATokenKeepsToItsServers) {
  Router router({16, 4, 4, 2, 1, 1});
  for (int i = 0; i < 1'000; ++i) {
    std::set<std::uint32_t> servers;
    for (const std::uint32_t expert : router.choose()) servers.insert(expert / 4);
    EXPECT_LE(servers.size(), 2u);
  }
}

}  // namespace
}  // namespace tulle::workload
