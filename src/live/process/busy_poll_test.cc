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

// A program that sleeps for long, a million times, looks about a thousand times.
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

TEST(BusyPoll, NobodyLooksForNoTime) {
  BusyPoll poll(Time::zero());
  for (int i = 0; i < 5'000; ++i) EXPECT_EQ(poll.begin(), Time::zero());
}

}  // namespace
}  // namespace tulle::live
