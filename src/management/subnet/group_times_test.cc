#include "management/subnet/group_times.h"

#include <gtest/gtest.h>

namespace tulle::management::subnet {
namespace {

TEST(GroupTimesTest, ThePauseIsAsLongAsTheWork) {
  GroupTimes times;
  EXPECT_EQ(times.next(), Time::zero());
  EXPECT_TRUE(times.next_end().is_never());
  times.begin(Time::seconds(1));
  EXPECT_GT(times.next_end(), Time::seconds(1));
  times.end(Time::seconds(1));
  EXPECT_EQ(times.next(), Time::zero()) << "no time has passed yet";
  const Time took = Time::milliseconds(30);
  times.end(Time::seconds(1) + took);
  EXPECT_EQ(times.next(), Time::seconds(1) + took + took);
  EXPECT_TRUE(times.next_end().is_never());
  times.end(Time::seconds(9));
  EXPECT_EQ(times.next(), Time::seconds(1) + took + took) << "it has ended before";
}

TEST(GroupTimesTest, ThePauseHasABound) {
  GroupTimes times;
  times.begin(Time::zero());
  times.end(Time::seconds(2));
  EXPECT_EQ(times.next(), Time::seconds(2) + GroupTimes::pause_max);
}

TEST(GroupTimesTest, ThePauseIsTheSameIfTheZeroMoves) {
  GroupTimes times;
  times.begin(Time::seconds(11));
  times.rebase(Time::seconds(10));
  EXPECT_EQ(times.next_end(), Time::seconds(1) + Time::picoseconds(1));
  const Time took = Time::milliseconds(30);
  times.end(Time::seconds(1) + took);
  times.rebase(Time::milliseconds(500));
  EXPECT_EQ(times.next(), Time::milliseconds(500) + took + took);
}

}  // namespace
}  // namespace tulle::management::subnet
