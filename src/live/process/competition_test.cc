#include "live/process/competition.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace tulle::live {
namespace {

constexpr std::int64_t slice = 3'000'000;
constexpr std::int64_t look = 15'000;  // of 128 polls

// A polling thread, whose two clocks the tests move.
struct Poller {
  std::int64_t time = 1'000'000'000, processor_time = 500;
  Competition competition;

  bool polls() {
    time += look;
    processor_time += look;
    return competition.note(time, processor_time);
  }
  void is_off(std::int64_t nanoseconds) { time += nanoseconds; }
};

TEST(Competition, AThreadThatHasItsProcessorHasNoCompetitors) {
  Poller poller;
  for (int i = 0; i < 100'000; ++i) ASSERT_FALSE(poller.polls()) << i;
}

TEST(Competition, WhatHappenedBeforeTheFirstLookDoesNotCount) {
  Poller poller;
  poller.is_off(slice);
  EXPECT_FALSE(poller.polls());
}

TEST(Competition, ALostSliceIsRemembered) {
  Poller poller;
  poller.polls();
  poller.is_off(slice);
  const std::int64_t back = poller.time;
  std::int64_t looks = 0;
  while (poller.polls()) ++looks;
  EXPECT_GE(poller.time - back, Competition::remembered_nanoseconds);
  EXPECT_LE(poller.time - back, Competition::remembered_nanoseconds + 2 * look);
  EXPECT_GT(looks, 1'000);
}

TEST(Competition, TheKernelsOwnWorkIsNoCompetitor) {
  Poller poller;
  for (int i = 0; i < 1'000; ++i) {
    poller.is_off(40'000);
    ASSERT_FALSE(poller.polls()) << i;
  }
}

TEST(Competition, APauseIsNotLost) {
  Poller poller;
  poller.polls();
  poller.competition.note_pause();
  poller.is_off(slice);
  EXPECT_FALSE(poller.polls());
  poller.is_off(slice);
  EXPECT_TRUE(poller.polls()) << "this was no pause";
}

// The child of a fork begins with a processor time of zero.
TEST(Competition, AClockThatWentBackIsHarmless) {
  Poller poller;
  poller.polls();
  poller.processor_time = 0;
  poller.polls();
  poller.is_off(Competition::remembered_nanoseconds);
  poller.competition.note_pause();
  EXPECT_FALSE(poller.polls());
}

}  // namespace
}  // namespace tulle::live
