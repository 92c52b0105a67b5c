#include "ranks/values.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace tulle::ranks {
namespace {

using workload::Collective;

constexpr std::uint32_t ranks = 4;
constexpr std::uint64_t count = 64;

Plan plan_of(Collective collective) {
  Plan plan;
  plan.graph = workload::TaskGraph(ranks);
  plan.pieces.part = {1, 2, 3, 0};
  plan.buffer_bytes = count * sizeof(Value);
  plan.collective = collective;
  return plan;
}

Value sum_of(std::uint64_t index, std::uint32_t iteration) {
  Value sum = 0;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) sum += input_of(rank, index, iteration);
  return sum;
}

TEST(Values, DifferByRankPlaceAndIteration) {
  std::set<Value> seen;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    for (std::uint32_t iteration = 0; iteration < 4; ++iteration) {
      for (std::uint64_t i = 0; i < 16; ++i) {
        const Value value = input_of(rank, i, iteration);
        EXPECT_GE(value, 0);
        EXPECT_LE(value, 65'535);
        EXPECT_EQ(value, static_cast<Value>(static_cast<int>(value)));
        seen.insert(value);
      }
    }
  }
  EXPECT_GT(seen.size(), 250u) << "of 256";
}

TEST(Values, AreFilledAndAdded) {
  std::vector<Value> buffer(count), second(count);
  fill(buffer, second, 2, 7);
  for (std::uint64_t i = 0; i < count; ++i) {
    EXPECT_EQ(buffer[i], input_of(2, i, 7));
    EXPECT_LT(second[i], 0);
  }
  const std::vector<Value> ones(count, 1);
  add(buffer.data(), ones.data(), 3);
  EXPECT_EQ(buffer[2], input_of(2, 2, 7) + 1);
  EXPECT_EQ(buffer[3], input_of(2, 3, 7));
}

// For each collective: the right result has no wrong value, and each wrong one is counted.
TEST(Values, WrongOnesAreCounted) {
  constexpr std::uint64_t part = count / ranks;
  const std::vector<Value> none;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    std::vector<Value> sums(count), root(count), gathered(count), exchanged(count);
    const Plan gather = plan_of(Collective::all_gather);
    for (std::uint64_t i = 0; i < count; ++i) {
      sums[i] = sum_of(i, 1);
      root[i] = input_of(0, i, 1);
      for (std::uint32_t owner = 0; owner < ranks; ++owner) {
        if (gather.pieces.part[owner] == i / part) gathered[i] = input_of(owner, i, 1);
      }
      const auto sender = static_cast<std::uint32_t>(i / part);
      exchanged[i] = input_of(sender, rank * part + i % part, 1);
    }
    const auto wrong = [&](Collective collective, const std::vector<Value>& buffer,
                           const std::vector<Value>& second) {
      return count_wrong(plan_of(collective), buffer, second, rank, 1);
    };
    EXPECT_EQ(wrong(Collective::all_reduce, sums, none), 0u);
    EXPECT_EQ(wrong(Collective::reduce_scatter, sums, none), 0u);
    EXPECT_EQ(wrong(Collective::broadcast, root, none), 0u);
    EXPECT_EQ(wrong(Collective::all_gather, gathered, none), 0u);
    EXPECT_EQ(wrong(Collective::all_to_all, none, exchanged), 0u);
    // One value is wrong, in a place that each collective looks at.
    const std::uint64_t own = gather.pieces.part[rank] * part;
    const std::uint64_t others = (rank + 1) % ranks * part;
    for (auto* buffer : {&sums, &root, &gathered}) (*buffer)[own] += 1;
    exchanged[others] += 1;
    EXPECT_EQ(wrong(Collective::all_reduce, sums, none), 1u);
    EXPECT_EQ(wrong(Collective::reduce_scatter, sums, none), 1u);
    EXPECT_EQ(wrong(Collective::broadcast, root, none), 1u);
    EXPECT_EQ(wrong(Collective::all_gather, gathered, none), 1u);
    EXPECT_EQ(wrong(Collective::all_to_all, none, exchanged), 1u);
  }
}

}  // namespace
}  // namespace tulle::ranks
