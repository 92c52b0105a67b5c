#include "live/clock.h"

#include <gtest/gtest.h>

#include <vector>

namespace tulle::live {
namespace {

constexpr std::int64_t second = 1'000'000'000, day = 86'400 * second;
std::int64_t monotonic;

class DriverClockTest : public testing::Test {
 protected:
  DriverClockTest() { monotonic = 4'000 * day; }  // the machine has been up for eleven years
  static DriverClock clock() {
    return DriverClock([] { return monotonic; });
  }
  Time now(DriverClock& clock) {
    return clock.now([this](Time by) { rebased.push_back(by); });
  }
  std::vector<Time> rebased;
};

TEST_F(DriverClockTest, BeginsAtZeroHoweverLongTheMachineHasBeenUp) {
  DriverClock clock = this->clock();
  EXPECT_EQ(now(clock), Time::zero());
  monotonic += 5 * second;
  EXPECT_EQ(now(clock), Time::seconds(5));
  EXPECT_EQ(clock.peek(), Time::seconds(5));
  EXPECT_EQ(clock.monotonic_nanoseconds(Time::seconds(5)), monotonic);
  EXPECT_TRUE(rebased.empty());
}

// The times that a driver keeps, rebased, stay as far from now as they are.
TEST_F(DriverClockTest, RunsForTenYears) {
  DriverClock clock = this->clock();
  Time deadline = Time::never();
  std::int64_t due = 0;
  int moves = 0;
  for (std::int64_t hour = 0; hour < 3'652 * 24; ++hour) {
    const Time at = clock.now([&](Time by) {
      rebase(by, deadline);
      ++moves;
    });
    ASSERT_GE(at, Time::zero());
    ASSERT_LE(at, DriverClock::longest);
    if (!deadline.is_never()) {
      ASSERT_EQ((deadline - at).to_nanoseconds(), due - monotonic);
      ASSERT_EQ(clock.monotonic_nanoseconds(deadline), due);
    }
    if (hour % 7 == 0) {
      deadline = at + Time::seconds(9 * 3'600);
      due = monotonic + 9 * 3'600 * second;
    }
    monotonic += 3'600 * second;
  }
  EXPECT_GT(moves, 70);
}

// A process that was stopped comes back after longer than Time can tell.
TEST_F(DriverClockTest, BearsAGapOfAnyLength) {
  DriverClock clock = this->clock();
  Time a_moment_ago = now(clock), soon = Time::seconds(1);
  for (const std::int64_t gap : {51 * day, 107 * day, 5'000 * day}) {
    monotonic += gap;
    EXPECT_GE(clock.peek(), Time::zero());
    EXPECT_EQ(clock.now([&](Time by) { rebase(by, a_moment_ago, soon); }), DriverClock::kept);
    EXPECT_LE(soon, DriverClock::kept) << "what was due is not due";
    EXPECT_EQ(a_moment_ago, Time::zero());
  }
}

}  // namespace
}  // namespace tulle::live
