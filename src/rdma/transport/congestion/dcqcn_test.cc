#include "rdma/transport/congestion/dcqcn.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/random.h"

namespace tulle::transport::congestion {
namespace {

constexpr std::int64_t gbps = 1'000'000'000;
constexpr Time us(std::int64_t n) { return Time::microseconds(n); }

// The paper's settings on a link of 100 Gb/s, with a byte counter that is too large to matter.
DcqcnSettings paper() {
  DcqcnSettings settings;
  settings.enabled = true;
  settings.line_bits_per_second = 100 * gbps;
  settings.increase_bytes = 1'000'000'000;
  return settings;
}

TEST(Dcqcn, WithoutANotificationItKeepsLineRate) {
  const DcqcnSettings settings = paper();
  Dcqcn dcqcn(settings);
  for (int i = 0; i < 1'000; ++i) dcqcn.sent(us(i), 4'096);
  EXPECT_EQ(dcqcn.bits_per_second(Time::seconds(1)), 100 * gbps);
  EXPECT_FALSE(dcqcn.is_limited());
}

TEST(Dcqcn, TheFirstNotificationHalvesTheRate) {
  const DcqcnSettings settings = paper();
  Dcqcn dcqcn(settings);
  dcqcn.notified(us(10));  // alpha is 1: rate * (1 - 1/2)
  EXPECT_EQ(dcqcn.bits_per_second(us(10)), 50 * gbps);
  EXPECT_TRUE(dcqcn.is_limited());
}

TEST(Dcqcn, ADecreaseWaitsForTheLeastTimeBetweenTwo) {
  DcqcnSettings settings = paper();
  settings.alpha_interval = Time::seconds(1);  // alpha stays 1
  Dcqcn dcqcn(settings);
  dcqcn.notified(us(0));
  dcqcn.notified(us(10));
  dcqcn.notified(us(20));  // two within the interval count once
  EXPECT_EQ(dcqcn.bits_per_second(us(49)), 50 * gbps);
  EXPECT_EQ(dcqcn.bits_per_second(us(50)), 25 * gbps);
  EXPECT_EQ(dcqcn.bits_per_second(us(54)), 25 * gbps) << "what was asked for twice came once";
  dcqcn.notified(us(101));  // long enough after the last; the increase at 105 has not come
  EXPECT_EQ(dcqcn.bits_per_second(us(101)), 12'500'000'000);
}

TEST(Dcqcn, AlphaRisesWithNotificationsAndFallsWithout) {
  DcqcnSettings settings = paper();
  settings.g = 0.25;
  Dcqcn dcqcn(settings);
  dcqcn.notified(us(0));  // alpha starts at 1 and is updated at 55, 110, ...
  dcqcn.bits_per_second(us(55));
  EXPECT_DOUBLE_EQ(dcqcn.alpha(), 0.75);
  dcqcn.bits_per_second(us(110));
  EXPECT_DOUBLE_EQ(dcqcn.alpha(), 0.5625);  // 0.75 * 0.75
  dcqcn.notified(us(120));
  dcqcn.bits_per_second(us(165));
  EXPECT_DOUBLE_EQ(dcqcn.alpha(), 0.671875);  // 0.75 * 0.5625 + 0.25
  dcqcn.bits_per_second(us(165 + 3 * 55));
  EXPECT_DOUBLE_EQ(dcqcn.alpha(), 0.671875 * 0.75 * 0.75 * 0.75);
}

TEST(Dcqcn, FastRecoveryThenAdditiveIncrease) {
  DcqcnSettings settings = paper();
  settings.fast_recovery_rounds = 2;
  settings.additive_bits_per_second = 1 * gbps;
  settings.alpha_interval = Time::seconds(1);
  Dcqcn dcqcn(settings);
  dcqcn.notified(us(0));   // target 100, rate 50
  dcqcn.notified(us(50));  // clamped: target 50, rate 25; increases at 105, 160, 215, ...
  EXPECT_EQ(dcqcn.bits_per_second(us(104)), 25 * gbps);
  EXPECT_EQ(dcqcn.bits_per_second(us(105)), 37'500'000'000);  // fast: half way to 50
  // Round F = 2 increases additively already, as the paper counts.
  EXPECT_EQ(dcqcn.bits_per_second(us(160)), (37'500'000'000 + 51 * gbps) / 2);
  EXPECT_EQ(dcqcn.bits_per_second(us(215)), ((37'500'000'000 + 51 * gbps) / 2 + 52 * gbps) / 2);
}

TEST(Dcqcn, HyperIncreaseWhenTimeAndBytesAgree) {
  DcqcnSettings settings = paper();
  settings.fast_recovery_rounds = 1;
  settings.additive_bits_per_second = 1 * gbps;
  settings.hyper_bits_per_second = 10 * gbps;
  settings.increase_bytes = 1'000;
  settings.alpha_interval = Time::seconds(1);
  Dcqcn dcqcn(settings);
  dcqcn.notified(us(0));
  dcqcn.notified(us(50));     // target 50, rate 25
  dcqcn.sent(us(60), 1'000);  // bytes 1: max 1 = F, additive: 51, rate 38
  EXPECT_EQ(dcqcn.bits_per_second(us(60)), 38 * gbps);
  dcqcn.sent(us(61), 1'000);  // bytes 2, timer 0: additive: 52, rate 45
  EXPECT_EQ(dcqcn.bits_per_second(us(61)), 45 * gbps);
  // Timer 1 at 105: min 1 = F is not beyond it, additive: 53, rate 49.
  EXPECT_EQ(dcqcn.bits_per_second(us(105)), 49 * gbps);
  // Timer 2 at 160: min 2 > F, hyper: 63, rate 56.
  EXPECT_EQ(dcqcn.bits_per_second(us(160)), 56 * gbps);
}

// Settings whose timer for increases is too slow to matter, so that bytes alone count.
DcqcnSettings by_bytes() {
  DcqcnSettings settings = paper();
  settings.increase_bytes = 10'000;
  settings.increase_interval = Time::seconds(1);
  settings.alpha_interval = Time::seconds(1);
  return settings;
}

TEST(Dcqcn, AnIncreaseComesWhenTheBytesAreFullAndTheRestCountsForTheNext) {
  const DcqcnSettings settings = by_bytes();
  Dcqcn dcqcn(settings);
  dcqcn.notified(us(0));
  dcqcn.notified(us(50));  // target 50, rate 25
  dcqcn.sent(us(51), 9'999);
  EXPECT_EQ(dcqcn.bits_per_second(us(51)), 25 * gbps);
  dcqcn.sent(us(51), 4'001);  // 14,000: one round, and 4,000 are left
  EXPECT_EQ(dcqcn.bits_per_second(us(51)), 37'500'000'000);
  dcqcn.sent(us(51), 5'999);
  EXPECT_EQ(dcqcn.bits_per_second(us(51)), 37'500'000'000) << "9,999";
  dcqcn.sent(us(51), 1);
  EXPECT_EQ(dcqcn.bits_per_second(us(51)), 43'750'000'000);
}

TEST(Dcqcn, ADecreaseBeginsTheCountOfBytesAnew) {
  const DcqcnSettings settings = by_bytes();
  Dcqcn dcqcn(settings);
  dcqcn.notified(us(0));
  dcqcn.sent(us(10), 9'000);
  dcqcn.notified(us(50));  // target 50, rate 25
  dcqcn.sent(us(51), 9'999);
  EXPECT_EQ(dcqcn.bits_per_second(us(51)), 25 * gbps);
  dcqcn.sent(us(51), 1);
  EXPECT_EQ(dcqcn.bits_per_second(us(51)), 37'500'000'000);
}

TEST(Dcqcn, BytesBeforeTheFirstNotificationDoNotCount) {
  const DcqcnSettings settings = by_bytes();
  Dcqcn dcqcn(settings);
  dcqcn.sent(us(0), 1'000'000);
  dcqcn.notified(us(1));  // target 100, rate 50
  dcqcn.sent(us(2), 1);
  EXPECT_EQ(dcqcn.bits_per_second(us(2)), 50 * gbps);
}

TEST(Dcqcn, WithoutAByteCounterTheTimerAloneGoesThroughTheStages) {
  DcqcnSettings settings = paper();
  settings.fast_recovery_rounds = 1;
  settings.additive_bits_per_second = 1 * gbps;
  settings.hyper_bits_per_second = 10 * gbps;
  settings.increase_bytes = 0;
  settings.alpha_interval = Time::seconds(1);
  Dcqcn dcqcn(settings);
  dcqcn.notified(us(0));
  dcqcn.notified(us(50));                                     // target 50, rate 25
  dcqcn.sent(us(60), 1'000'000'000);                          // counts for nothing
  EXPECT_EQ(dcqcn.bits_per_second(us(105)), 38 * gbps);       // additive: (25 + 51) / 2
  EXPECT_EQ(dcqcn.bits_per_second(us(160)), 49'500'000'000);  // hyper: (38 + 61) / 2
}

TEST(Dcqcn, TheRateNeverFallsBelowTheLeastNorRisesAboveTheLine) {
  DcqcnSettings settings = paper();
  settings.alpha_interval = Time::seconds(10);
  settings.least_bits_per_second = 3 * gbps;
  Dcqcn dcqcn(settings);
  for (int i = 0; i < 20; ++i) dcqcn.notified(us(50 * i));
  EXPECT_EQ(dcqcn.bits_per_second(us(50 * 19)), 3 * gbps);
  std::int64_t before = 0;
  for (int i = 20; i < 4'000; ++i) {
    const std::int64_t rate = dcqcn.bits_per_second(us(50 * i));
    EXPECT_LE(rate, 100 * gbps);
    EXPECT_GE(rate, before) << "nothing notifies any more";
    before = rate;
  }
  EXPECT_EQ(before, 100 * gbps);
  EXPECT_FALSE(dcqcn.is_limited());
}

TEST(Dcqcn, TheTargetIsClampedOnlyWhereItIsToBe) {
  for (const bool clamp : {true, false}) {
    DcqcnSettings settings = paper();
    settings.clamp_target = clamp;
    settings.alpha_interval = Time::seconds(1);
    Dcqcn dcqcn(settings);
    dcqcn.notified(us(0));
    // The rate is 25 now. The target is 50 if clamped and otherwise 100, since no increase came
    // between the two notifications.
    dcqcn.notified(us(50));
    EXPECT_EQ(dcqcn.bits_per_second(us(105)), clamp ? 37'500'000'000 : 62'500'000'000);
    // After an increase, the next decrease sets the target to the rate in both cases.
    dcqcn.notified(us(105));
    const std::int64_t from = clamp ? 37'500'000'000 : 62'500'000'000;
    EXPECT_EQ(dcqcn.bits_per_second(us(105 + 55)), from / 2 + from / 4);
  }
}

// Compares an object that is seldom asked with one that is asked at every microsecond.
void lazy_is_stepwise(const DcqcnSettings& settings, std::uint64_t seed) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Random random(seed);
  Dcqcn lazy(settings), stepwise(settings);
  Time now;
  for (int i = 0; i < 400; ++i) {
    const auto gap = static_cast<std::int64_t>(random.below(random.chance(0.2) ? 2'000 : 40));
    for (std::int64_t step = 0; step < gap; ++step) {
      now += us(1);
      stepwise.bits_per_second(now);
    }
    if (random.chance(0.4)) {
      lazy.notified(now);
      stepwise.notified(now);
    } else {
      lazy.sent(now, 50'000);
      stepwise.sent(now, 50'000);
    }
    if (!random.chance(0.3)) continue;
    ASSERT_EQ(lazy.bits_per_second(now), stepwise.bits_per_second(now)) << "at " << now.ps;
    // The lazy alpha is a power, the stepwise alpha a product, so they differ by rounding. The rate
    // has few enough bits to be equal.
    ASSERT_NEAR(lazy.alpha(), stepwise.alpha(), 1e-12);
  }
}

TEST(Dcqcn, LookingSeldomChangesNothing) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    DcqcnSettings settings = paper();
    settings.increase_bytes = 400'000;
    lazy_is_stepwise(settings, seed);
    settings.g = 1.0 / 16;
    settings.increase_bytes = 0;
    settings.clamp_target = false;
    lazy_is_stepwise(settings, seed);
  }
}

TEST(Dcqcn, LookingSeldomChangesNothingWhereIncreasesComeBetweenDecreases) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    DcqcnSettings settings = paper();
    settings.decrease_interval = us(100);  // an increase at 55 comes before a decrease that waits
    settings.increase_bytes = 400'000;
    lazy_is_stepwise(settings, seed);
  }
}

}  // namespace
}  // namespace tulle::transport::congestion
