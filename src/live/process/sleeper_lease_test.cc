#include "live/process/sleeper_lease.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "live/process/event_channel.h"

namespace tulle::live {
namespace {

constexpr Time ms(std::int64_t n) { return Time::milliseconds(n); }

struct Sleeper : testing::Test {
  void get_lease(Time at) {
    while (!lease.count_arm(channel, at)) continue;
    lease.begin(channel, at);
  }
  // Returns the number of arms in a row after which a channel would get the lease.
  std::uint32_t arms_needed(Time at) {
    std::uint32_t arms = 1;
    while (!lease.count_arm(channel, at)) ++arms;
    lease.forget_arms();
    return arms;
  }
  SleeperLease lease;
  // The lease does no more with channels than compare their addresses.
  std::unique_ptr<EventChannel> first = std::move(*EventChannel::create());
  std::unique_ptr<EventChannel> second = std::move(*EventChannel::create());
  EventChannel& channel = *first;
  EventChannel& other = *second;
};

TEST_F(Sleeper, TheThirdArmInARowBringsTheLease) {
  EXPECT_FALSE(lease.count_arm(channel, ms(100)));
  EXPECT_FALSE(lease.count_arm(channel, ms(119)));
  EXPECT_TRUE(lease.count_arm(channel, ms(138)));
}

TEST_F(Sleeper, ArmsFarApartAreNotInARow) {
  for (int i = 1; i < 100; ++i) EXPECT_FALSE(lease.count_arm(channel, ms(20 * i)));
}

TEST_F(Sleeper, AHolderThatDoesNotComeIsGivenTwoChecks) {
  get_lease(ms(100));
  EXPECT_EQ(lease.check(ms(101), true), SleeperLease::Check::goes_on);
  EXPECT_EQ(lease.check(ms(102), true), SleeperLease::Check::does_not_come);
}

TEST_F(Sleeper, AHolderThatComesKeepsTheLease) {
  get_lease(ms(100));
  for (int i = 101; i < 200; ++i) {
    EXPECT_EQ(lease.check(ms(i), true), SleeperLease::Check::goes_on);
    lease.note_coming(ms(i));
  }
}

// Two checks may find different things waiting, if the holder came within the last interval.
TEST_F(Sleeper, AHolderThatCameJustNowIsServedByItself) {
  get_lease(ms(100));
  EXPECT_EQ(lease.check(ms(101), true), SleeperLease::Check::goes_on);
  lease.note_coming(ms(101) + Time::microseconds(500));
  EXPECT_EQ(lease.check(ms(102), true), SleeperLease::Check::goes_on);
  EXPECT_EQ(lease.check(ms(103), true), SleeperLease::Check::does_not_come);
}

TEST_F(Sleeper, AnIdleLeaseEnds) {
  get_lease(ms(100));
  EXPECT_EQ(lease.check(ms(119), false), SleeperLease::Check::goes_on);
  EXPECT_EQ(lease.check(ms(120), false), SleeperLease::Check::is_idle);
}

TEST_F(Sleeper, ALeaseThatFailedMakesTheNextOneHarderToGet) {
  EXPECT_EQ(arms_needed(ms(1)), 3u);
  for (const std::uint32_t needed : {6u, 12u, 24u}) {
    get_lease(ms(100));
    lease.end(SleeperLease::End::failed);
    EXPECT_EQ(arms_needed(ms(100)), needed);
  }
  for (int i = 0; i < 20; ++i) lease.defer();
  EXPECT_EQ(arms_needed(ms(100)), 4'096u);
  get_lease(ms(200));
  lease.end(SleeperLease::End::in_order);
  EXPECT_EQ(arms_needed(ms(200)), 3u);
}

// A program that slept for long and computes once is no worse than before.
TEST_F(Sleeper, ALongLeaseDidNotFail) {
  get_lease(ms(100));
  lease.note_coming(ms(121));
  lease.end(SleeperLease::End::failed);
  EXPECT_EQ(arms_needed(ms(130)), 3u);
}

TEST_F(Sleeper, ArmsOfTwoChannelsAreNotInARow) {
  for (int i = 1; i < 100; ++i) {
    EXPECT_FALSE(lease.count_arm(channel, ms(i)));
    EXPECT_FALSE(lease.count_arm(other, ms(i)));
  }
}

// Timers of the adapter make the thread check more often than once in an interval.
TEST_F(Sleeper, WhatWaitsIsGivenAWholeInterval) {
  get_lease(ms(100));
  EXPECT_EQ(lease.check(ms(105), true), SleeperLease::Check::goes_on);
  EXPECT_EQ(lease.check(ms(105) + Time::microseconds(20), true), SleeperLease::Check::goes_on);
  EXPECT_EQ(lease.check(ms(105) + Time::microseconds(999), true), SleeperLease::Check::goes_on);
  EXPECT_EQ(lease.check(ms(106), true), SleeperLease::Check::does_not_come);
}

TEST_F(Sleeper, SixteenVainWakesInARowAreTooMany) {
  get_lease(ms(100));
  for (int i = 0; i < 15; ++i) EXPECT_FALSE(lease.count_vain_wake());
  lease.note_event();
  for (int i = 0; i < 15; ++i) EXPECT_FALSE(lease.count_vain_wake());
  EXPECT_TRUE(lease.count_vain_wake());
}

TEST_F(Sleeper, AChannelThatIsForgottenHasNothing) {
  get_lease(ms(100));
  lease.forget(other);
  EXPECT_TRUE(lease.is_held_by(channel));
  lease.forget(channel);
  EXPECT_EQ(lease.holder(), nullptr);
}

TEST_F(Sleeper, AClockMayMoveItsZero) {
  const Time by = Time::seconds(1'000);
  get_lease(by + ms(100));
  lease.note_coming(by + ms(110));
  lease.rebase(by);
  EXPECT_EQ(lease.check(ms(129), false), SleeperLease::Check::goes_on);
  EXPECT_EQ(lease.check(ms(130), false), SleeperLease::Check::is_idle);
}

// Such a holder reads what the doorbell told of, and leaves the ring itself.
TEST_F(Sleeper, AHolderThatSeesWhatComesKeepsTheLease) {
  get_lease(ms(100));
  for (int i = 101; i < 110; ++i) {
    EXPECT_EQ(lease.check(ms(i), true, ms(i) - Time::microseconds(10)),
              SleeperLease::Check::goes_on);
  }
  EXPECT_EQ(lease.check(ms(110), true, ms(109)), SleeperLease::Check::does_not_come);
}

}  // namespace
}  // namespace tulle::live
