#include "sim/calendar.h"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "base/random.h"

namespace tulle::sim {
namespace {

// What a calendar is to be: a sorted multimap.
using Key = std::tuple<std::int64_t, std::uint32_t, std::uint32_t>;  // at, place, datum
Key key_of(const CalendarEvent& event) { return {event.at, event.place, event.datum}; }

class Pair {
 public:
  explicit Pair(Time day) : calendar(day) {}

  void add(const CalendarEvent& event) {
    calendar.add(event);
    expected.emplace(key_of(event), event.datum);
  }
  // Takes the next event from both; the time of it.
  std::int64_t pop() {
    EXPECT_FALSE(calendar.empty());
    EXPECT_EQ(calendar.size(), expected.size());
    EXPECT_EQ(calendar.next(), std::get<0>(expected.begin()->first));
    const CalendarEvent event = calendar.pop();
    EXPECT_EQ(key_of(event), expected.begin()->first);
    expected.erase(expected.begin());
    return event.at;
  }

  Calendar calendar;
  std::multimap<Key, std::uint32_t> expected;
};

// Spans from within one day to far beyond the calendar's year of 16,384 days.
std::int64_t random_span(Random& random) {
  constexpr std::int64_t spans[] = {1, 50, 5'000, 400'000, 100'000'000, 40'000'000'000'000};
  return static_cast<std::int64_t>(
      random.below(static_cast<std::uint64_t>(spans[random.below(std::size(spans))])));
}

void random_events(Time day, std::uint64_t seed) {
  SCOPED_TRACE(testing::Message() << "seed " << seed << ", day " << day.ps << " ps");
  Random random(seed);
  Pair pair(day);
  std::int64_t now = 0;
  for (int step = 0; step < 20'000 && !testing::Test::HasFailure(); ++step) {
    const bool adds = pair.expected.empty() || random.below(100) < (step < 12'000 ? 55u : 30u);
    if (adds) {
      pair.add({now + random_span(random), static_cast<std::uint32_t>(random.below(4)),
                static_cast<std::uint32_t>(random.below(4))});
    } else {
      const std::int64_t at = pair.pop();
      EXPECT_GE(at, now);
      now = at;
    }
  }
  while (!pair.expected.empty() && !testing::Test::HasFailure()) pair.pop();
  EXPECT_TRUE(pair.calendar.empty() || testing::Test::HasFailure());
}

TEST(Calendar, GivesEventsAsASortedMultimapDoes) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) random_events(Time::nanoseconds(40), seed);
}

TEST(Calendar, TheDaysLengthChangesNothingButSpeed) {
  // Below and above what the constructor rounds to: 64 ps and 16.8 us.
  for (const std::int64_t day : {0, 1, 64, 65, 1'000, 1 << 20, 1 << 24, 1 << 30}) {
    random_events(Time{day}, 99);
  }
}

TEST(Calendar, EventsAtOneTimeComeByPlaceThenByDatum) {
  Pair pair(Time::nanoseconds(1));
  for (const std::uint32_t place : {3u, 1u, 2u}) {
    for (const std::uint32_t datum : {9u, 7u, 8u}) pair.add({5'000, place, datum});
  }
  for (int i = 0; i < 9; ++i) pair.pop();
}

TEST(Calendar, AnEventMayComeBeforeOneThatWasLookedAt) {
  // Looking for the next event turns the calendar to its day;
  // the application then adds earlier ones.
  Pair pair(Time::nanoseconds(1));
  pair.add({1'000'000'000, 1, 1});
  EXPECT_EQ(pair.calendar.next(), 1'000'000'000);
  pair.add({500, 2, 2});
  pair.add({1'000'000'000, 0, 0});
  pair.add({999'999'999, 4, 4});
  EXPECT_EQ(pair.pop(), 500);
  EXPECT_EQ(pair.pop(), 999'999'999);
  EXPECT_EQ(pair.pop(), 1'000'000'000);
  EXPECT_EQ(pair.pop(), 1'000'000'000);
}

TEST(Calendar, TheYearsEdge) {
  // A day of 1,024 ps: the year ends 16,384 days on, where a day's place in the table comes again.
  constexpr std::int64_t day = 1'024, year = 16'384 * day;
  Pair pair(Time{day});
  pair.add({0, 1, 0});
  pair.pop();  // today is day 0
  for (const std::int64_t at : {year - 1, year, year + 1, year + day - 1, year + day, 2 * year,
                                day - 1, day, 2 * year - 1, 40 * year}) {
    pair.add({at, 1, 0});
  }
  while (!pair.expected.empty()) pair.pop();
}

TEST(Calendar, ManyEventsInOneDay) {
  Random random(7);
  Pair pair(Time::nanoseconds(1));
  for (std::uint32_t i = 0; i < 1'000; ++i) {
    pair.add({2'000'000 + static_cast<std::int64_t>(random.below(500)), 1, i});
  }
  for (int i = 0; i < 500; ++i) {
    const std::int64_t now = pair.pop();
    if (i % 2 == 0) pair.add({now, 0, 1'000'000 + static_cast<std::uint32_t>(i)});
  }
  while (!pair.expected.empty()) pair.pop();
}

TEST(Calendar, PeekSeesWhatIsNextAndTouchesNothing) {
  Calendar calendar(Time::nanoseconds(1));
  for (std::uint32_t i = 0; i < 5; ++i) calendar.add({100 + i, 1, i});
  EXPECT_EQ(calendar.pop().datum, 0u);
  ASSERT_NE(calendar.peek(3), nullptr);
  EXPECT_EQ(calendar.peek(0)->datum, 1u);
  EXPECT_EQ(calendar.peek(3)->datum, 4u);
  EXPECT_EQ(calendar.peek(4), nullptr);
  EXPECT_EQ(calendar.size(), 4u);
}

}  // namespace
}  // namespace tulle::sim
