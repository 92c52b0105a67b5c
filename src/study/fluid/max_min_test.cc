// Tests max-min fairness against allocations that were computed by hand, and random ones against
// its definition.

#include "study/fluid/max_min.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/random.h"

namespace tulle::fluid {
namespace {

using Path = std::vector<LinkIndex>;

FlowSlot add(MaxMin& rates, const Path& path) {
  const FlowSlot slot = rates.add(path);
  rates.settle();
  return slot;
}

TEST(MaxMin, AFlowThatIsAloneHasItsNarrowestLink) {
  MaxMin rates({10, 4, 8}, 3, {});
  const FlowSlot flow = add(rates, {0, 1, 2});
  EXPECT_DOUBLE_EQ(rates.rate(flow), 4);
  EXPECT_EQ(rates.bottleneck(flow), 1u);
  EXPECT_DOUBLE_EQ(rates.used(0), 4);
  EXPECT_EQ(rates.bound(1), 1u);
  EXPECT_EQ(rates.bound(0), 0u);
}

// Bertsekas and Gallager, 6.5.2, figure 6.10: links of capacity 1 in a row, a flow over all of
// them, and flows over one of them. The last link has two flows besides.
TEST(MaxMin, WhatOneFlowCannotUseTheOthersShare) {
  MaxMin rates({1, 1, 1}, 3, {});
  const FlowSlot all = add(rates, {0, 1, 2});
  const FlowSlot first = add(rates, {0});
  const FlowSlot second = add(rates, {1});
  const FlowSlot third = add(rates, {2});
  const FlowSlot fourth = add(rates, {2});
  EXPECT_DOUBLE_EQ(rates.rate(all), 1.0 / 3);
  EXPECT_DOUBLE_EQ(rates.rate(third), 1.0 / 3);
  EXPECT_DOUBLE_EQ(rates.rate(fourth), 1.0 / 3);
  EXPECT_DOUBLE_EQ(rates.rate(first), 2.0 / 3);
  EXPECT_DOUBLE_EQ(rates.rate(second), 2.0 / 3);
  EXPECT_EQ(rates.bound(2), 3u);
}

TEST(MaxMin, AFlowThatGoesLeavesItsShareToTheOthers) {
  MaxMin rates({10, 10}, 2, {});
  const FlowSlot both = add(rates, {0, 1});
  const FlowSlot one = add(rates, {0});
  const FlowSlot other = add(rates, {1});
  EXPECT_DOUBLE_EQ(rates.rate(both), 5);
  rates.remove(one);
  const std::span<const FlowSlot> changed = rates.settle();
  EXPECT_TRUE(changed.empty()) << "the second link still holds both flows to a half";
  rates.remove(other);
  ASSERT_EQ(rates.settle().size(), 1u);
  EXPECT_DOUBLE_EQ(rates.rate(both), 10);
  EXPECT_DOUBLE_EQ(rates.used(0), 10);
  rates.remove(both);
  rates.settle();
  EXPECT_EQ(rates.used(0), 0);
  EXPECT_EQ(rates.bound(0), 0u);
}

TEST(MaxMin, FlowsThatAreAlikeHaveTheSameRate) {
  constexpr std::uint32_t hosts = 8;
  // Each host sends to each other: links 0 to 7 lead from the hosts, 8 to 15 to them.
  MaxMin rates(std::vector<double>(2 * hosts, 7), 2, {});
  std::vector<FlowSlot> flows;
  for (LinkIndex from = 0; from < hosts; ++from) {
    for (LinkIndex to = 0; to < hosts; ++to) {
      if (from != to) flows.push_back(rates.add(Path{from, hosts + to}));
    }
  }
  rates.settle();
  for (const FlowSlot flow : flows) EXPECT_DOUBLE_EQ(rates.rate(flow), 1);
}

TEST(MaxMin, AFlowThatCameAndWentBeforeTheRatesWereComputedLeavesNothing) {
  MaxMin rates({10}, 1, {});
  const FlowSlot stays = rates.add(Path{0});
  rates.remove(rates.add(Path{0}));
  rates.settle();
  EXPECT_DOUBLE_EQ(rates.rate(stays), 10);
  EXPECT_EQ(rates.members(0).size(), 1u);
}

// Checks what defines max-min fairness: no link carries more than it can, and each flow has a full
// link on its path on which no flow is faster.
void expect_max_min(const MaxMin& rates, const std::vector<FlowSlot>& flows, std::uint32_t links,
                    double tolerance) {
  for (LinkIndex link = 0; link < links; ++link) {
    double sum = 0;
    for (const MaxMin::Member member : rates.members(link)) sum += rates.rate(member.flow);
    EXPECT_LE(sum, rates.capacity(link) * (1 + 1e-9)) << "link " << link;
    EXPECT_NEAR(sum, rates.used(link), 1e-9 * rates.capacity(link));
  }
  for (const FlowSlot flow : flows) {
    const LinkIndex bottleneck = rates.link(flow, rates.bottleneck(flow));
    EXPECT_GE(rates.used(bottleneck), rates.capacity(bottleneck) * (1 - 1e-9 - tolerance));
    for (const MaxMin::Member member : rates.members(bottleneck)) {
      EXPECT_LE(rates.rate(member.flow), rates.rate(flow) * (1 + 1e-9) * (1 + 2 * tolerance));
    }
    EXPECT_GT(rates.rate(flow), 0);
  }
}

void play_at_random(std::uint64_t seed, double tolerance) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  constexpr std::uint32_t links = 40;
  constexpr std::uint32_t hops = 5;
  Random random(seed);
  std::vector<double> capacities(links);
  for (double& capacity : capacities) capacity = 1 + static_cast<double>(random.below(4));
  MaxMin rates(capacities, hops, {tolerance});
  std::vector<FlowSlot> flows;
  for (int step = 0; step < 400; ++step) {
    for (std::uint64_t changes = 1 + random.below(3); changes > 0; --changes) {
      if (!flows.empty() && random.chance(0.45)) {
        const std::uint64_t place = random.below(flows.size());
        rates.remove(flows[place]);
        flows.erase(flows.begin() + static_cast<std::ptrdiff_t>(place));
        continue;
      }
      Path path;
      while (path.size() < 1 + random.below(hops)) {
        const auto link = static_cast<LinkIndex>(random.below(links));
        if (std::ranges::count(path, link) == 0) path.push_back(link);
      }
      flows.push_back(rates.add(path));
    }
    rates.settle();
    expect_max_min(rates, flows, links, tolerance);
  }
}

TEST(MaxMin, RandomFlowsAreFairWhateverComesAndGoes) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) play_at_random(seed, 0);
}

