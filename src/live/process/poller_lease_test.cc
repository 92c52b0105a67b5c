#include "live/process/poller_lease.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

namespace tulle::live {
namespace {

std::uint32_t polls_until_lease(PollerLease& lease) {
  std::uint32_t polls = 1;
  while (!lease.count_poll()) ++polls;
  return polls;
}

TEST(PollerLeaseTest, PollsInARowGetTheLease) {
  PollerLease lease;
  for (std::uint32_t i = 0; i + 1 < PollerLease::polls_min; ++i) EXPECT_FALSE(lease.count_poll());
  lease.forget_polls();
  EXPECT_EQ(polls_until_lease(lease), PollerLease::polls_min);
  lease.begin(Time::zero());
  EXPECT_TRUE(lease.is_held());
  EXPECT_FALSE(lease.count_poll()) << "the caller has it";
  lease.end();
  EXPECT_FALSE(lease.is_held());
}

TEST(PollerLeaseTest, ALeaseThatKeptDatagramsWaitingMakesTheNextOneHarder) {
  PollerLease lease;
  std::uint32_t needed = PollerLease::polls_min;
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(polls_until_lease(lease), needed);
    lease.begin(Time::zero());
    lease.end();
    lease.forget_polls();
    lease.end_late(Time::seconds(1), true);
    needed = std::min(needed * 2, PollerLease::polls_max);
  }
  lease.begin(Time::zero());
  lease.end();
  lease.end_late(PollerLease::long_lease, false);
  EXPECT_EQ(polls_until_lease(lease), PollerLease::polls_max) << "it was too short";
  lease.forget_polls();
  lease.begin(Time::zero());
  lease.end();
  lease.end_late(PollerLease::long_lease + Time::milliseconds(1), false);
  EXPECT_EQ(polls_until_lease(lease), PollerLease::polls_min);
}

}  // namespace
}  // namespace tulle::live
