#include "transport/congestion/infiniband.h"

#include <gtest/gtest.h>

#include "transport/congestion/pacing.h"

namespace tulle::transport::congestion {
namespace {

constexpr Time us(std::int64_t n) { return Time::microseconds(n); }
constexpr Time ns(std::int64_t n) { return Time::nanoseconds(n); }

// At 8 Gb/s a byte takes a nanosecond.
InfinibandSettings settings_of(std::vector<TableEntry> table) {
  InfinibandSettings settings;
  settings.enabled = true;
  settings.line_bits_per_second = 8'000'000'000;
  settings.timer = us(10);
  settings.table = std::move(table);
  return settings;
}

// Delays of 0, 1, 2 … packets.
InfinibandSettings steps(std::size_t entries) {
  std::vector<TableEntry> table(entries);
  for (std::size_t i = 0; i < entries; ++i) table[i].multiplier = static_cast<std::uint16_t>(i);
  return settings_of(std::move(table));
}

TEST(InfinibandControl, ADelayIsMultiplierOverTwoToTheShiftTimesThePacket) {
  InfinibandSettings settings = settings_of({{0, 0}, {0, 3}, {2, 3}, {3, 16'383}});
  settings.timer = Time::zero();  // the index stays
  Injection flow;
  EXPECT_EQ(flow.spacing(settings, us(0), 1'000), ns(1'000));
  flow.notified(settings, us(0));
  EXPECT_EQ(flow.spacing(settings, us(0), 1'000), ns(1'000 + 3'000));
  EXPECT_EQ(flow.spacing(settings, us(0), 200), ns(200 + 600)) << "the packet's own time";
  flow.notified(settings, us(0));
  EXPECT_EQ(flow.spacing(settings, us(0), 1'000), ns(1'000 + 750));
  flow.notified(settings, us(0));
  EXPECT_EQ(flow.spacing(settings, us(0), 4'096), ns(4'096 + 512 * 16'383));
}

TEST(InfinibandControl, NotificationsRaiseTheIndexUpToTheLimit) {
  InfinibandSettings settings = steps(8);
  settings.increase = 3;
  Injection flow;
  EXPECT_EQ(flow.index(settings, us(0)), 0);
  flow.notified(settings, us(0));
  EXPECT_EQ(flow.index(settings, us(0)), 3);
  flow.notified(settings, us(0));
  EXPECT_EQ(flow.index(settings, us(0)), 6);
  flow.notified(settings, us(0));
  EXPECT_EQ(flow.index(settings, us(0)), 7);
  flow.notified(settings, us(0));
  EXPECT_EQ(flow.index(settings, us(0)), 7);
}

TEST(InfinibandControl, TheTimerLowersItByOneFromTheFirstNotificationOn) {
  const InfinibandSettings settings = steps(8);
  Injection flow;
  flow.notified(settings, us(100));
  flow.notified(settings, us(104));
  flow.notified(settings, us(109));
  EXPECT_EQ(flow.index(settings, us(110) - Time{1}), 3);
  EXPECT_EQ(flow.index(settings, us(110)), 2) << "ten after the first, not after the last";
  flow.notified(settings, us(115));
  EXPECT_EQ(flow.index(settings, us(120) - Time{1}), 3);
  EXPECT_EQ(flow.index(settings, us(120)), 2);
  EXPECT_EQ(flow.index(settings, us(130)), 1);
  EXPECT_EQ(flow.index(settings, us(140)), 0);
  EXPECT_EQ(flow.index(settings, Time::seconds(1'000)), 0);
  flow.notified(settings, Time::seconds(1'000));  // it has stopped, and starts anew
  EXPECT_EQ(flow.index(settings, Time::seconds(1'000) + us(10) - Time{1}), 1);
  EXPECT_EQ(flow.index(settings, Time::seconds(1'000) + us(10)), 0);
}

TEST(InfinibandControl, StepsThatNobodyLookedAtAreAllTaken) {
  const InfinibandSettings settings = steps(100);
  Injection flow;
  for (int i = 0; i < 50; ++i) flow.notified(settings, us(0));
  EXPECT_EQ(flow.index(settings, us(305)), 20);
  flow.notified(settings, us(305));
  EXPECT_EQ(flow.index(settings, us(309)), 21);
  EXPECT_EQ(flow.index(settings, us(310)), 20) << "the timer's beat stays";
}

TEST(InfinibandControl, TheIndexStaysAtOrAboveItsLeast) {
  InfinibandSettings settings = steps(8);
  settings.least = 5;
  settings.increase = 200;
  Injection flow;
  EXPECT_EQ(flow.index(settings, us(0)), 5);
  flow.notified(settings, us(0));
  EXPECT_EQ(flow.index(settings, us(0)), 7);
  EXPECT_EQ(flow.index(settings, us(10)), 6);
  EXPECT_EQ(flow.index(settings, us(10'000)), 5);
}

constexpr auto always = [] { return true; };

TEST(InfinibandPacing, AQueuePairWaitsBehindItsOwnPackets) {
  const InfinibandSettings settings = steps(8);
  Pacing pacing;
  pacing.start(settings, nullptr);
  pacing.notified(us(0));
  ASSERT_TRUE(pacing.may_send(us(1), always));
  pacing.sent(us(1), 1'000);
  EXPECT_FALSE(pacing.may_send(us(3) - Time{1}, always));
  EXPECT_EQ(pacing.next_deadline(), us(3));
  EXPECT_TRUE(pacing.may_send(us(3), always));
}

TEST(InfinibandPacing, QueuePairsOfAServiceLevelTakeTurns) {
  const InfinibandSettings settings = steps(8);
  Injection shared;
  Pacing a, b, idle;
  for (Pacing* each : {&a, &b, &idle}) each->start(settings, &shared);
  a.notified(us(0));  // all of them
  ASSERT_TRUE(a.may_send(us(0), always));
  a.sent(us(0), 1'000);
  EXPECT_TRUE(idle.may_send(us(1), [] { return false; })) << "who has nothing takes no turn";
  EXPECT_FALSE(b.may_send(us(1), always));
  EXPECT_EQ(b.next_deadline(), us(2));
  EXPECT_FALSE(a.may_send(us(1), always));
  EXPECT_EQ(a.next_deadline(), us(4)) << "behind the other's turn";
  EXPECT_TRUE(b.may_send(us(2), always));
  b.sent(us(2), 1'000);
  EXPECT_FALSE(b.may_send(us(2), always));
  EXPECT_EQ(b.next_deadline(), us(6));
  EXPECT_TRUE(a.may_send(us(4), always));
}

TEST(InfinibandPacing, WithoutControlNobodyWaits) {
  Pacing pacing;
  pacing.start(InfinibandSettings{}, nullptr);
  pacing.notified(us(0));
  pacing.sent(us(0), 4'096);
  EXPECT_TRUE(pacing.may_send(us(0), always));
  EXPECT_EQ(pacing.next_deadline(), Time::never());
}

}  // namespace
}  // namespace tulle::transport::congestion
