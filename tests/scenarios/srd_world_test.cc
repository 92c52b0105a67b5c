// Tests that the scenarios of SRD repeat themselves exactly, and that their checker finds what is
// wrong.

#include "tests/scenarios/srd_world.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/scenarios/broken.h"

namespace tulle::scenarios {
namespace {

TEST(SrdCheck, SameSeedSameRun) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    const SrdWorld::Outcome first = SrdWorld(seed).run();
    const SrdWorld::Outcome second = SrdWorld(seed).run();
    EXPECT_EQ(first.digest, second.digest);
    EXPECT_EQ(first.events, second.events);
  }
}

TEST(SrdCheck, AClockThatMovesItsZeroChangesNothing) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    const Time ahead = Time::seconds(1'000);
    const auto steady = SrdWorld(seed, SrdSabotage::none, {ahead, 0}).run();
    const auto moved = SrdWorld(seed, SrdSabotage::none, {ahead, 7}).run();
    EXPECT_EQ(steady.digest, moved.digest);
    EXPECT_EQ(steady.events, moved.events);
  }
}

class SrdCheckerFinds : public testing::TestWithParam<SrdSabotage> {};

TEST_P(SrdCheckerFinds, Sabotage) {
  int occasions = 0;
  for (std::uint64_t seed = 1; occasions < 20; ++seed) {
    ASSERT_LT(seed, 2'000u) << "there are too few occasions";
    SrdWorld world(seed, GetParam());
    try {
      static_cast<void>(world.run());
      if (!world.sabotaged()) continue;
      ADD_FAILURE() << "seed " << seed << ": the checker saw nothing";
    } catch (const Broken& broken) {
      EXPECT_TRUE(world.sabotaged()) << "seed " << seed << ": " << broken.what();
    }
    ++occasions;
  }
}

INSTANTIATE_TEST_SUITE_P(Each, SrdCheckerFinds,
                         testing::Values(SrdSabotage::completion_twice,
                                         SrdSabotage::completion_lost, SrdSabotage::status_changed,
                                         SrdSabotage::arrival_twice, SrdSabotage::arrival_lost,
                                         SrdSabotage::received_byte_changed,
                                         SrdSabotage::written_byte_changed,
                                         SrdSabotage::stray_byte_written),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace tulle::scenarios
