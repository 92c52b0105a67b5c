#include "sim/turn.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <set>
#include <tuple>

#include "base/random.h"

namespace tulle::sim {
namespace {

using Key = std::tuple<std::int64_t, std::uint32_t, std::uint32_t>;  // at, place, datum
Key key_of(const Event& event) { return {event.at, event.place, event.datum}; }

TEST(Turn, TimeThenPlaceThenDatum) {
  const Event sorted[] = {{.at = 10, .datum = 9, .place = 5},
                          {.at = 11, .datum = 0, .place = 0},
                          {.at = 11, .datum = 1, .place = 0},
                          {.at = 11, .datum = 0, .place = 1},
                          {.at = 12, .datum = 0, .place = 0}};
  Turn turn;
  turn.begin(Time{10}, Time{20});
  turn.give(std::array{sorted[3], sorted[0], sorted[4], sorted[1]}, 3);
  turn.sort();
  for (const int i : {2, 1}) turn.insert(sorted[i]);
  for (const Event& expected : sorted) {
    EXPECT_EQ(key_of(turn.next()), key_of(expected));
    EXPECT_EQ(key_of(turn.pop()), key_of(expected));
  }
  EXPECT_TRUE(turn.empty());
}

TEST(Turn, ShowsWhatComes) {
  constexpr std::int64_t events = Turn::ahead + 2;
  Turn turn;
  turn.begin(Time{0}, Time{20});
  for (std::int64_t at = events; at-- > 0;) turn.give(std::array{Event{at}}, 1);
  turn.sort();
  for (std::int64_t at = Turn::ahead; at < events; ++at) {
    EXPECT_EQ(turn.peek_known().at, at);
    turn.pop();
  }
  EXPECT_EQ(turn.peek_known().place, 0xFFFF'FFFF);
}

TEST(Turn, TheLatestTimeIsNoEnd) {
  const Event latest{std::numeric_limits<std::int64_t>::max(), 7, 7};
  Turn turn;
  turn.begin(Time{0}, Time{20});
  turn.sort();
  turn.insert(latest);
  EXPECT_FALSE(turn.empty());
  EXPECT_EQ(key_of(turn.pop()), key_of(latest));
  EXPECT_TRUE(turn.empty());
}

// Compares a turn with a sorted set. The events are few or many, spread over the turn or all at
// some moments, and more are planned during the turn.
TEST(Turn, LikeASortedSet) {
  Random random(1);
  Turn turn;
  for (int round = 0; round < 300; ++round) {
    const auto start = static_cast<std::int64_t>(random.below(1'000'000'000));
    const std::uint64_t length = 1 + random.below(round % 2 == 0 ? 50 : 1'000'000);
    const std::uint64_t grain = 1 + random.below(length);  // of the times drawn
    std::set<Key> expected;
    const auto drawn = [&](std::uint64_t from) {
      const std::uint64_t offset = from + random.below(length - from);
      return Event{start + static_cast<std::int64_t>(std::max(from, offset / grain * grain)),
                   static_cast<std::uint32_t>(random.below(8)),
                   static_cast<std::uint32_t>(random.below(1'000'000))};
    };
    turn.begin(Time{start}, Time{start + static_cast<std::int64_t>(length)});
    for (std::uint64_t left = random.below(1'000); left > 0; --left) {
      const Event event = drawn(0);
      if (expected.insert(key_of(event)).second) turn.give(std::array{event}, 1);
    }
    turn.sort();
    for (std::uint64_t left = random.below(1'000); !turn.empty();) {
      const Event event = turn.pop();
      ASSERT_EQ(key_of(event), *expected.begin());
      expected.erase(expected.begin());
      for (std::uint64_t more = random.below(4); more > 0 && left > 0; --more, --left) {
        Event added = drawn(static_cast<std::uint64_t>(event.at - start));
        if (!event.before(added)) continue;
        if (expected.insert(key_of(added)).second) turn.insert(added);
      }
    }
    ASSERT_TRUE(expected.empty());
  }
}

}  // namespace
}  // namespace tulle::sim
