#include "sim/calendar.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace tulle::sim {
namespace {

constexpr auto ignored = [](std::uint32_t) {};

// Plays all rounds until then, and returns the turn and the datum of each event.
std::vector<std::pair<std::uint32_t, std::uint32_t>> play(Calendar& calendar,
                                                          Time until = Time::never()) {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> played;
  while (calendar.begin_round(until)) {
    while (calendar.begin_turn(ignored)) {
      while (!calendar.is_turn_over()) played.emplace_back(calendar.turn(), calendar.pop().datum);
    }
  }
  return played;
}

TEST(Calendar, NodesTakeTurnsInARound) {
  Calendar calendar;
  calendar.take_turns(Time{10}, 2, Time{20});
  calendar.plan(1, {.at = 3, .datum = 3});
  calendar.plan(0, {.at = 12, .datum = 12});
  calendar.plan(0, {.at = 5, .datum = 5});
  calendar.plan(0, {.at = 4, .datum = 4});
  EXPECT_FALSE(calendar.has_begun());
  EXPECT_EQ(calendar.next(), Time{3});
  EXPECT_EQ(calendar.next_round(), Time{0});
  using Played = std::vector<std::pair<std::uint32_t, std::uint32_t>>;
  EXPECT_EQ(play(calendar), (Played{{0, 4}, {0, 5}, {1, 3}, {0, 12}}));
  EXPECT_TRUE(calendar.has_begun());
  EXPECT_EQ(calendar.events(), 4u);
  EXPECT_EQ(calendar.latest(), Time{12});
  EXPECT_TRUE(calendar.next().is_never());
}

TEST(Calendar, ASharedTurnIsInTheOrderOfTime) {
  Calendar calendar;
  calendar.take_turns(Time{10}, 2, Time{20});
  for (const std::uint32_t at : {3u, 12u}) calendar.plan(1, {.at = at, .datum = at});
  for (const std::uint32_t at : {4u, 5u}) calendar.plan(0, {.at = at, .datum = at});
  calendar.share_turn(Time{8});
  EXPECT_TRUE(calendar.is_turn_shared());
  using Played = std::vector<std::pair<std::uint32_t, std::uint32_t>>;
  EXPECT_EQ(play(calendar), (Played{{0, 3}, {0, 4}, {0, 5}, {0, 12}}));
}

TEST(Calendar, ATurnMayPlanForItselfAndForLaterRounds) {
  Calendar calendar;
  calendar.take_turns(Time{10}, 2, Time{20});
  calendar.plan(1, {.at = 3, .datum = 3});
  ASSERT_TRUE(calendar.begin_round(Time::never()));
  ASSERT_TRUE(calendar.begin_turn(ignored));
  EXPECT_EQ(calendar.pop().datum, 3u);
  EXPECT_EQ(calendar.now(), Time{3});
  EXPECT_TRUE(calendar.is_turn_over());
  calendar.plan(1, {.at = 9, .datum = 9});
  calendar.plan(0, {.at = 10, .datum = 10});
  EXPECT_EQ(calendar.next(), Time{9});
  EXPECT_EQ(calendar.pop().datum, 9u);
  EXPECT_FALSE(calendar.begin_turn(ignored));
  EXPECT_EQ(calendar.latest(), Time{9});
  EXPECT_EQ(play(calendar).size(), 1u);
}

TEST(CalendarDeathTest, ATurnPlansNothingForOthersInItsRound) {
  Calendar calendar;
  calendar.take_turns(Time{10}, 2, Time{20});
  calendar.plan(1, {.at = 3});
  ASSERT_TRUE(calendar.begin_round(Time::never()));
  ASSERT_TRUE(calendar.begin_turn(ignored));
  EXPECT_DEATH(calendar.plan(0, {.at = 9}), "internal error");
}

TEST(Calendar, StopsBeforeWhatIsLater) {
  Calendar calendar;
  calendar.take_turns(Time{10}, 1, Time{20});
  for (const std::uint32_t at : {3u, 7u}) calendar.plan(0, {.at = at, .datum = at});
  EXPECT_EQ(play(calendar, Time{5}).size(), 1u);
  calendar.rest();
  EXPECT_EQ(calendar.now(), Time{3});
  EXPECT_EQ(calendar.next(), Time{7});
  EXPECT_EQ(play(calendar, Time{7}).size(), 1u);
}

TEST(Calendar, NamesTheNodeWhoseTurnIsNext) {
  Calendar calendar;
  calendar.take_turns(Time{10}, 3, Time{20});
  for (const std::uint32_t turn : {2u, 0u}) calendar.plan(turn, {.at = 1, .datum = turn});
  std::vector<std::uint32_t> prepared, seen;
  const auto prepare = [&](std::uint32_t turn) { prepared.push_back(turn); };
  const auto see = [&](const Event& event) { seen.push_back(event.datum); };
  ASSERT_TRUE(calendar.begin_round(Time::never()));
  ASSERT_TRUE(calendar.begin_turn(prepare));
  calendar.look_ahead(see);
  calendar.look_ahead(see);
  EXPECT_EQ(prepared, std::vector<std::uint32_t>{2});
  EXPECT_EQ(seen, std::vector<std::uint32_t>{2});
}

}  // namespace
}  // namespace tulle::sim
