#include "live/process/busy_poll.h"

#include <gtest/gtest.h>

namespace tulle::live {
namespace {

constexpr Time longest = Time::microseconds(50);

// Returns how many sleeps come before the next look, and takes that look.
std::uint32_t sleeps_before_a_look(BusyPoll& poll) {
  std::uint32_t sleeps = 0;
  while (poll.begin() == Time::zero() && sleeps < 10 * BusyPoll::sleeps_between_max) ++sleeps;
  return sleeps;
}

TEST(BusyPoll, TheFirstSleeperLooksForTheWholeTime) {
  BusyPoll poll(longest);
  EXPECT_EQ(poll.begin(), longest);
}

TEST(BusyPoll, WhileLooksFindSomethingEachSleeperLooks) {
  BusyPoll poll(longest);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(sleeps_before_a_look(poll), 0u);
    poll.end(true);
  }
}

TEST(BusyPoll, LooksInVainBecomeRareAndStayPossible) {
  BusyPoll poll(longest);
  std::uint32_t expected = 0;
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(sleeps_before_a_look(poll), expected) << i;
    poll.end(false);
    expected = std::min(2 * expected + 1, BusyPoll::sleeps_between_max);
  }
  EXPECT_EQ(expected, BusyPoll::sleeps_between_max);
}

TEST(BusyPoll, AFewLooksThatFindSomethingMakeUpForManyInVain) {
  BusyPoll poll(longest);
  for (int i = 0; i < 20; ++i) {
    static_cast<void>(sleeps_before_a_look(poll));
    poll.end(false);
  }
  for (int i = 0; i < 5; ++i) {
    static_cast<void>(sleeps_before_a_look(poll));
    poll.end(true);
  }
  EXPECT_EQ(sleeps_before_a_look(poll), 0u);
}

TEST(BusyPoll, ALookInVainIsForgivenForEachThatFoundSomething) {
  BusyPoll poll(longest);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(sleeps_before_a_look(poll), 0u);
    poll.end(true);
  }
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(sleeps_before_a_look(poll), 0u) << i;
    poll.end(false);
  }
  EXPECT_EQ(sleeps_before_a_look(poll), 1u);
}

// A peer that was of use for years does not make its program look in vain for years.
TEST(BusyPoll, FewLooksInVainAreForgiven) {
  BusyPoll poll(longest);
  for (int i = 0; i < 100'000; ++i) {
    static_cast<void>(sleeps_before_a_look(poll));
    poll.end(true);
  }
  std::uint32_t looks = 0;
  for (; sleeps_before_a_look(poll) == 0; ++looks) poll.end(false);
  EXPECT_EQ(looks, BusyPoll::forgiven_max + 1);
}

TEST(BusyPoll, NobodyLooksForNoTime) {
  BusyPoll poll(Time::zero());
  for (int i = 0; i < 5'000; ++i) EXPECT_EQ(poll.begin(), Time::zero());
}

}  // namespace
}  // namespace tulle::live
