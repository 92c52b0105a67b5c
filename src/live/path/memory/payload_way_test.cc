#include "live/path/memory/payload_way.h"

#include <gtest/gtest.h>

namespace tulle::live {
namespace {

using Way = PayloadWay::Way;
constexpr std::size_t message_bytes = 64 << 10;
constexpr std::uint64_t period_bytes = PayloadWay::trial_share * PayloadWay::trial_bytes;

// A reader to whom a byte costs so many nanoseconds by each way.
struct Reader {
  void take(std::uint64_t bytes) {
    for (std::uint64_t came = 0; came < bytes; came += message_bytes) {
      const Way by = way.wanted();
      by_memory += by == Way::memory ? message_bytes : 0;
      const double cost = by == Way::ring ? ring_cost : memory_cost;
      way.note(by, message_bytes,
               Time::nanoseconds(static_cast<std::int64_t>(cost * message_bytes)));
    }
  }
  PayloadWay way;
  double ring_cost = 1;
  double memory_cost = 1;
  std::uint64_t by_memory = 0;  // bytes
};

TEST(PayloadWay, BeginsWithTheRingAndSoonTriesMemory) {
  Reader reader;
  EXPECT_EQ(reader.way.wanted(), Way::ring);
  reader.take(PayloadWay::trial_bytes);
  EXPECT_EQ(reader.way.wanted(), Way::memory);
}

TEST(PayloadWay, StaysWithTheWayThatCostsLess) {
  Reader reader;
  reader.memory_cost = 0.7;
  reader.take(PayloadWay::trial_bytes * 2 + period_bytes / 2);
  EXPECT_EQ(reader.way.wanted(), Way::memory);

  Reader other;
  other.memory_cost = 1.5;
  other.take(PayloadWay::trial_bytes * 2 + period_bytes / 2);
  EXPECT_EQ(other.way.wanted(), Way::ring);
}

TEST(PayloadWay, ATrialCostsLittle) {
  Reader reader;
  reader.memory_cost = 2;
  const std::uint64_t bytes = 100 * period_bytes;
  reader.take(bytes);
  EXPECT_GT(reader.by_memory, 0u);
  EXPECT_LT(reader.by_memory, bytes / 25);
}

TEST(PayloadWay, FollowsAMachineThatChanges) {
  Reader reader;
  reader.memory_cost = 0.5;
  reader.take(period_bytes);
  EXPECT_EQ(reader.way.wanted(), Way::memory);
  reader.ring_cost = 0.2;
  reader.take(3 * period_bytes);
  EXPECT_EQ(reader.way.wanted(), Way::ring);
  reader.ring_cost = 1;
  reader.take(3 * period_bytes);
  EXPECT_EQ(reader.way.wanted(), Way::memory);
}

TEST(PayloadWay, AWayThatIsHardlyBetterIsNotWorthTheChange) {
  Reader reader;
  reader.memory_cost = 0.98;
  reader.take(PayloadWay::trial_bytes * 2 + period_bytes / 2);
  EXPECT_EQ(reader.way.wanted(), Way::ring);
}

// The thread may lose its processor while a message comes.
TEST(PayloadWay, OneLongDelayChangesNothing) {
  Reader reader;
  reader.memory_cost = 0.6;
  reader.take(period_bytes);
  ASSERT_EQ(reader.way.wanted(), Way::memory);
  reader.way.note(Way::memory, message_bytes, Time::seconds(1));
  reader.take(2 * period_bytes);
  EXPECT_EQ(reader.way.wanted(), Way::memory);
}

// The first message of a trial may have begun before the trial.
TEST(PayloadWay, TheFirstMessageOfATrialDoesNotCount) {
  Reader reader;
  reader.memory_cost = 0.6;
  reader.take(PayloadWay::trial_bytes);
  ASSERT_EQ(reader.way.wanted(), Way::memory);
  reader.way.note(Way::memory, message_bytes, Time::seconds(1));
  reader.take(PayloadWay::trial_bytes);
  EXPECT_EQ(reader.way.wanted(), Way::memory);
}

TEST(PayloadWay, ATrialOfVeryLongMessagesHasSome) {
  constexpr std::size_t bytes = 8 << 20;
  PayloadWay way;
  std::uint32_t by_memory = 0;
  const std::uint32_t messages = 4 * PayloadWay::trial_messages * PayloadWay::trial_share;
  for (std::uint32_t i = 0; i < messages; ++i) {
    by_memory += way.wanted() == Way::memory ? 1 : 0;
    way.note(way.wanted(), bytes, Time::microseconds(way.wanted() == Way::memory ? 2'000 : 1'000));
  }
  EXPECT_GE(by_memory, PayloadWay::trial_messages);
  EXPECT_LT(by_memory, messages / 20);
}

TEST(PayloadWay, AfterARefusalTheRingServesForAPeriod) {
  Reader reader;
  reader.memory_cost = 0.5;
  reader.take(period_bytes);
  ASSERT_EQ(reader.way.wanted(), Way::memory);
  reader.way.note_refusal();
  EXPECT_EQ(reader.way.wanted(), Way::ring);
  reader.take(period_bytes - message_bytes);
  EXPECT_EQ(reader.way.wanted(), Way::ring);
  reader.take(message_bytes);
  EXPECT_EQ(reader.way.wanted(), Way::memory);
}

// Messages that were under way when the other way was chosen are no part of its trial.
TEST(PayloadWay, WhatComesByTheOtherWayDoesNotEndATrial) {
  PayloadWay way;
  for (std::uint64_t came = 0; came < PayloadWay::trial_bytes; came += message_bytes) {
    way.note(Way::ring, message_bytes, Time::microseconds(10));
  }
  ASSERT_EQ(way.wanted(), Way::memory);
  for (int i = 0; i < 10'000; ++i) way.note(Way::ring, message_bytes, Time::microseconds(1));
  EXPECT_EQ(way.wanted(), Way::memory);
}

}  // namespace
}  // namespace tulle::live
