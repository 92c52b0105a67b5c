#include "base/timers.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace tulle {
namespace {

TEST(Timers, StayInOrderWhenTheZeroMoves) {
  using Timer = std::pair<Time, int>;
  std::set<Timer> timers = {
      {Time::seconds(1), 9}, {Time::seconds(2), 3}, {Time::seconds(5), 4}, {Time::never(), 1}};
  rebase_timers(Time::seconds(3), timers);
  EXPECT_EQ(timers,
            (std::set<Timer>{
                {Time::zero(), 3}, {Time::zero(), 9}, {Time::seconds(2), 4}, {Time::never(), 1}}));
}

}  // namespace
}  // namespace tulle