// So many links that they are in a heap: flows that all come before the rates are computed.
TEST(MaxMin, ManyFlowsThatComeAtOnceAreFair) {
  constexpr std::uint32_t links = 2'000;
  Random random(31);
  std::vector<double> capacities(links);
  for (double& capacity : capacities) capacity = 1 + static_cast<double>(random.below(4));
  MaxMin rates(capacities, 4, {});
  std::vector<FlowSlot> flows;
  for (int i = 0; i < 3'000; ++i) {
    Path path;
    while (path.size() < 4) {
      const auto link = static_cast<LinkIndex>(random.below(links));
      if (std::ranges::count(path, link) == 0) path.push_back(link);
    }
    flows.push_back(rates.add(path));
  }
  rates.settle();
  expect_max_min(rates, flows, links, 0);
}

// A hundredth of link 0 becomes free, which is within the tolerance.
TEST(MaxMin, WhatIsWithinTheToleranceDisturbsNobody) {
  MaxMin rates({100, 99}, 2, {0.02});
  const FlowSlot one = add(rates, {0});
  const FlowSlot both = add(rates, {0, 1});
  add(rates, {1});
  EXPECT_DOUBLE_EQ(rates.rate(both), 49.5);
  EXPECT_DOUBLE_EQ(rates.rate(one), 50);
}

TEST(MaxMin, AToleranceNeverOverloadsALink) {
  for (std::uint64_t seed = 11; seed <= 20; ++seed) play_at_random(seed, 0.03);
}

}  // namespace
}  // namespace tulle::fluid
