// Tests that the scenarios repeat themselves exactly, and that their checker finds what is wrong.

#include <gtest/gtest.h>

#include <set>

#include "tests/scenarios/atomic_history.h"
#include "tests/scenarios/broken.h"
#include "tests/scenarios/streams.h"
#include "tests/scenarios/world.h"

namespace tulle::scenarios {
namespace {

TEST(SimCheck, SameSeedSameRun) {
  std::set<std::uint64_t> digests;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    const Outcome first = World(draw_plan(seed)).run();
    const Outcome second = World(draw_plan(seed)).run();
    EXPECT_EQ(first.digest, second.digest);
    EXPECT_EQ(first.events, second.events);
    EXPECT_TRUE(digests.insert(first.digest).second) << "two seeds, one run";
  }
}

// Nothing in a scenario lasts as long as the clocks are ahead, so that no time is too long ago.
constexpr Time clocks_ahead = Time::seconds(1'000);

TEST(SimCheck, AClockThatMovesItsZeroChangesNothing) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    Plan plan = draw_plan(seed);
    plan.network.clocks = {clocks_ahead, 0};
    const Outcome steady = World(plan).run();
    plan.network.clocks.events_per_rebase = 7;
    const Outcome moved = World(plan).run();
    EXPECT_EQ(steady.digest, moved.digest);
    EXPECT_EQ(steady.events, moved.events);
  }
}

TEST(SimCheck, AClockThatMovesItsZeroChangesNoStream) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    const Outcome steady = play_streams(seed, false, {clocks_ahead, 0});
    const Outcome moved = play_streams(seed, false, {clocks_ahead, 7});
    EXPECT_EQ(steady.digest, moved.digest);
    EXPECT_EQ(steady.events, moved.events);
  }
}

class CheckerFinds : public testing::TestWithParam<Sabotage> {};

TEST_P(CheckerFinds, Sabotage) {
  int occasions = 0;
  for (std::uint64_t seed = 1; occasions < 20; ++seed) {
    ASSERT_LT(seed, 2'000u) << "there are too few occasions";
    World world(draw_plan(seed), GetParam());
    try {
      if (!world.run().sabotaged) continue;
      ADD_FAILURE() << "seed " << seed << ": the checker saw nothing";
    } catch (const Broken& broken) {
      EXPECT_TRUE(world.sabotaged()) << "seed " << seed << ": " << broken.what();
    }
    ++occasions;
  }
}

INSTANTIATE_TEST_SUITE_P(Each, CheckerFinds,
                         testing::Values(Sabotage::completion_twice, Sabotage::completion_lost,
                                         Sabotage::completions_swapped, Sabotage::status_changed,
                                         Sabotage::length_changed, Sabotage::immediate_changed,
                                         Sabotage::guard_byte_written, Sabotage::old_write_repeated,
                                         Sabotage::atomic_twice, Sabotage::event_lost,
                                         Sabotage::request_sent_again, Sabotage::credits_raised,
                                         Sabotage::acknowledged_early),
                         [](const auto& info) { return std::string(name_of(info.param)); });

// The network hands over packets, which no ICRC covers, and damages some of them on the way.
TEST(CheckerFinds, PayloadDamagedUnseen) {
  int damaged = 0, found = 0;
  for (std::uint64_t seed = 1; damaged < 40; ++seed) {
    Plan plan = draw_plan(seed);
    plan.network.carriage = sim::Carriage::packets;
    plan.network.faults.corrupt = 0.1;
    plan.network.faults_end = Time::never();
    World world(plan, Sabotage::payload_damaged);
    try {
      if (world.run().sabotaged) ++damaged;
    } catch (const Broken&) {
      ++damaged;
      ++found;
    }
  }
  // The checker cannot find all damage: an adapter that drops a duplicate does not look at its
  // bytes.
  EXPECT_GE(found, 35);
}

// The same for streams, whose payload nothing covers when they are carried as packets.
TEST(CheckerFinds, StreamDamagedUnseen) {
  int found = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    try {
      static_cast<void>(play_streams(seed, true));
    } catch (const Broken&) {
      ++found;
    }
  }
  EXPECT_GE(found, 15);
}

TEST(SimCheck, SameSeedSameStreams) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    EXPECT_EQ(play_streams(seed).digest, play_streams(seed).digest) << "seed " << seed;
  }
}

AtomicEntry entry(int posted, int completed, std::uint64_t original, std::uint64_t operand,
                  std::uint64_t compare = 0) {
  return {Time{posted}, completed < 0 ? Time::never() : Time{completed}, original, compare,
          operand};
}

TEST(AtomicHistory, Additions) {
  EXPECT_EQ(check_additions(10, 16, {entry(0, 9, 11, 2), entry(0, 9, 10, 1), entry(0, 9, 13, 3)}),
            "");
  // An operation that failed may or may not have been executed.
  EXPECT_EQ(check_additions(10, 15, {entry(0, 9, 14, 1), entry(0, -1, 0, 4)}), "");
  EXPECT_EQ(check_additions(10, 11, {entry(0, 9, 10, 1), entry(0, -1, 0, 4)}), "");
  // In this order: an addition that was executed twice, one that was lost, one seen twice, and one
  // out of time.
  EXPECT_NE(check_additions(10, 14, {entry(0, 9, 10, 2)}), "");
  EXPECT_NE(check_additions(10, 10, {entry(0, 9, 10, 2)}), "");
  EXPECT_NE(check_additions(10, 14, {entry(0, 9, 10, 2), entry(0, 9, 10, 2)}), "");
  EXPECT_NE(check_additions(10, 14, {entry(5, 6, 10, 2), entry(1, 2, 12, 2)}), "");
}

TEST(AtomicHistory, Swaps) {
  // The word goes 1 -> 2 -> 3, and one swap fails to match.
  EXPECT_EQ(check_swaps(1, 3, {entry(0, 9, 2, 3, 2), entry(0, 9, 1, 2, 1), entry(0, 9, 2, 8, 7)}),
            "");
  EXPECT_EQ(check_swaps(1, 3, {entry(0, 9, 2, 3, 2), entry(0, -1, 0, 2, 1)}), "");
  EXPECT_EQ(check_swaps(1, 1, {entry(0, -1, 0, 2, 1)}), "");
  EXPECT_NE(check_swaps(1, 3, {entry(0, 9, 1, 2, 1)}), "") << "another value is there";
  EXPECT_NE(check_swaps(1, 2, {entry(0, 9, 1, 2, 1), entry(0, 9, 1, 3, 1)}), "") << "swapped twice";
  EXPECT_NE(check_swaps(1, 2, {entry(0, 9, 1, 2, 1), entry(0, 9, 5, 3, 1)}), "") << "never there";
  EXPECT_NE(check_swaps(1, 2, {entry(0, 1, 1, 2, 1), entry(5, 9, 1, 3, 7)}), "") << "too late";
}

}  // namespace
}  // namespace tulle::scenarios
