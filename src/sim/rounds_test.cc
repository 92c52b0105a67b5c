#include "sim/rounds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/random.h"

namespace tulle::sim {
namespace {

constexpr std::int64_t length = 1'000;

using Found = std::multimap<std::uint32_t, std::int64_t>;  // node, time

// Calls a function with each event of a node's turn.
template <typename Visit>
void take_each(Rounds& rounds, std::uint32_t node, Visit visit) {
  rounds.take(node, [&](const Rounds::Events& events, std::size_t count) {
    std::for_each_n(events.begin(), count, visit);
  });
}

// Goes through the earliest round, but not beyond `until`.
Found sweep(Rounds& rounds, Time until = Time::never()) {
  Found found;
  if (!rounds.begin(until)) return found;
  for (std::uint32_t node; (node = rounds.next_node()) != Rounds::no_node;) {
    take_each(rounds, node, [&](const Event& event) { found.emplace(node, event.at); });
  }
  return found;
}

TEST(Rounds, EachRoundByItselfAndItsNodesInOrder) {
  Rounds rounds(Time{length}, 200, 16);
  rounds.add(130, {1'999, 0, 0});
  rounds.add(7, {1'000, 0, 0});
  rounds.add(130, {1'000, 0, 0});
  rounds.add(199, {2'000, 0, 0});
  EXPECT_EQ(rounds.next(), Time{1'000});
  EXPECT_EQ(sweep(rounds), (Found{{7, 1'000}, {130, 1'999}, {130, 1'000}}));
  EXPECT_EQ(rounds.start(), Time{1'000});
  EXPECT_EQ(rounds.end(), Time{2'000});
  EXPECT_EQ(sweep(rounds), (Found{{199, 2'000}}));
  EXPECT_TRUE(rounds.empty());
  EXPECT_TRUE(rounds.next().is_never());
  EXPECT_FALSE(rounds.begin(Time::never()));
}

TEST(Rounds, NamesTheNodesWhoseTurnComes) {
  Rounds rounds(Time{length}, 200, 16);
  for (const std::uint32_t node : {3u, 64u, 199u}) rounds.add(node, {10, 0, 0});
  EXPECT_EQ(rounds.next_node(), Rounds::no_node) << "nothing has begun";
  ASSERT_TRUE(rounds.begin(Time::never()));
  EXPECT_EQ(rounds.peek_node(), 3u);
  EXPECT_EQ(rounds.next_node(), 3u);
  EXPECT_EQ(rounds.peek_node(), 64u);
  EXPECT_EQ(rounds.next_node(), 64u);
  EXPECT_EQ(rounds.next_node(), 199u);
  EXPECT_EQ(rounds.peek_node(), Rounds::no_node);
}

TEST(Rounds, ARoundThatIsCutGoesOn) {
  Rounds rounds(Time{length}, 4, 16);
  for (const std::int64_t at : {100, 200, 300}) rounds.add(1, {at, 0, 0});
  EXPECT_EQ(sweep(rounds, Time{99}), Found{});
  EXPECT_EQ(sweep(rounds, Time{200}), (Found{{1, 100}, {1, 200}}));
  EXPECT_EQ(rounds.end(), Time{201});
  EXPECT_EQ(rounds.next_node(), Rounds::no_node) << "it has had its turn, and has more for later";
  EXPECT_EQ(sweep(rounds, Time{299}), Found{});
  rounds.add(0, {250, 0, 0});
  EXPECT_EQ(rounds.next(), Time{250});
  EXPECT_EQ(sweep(rounds), (Found{{0, 250}, {1, 300}}));
}

TEST(Rounds, NothingIsDoneBeforeItsTimeWhereTheNextIsFar) {
  Rounds rounds(Time{length}, 4, 16);
  rounds.add(2, {5'000'000'300, 0, 0});
  EXPECT_FALSE(rounds.begin(Time{5'000'000'299}));
  rounds.add(1, {40, 0, 0});  // it is earlier, though added later
  EXPECT_EQ(sweep(rounds), (Found{{1, 40}}));
  EXPECT_EQ(sweep(rounds), (Found{{2, 5'000'000'300}}));
}

TEST(Rounds, ShowsWhatIsToCome) {
  Rounds rounds(Time{length}, 4, 16);
  std::multiset<std::int64_t> expected, found;
  for (std::int64_t at = 0; at < 70; ++at) {
    rounds.add(2, {at, 0, 0});
    expected.insert(at);
  }
  ASSERT_TRUE(rounds.begin(Time::never()));
  EXPECT_TRUE(rounds.view(1).empty());
  for (Rounds::View view = rounds.view(2); !view.empty();) {
    rounds.look(view, [&](const Event& event) { found.insert(event.at); });
  }
  EXPECT_EQ(found, expected);
}

TEST(Rounds, FindsTheRoundOfEveryPicosecond) {
  for (const std::int64_t odd : {1, 3, 999'983, 4'000'000}) {
    Random random(static_cast<std::uint64_t>(odd));
    Rounds rounds(Time{odd}, 1, 1 << 14);
    for (int i = 0; i < 2'000; ++i) {
      const auto round = static_cast<std::int64_t>(random.below(1 << 14));
      for (const std::int64_t at : {round * odd, (round + 1) * odd - 1}) rounds.add(0, {at, 0, 0});
    }
    while (rounds.begin(Time::never())) {
      ASSERT_EQ(rounds.next_node(), 0u);
      take_each(rounds, 0,
                [&](const Event& event) { ASSERT_EQ(event.at / odd, rounds.start().ps / odd); });
      ASSERT_EQ(rounds.next_node(), Rounds::no_node);
    }
  }
}

// Compares the rounds with a sorted multiset. Spans reach from within a round to far beyond the
// kept rounds.
TEST(Rounds, LikeASortedList) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    Rounds rounds(Time{length}, 100, 16);
    std::multiset<std::tuple<std::int64_t, std::uint32_t, std::uint32_t>> expected;
    const auto add = [&](std::int64_t at) {
      const auto node = static_cast<std::uint32_t>(random.below(100));
      const auto datum = static_cast<std::uint32_t>(random.below(1'000));
      rounds.add(node, {at, datum, 0});
      expected.emplace(at, node, datum);
    };
    for (int i = 0; i < 500; ++i) add(static_cast<std::int64_t>(random.below(100'000)));
    int later = 3'000;  // number of events to add on the way
    while (!rounds.empty()) {
      ASSERT_EQ(rounds.next().ps, std::get<0>(*expected.begin()));
      const std::int64_t reach = random.chance(0.5) ? length * 3 : length / 4;
      ASSERT_TRUE(rounds.begin(Time{rounds.next().ps + reach}));
      const std::int64_t end = rounds.end().ps;
      for (std::uint32_t node; (node = rounds.next_node()) != Rounds::no_node;) {
        take_each(rounds, node, [&](const Event& event) {
          ASSERT_GE(event.at, rounds.start().ps);
          ASSERT_LT(event.at, end);
          const auto found = expected.find({event.at, node, event.datum});
          ASSERT_NE(found, expected.end());
          expected.erase(found);
        });
        constexpr std::uint64_t spans[] = {500, 20'000, 10'000'000'000};
        if (later-- > 0) add(end + static_cast<std::int64_t>(random.below(spans[later % 3])));
      }
      ASSERT_TRUE(expected.empty() || std::get<0>(*expected.begin()) >= end);
    }
    EXPECT_TRUE(expected.empty());
  }
}

}  // namespace
}  // namespace tulle::sim
