#include "rdma/transport/congestion/infiniband.h"

#include <gtest/gtest.h>

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

// The entries are delays of 0, 1, 2 … packets.
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
  flow.notified(settings, Time::seconds(1'000));  // the timer had stopped and starts anew
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

}  // namespace
}  // namespace tulle::transport::congestion
