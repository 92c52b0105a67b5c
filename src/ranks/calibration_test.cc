#include "ranks/calibration.h"

#include <gtest/gtest.h>

namespace tulle::ranks {
namespace {

TEST(Calibration, ALineGoesThroughItsPoints) {
  const Line line = line_through({{10, 25}, {100, 205}, {1'000, 2'005}});
  EXPECT_NEAR(line.at_zero, 5, 1e-9);
  EXPECT_NEAR(line.slope, 2, 1e-9);
}

// An error of a tenth counts the same at either end.
TEST(Calibration, ErrorsAreRelative) {
  const Line line = line_through({{1, 1.1}, {10, 10}, {1'000, 1'000}, {10'000, 10'000}});
  EXPECT_NEAR(line.slope, 1, 0.01);
  EXPECT_NEAR(line.at_zero, 0.1, 0.1);
}

TEST(Calibration, NothingIsNegative) {
  const Line through_zero = line_through({{10, 5}, {20, 25}, {30, 45}});
  EXPECT_EQ(through_zero.at_zero, 0);
  EXPECT_GT(through_zero.slope, 0);
  const Line flat = line_through({{10, 45}, {20, 25}, {30, 5}});
  EXPECT_EQ(flat.slope, 0);
  EXPECT_GT(flat.at_zero, 0);
}

TEST(Calibration, MeasuresMessagesThatCanBe) {
  const Plan all = exchange(4, 1u << 20, 100, true, true);
  EXPECT_TRUE(all.graph.check());
  ASSERT_EQ(all.graph.size(), 400u);
  for (std::uint32_t i = 0; i < all.graph.size(); ++i) {
    EXPECT_TRUE(all.graph[i].reduces);
    EXPECT_LE(all.pieces.of[i].source + all.graph[i].bytes, all.buffer_bytes);
    EXPECT_EQ(all.pieces.of[i].source % 4, 0u);
  }
  EXPECT_EQ(exchange(2, 8, 5, false, false).graph.size(), 5u);
  // A message of all the buffer has one place.
  const Plan long_one = exchange(2, 128u << 20, 2, false, false);
  EXPECT_EQ(long_one.buffer_bytes, 128u << 20);
  EXPECT_EQ(long_one.pieces.of[1].source, 0u);
  const Plan round = hops(3, 7);
  EXPECT_TRUE(round.graph.check());
  EXPECT_EQ(round.graph[6].rank, 0u);
  EXPECT_EQ(round.graph[6].peer, 1u);
}

}  // namespace
}  // namespace tulle::ranks
