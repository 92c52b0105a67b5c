#include "fabric/faults.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace tulle::fabric {
namespace {

FaultSettings parsed(std::string_view text) {
  auto result = parse_faults(text);
  const auto* error = std::get_if<std::string>(&result);
  EXPECT_EQ(error, nullptr) << *error;
  return error == nullptr ? std::get<FaultSettings>(result) : FaultSettings{};
}

std::string error_of(std::string_view text) {
  auto result = parse_faults(text);
  const auto* error = std::get_if<std::string>(&result);
  EXPECT_NE(error, nullptr) << text;
  return error == nullptr ? "" : *error;
}

TEST(FaultSettings, EmptyTextIsNoFaults) {
  EXPECT_FALSE(parsed("").any());
  EXPECT_FALSE(parsed("seed=9").any());
}

TEST(FaultSettings, ReadsEveryName) {
  const FaultSettings s =
      parsed("drop=0.01,duplicate=2%,reorder=0.5,corrupt=1,delay=100us,reorder_delay=1.5ms,seed=7");
  EXPECT_DOUBLE_EQ(s.drop, 0.01);
  EXPECT_DOUBLE_EQ(s.duplicate, 0.02);
  EXPECT_DOUBLE_EQ(s.reorder, 0.5);
  EXPECT_DOUBLE_EQ(s.corrupt, 1);
  EXPECT_EQ(s.delay, Time::microseconds(100));
  EXPECT_EQ(s.reorder_delay, Time::microseconds(1500));
  EXPECT_EQ(s.seed, 7u);
  EXPECT_TRUE(s.any());
}

TEST(FaultSettings, SaysInOneLineWhatIsWrong) {
  for (const char* text :
       {"drop", "drop=", "drop=2", "drop=-0.1", "drop=nan", "loss=0.1", "delay=5", "delay=5h",
        "delay=2000s", "seed=x", "seed=1.5", "drop=0.1,,seed=1", "=1"}) {
    const std::string error = error_of(text);
    EXPECT_TRUE(error.starts_with("faults: ")) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
  EXPECT_NE(error_of("loss=0.1").find("drop, duplicate"), std::string::npos);
}

TEST(FaultSettings, WhatIsWrongStaysOneLine) {
  for (const std::string_view text :
       {"dr\nop=1", "drop=\t", "\x1b[31m", "seed=\r\n", "delay=1\n"}) {
    const auto read = parse_faults(text);
    const auto* wrong = std::get_if<std::string>(&read);
    ASSERT_NE(wrong, nullptr) << text;
    for (const char c : *wrong) EXPECT_TRUE(c >= ' ') << *wrong;
  }
}

TEST(Faults, SameSeedSameFate) {
  FaultSettings settings = parsed("drop=0.1,duplicate=0.1,reorder=0.2,corrupt=0.1,seed=42");
  Faults one(settings);
  Faults two(settings);
  for (int i = 0; i < 10'000; ++i) {
    const auto a = one.draw();
    const auto b = two.draw();
    ASSERT_EQ(a.count, b.count);
    for (std::size_t k = 0; k < a.count; ++k) {
      ASSERT_EQ(a.copies[k].held_up, b.copies[k].held_up);
      ASSERT_EQ(a.copies[k].damaged, b.copies[k].damaged);
    }
  }
}

TEST(Faults, OneRateDoesNotShiftTheOthersLuck) {
  Faults without(parsed("drop=0.1,seed=3"));
  Faults with(parsed("drop=0.1,corrupt=0.5,reorder=0.5,seed=3"));
  for (int i = 0; i < 10'000; ++i) ASSERT_EQ(without.draw().count, with.draw().count);
}

TEST(Faults, ADuplicateIsOneMoreCopy) {
  EXPECT_EQ(Faults(parsed("seed=1")).draw().count, 1u);
  EXPECT_EQ(Faults(parsed("duplicate=1,seed=1")).draw().count, 2u);
  EXPECT_EQ(Faults(parsed("drop=1,seed=1")).draw().count, 0u);
  EXPECT_EQ(Faults(parsed("drop=1,duplicate=1,seed=1")).draw().count, 1u) << "of two, one is lost";
}

TEST(Faults, RatesAreMet) {
  constexpr int datagrams = 200'000;
  Faults faults(parsed("drop=0.05,duplicate=0.02,reorder=0.1,corrupt=0.03,delay=1us,seed=5"));
  for (int i = 0; i < datagrams; ++i) {
    const auto copies = faults.draw();
    ASSERT_LE(copies.count, 2u);
    for (std::size_t k = 0; k < copies.count; ++k) {
      ASSERT_GE(copies.copies[k].held_up, Time::microseconds(1));
      ASSERT_LE(copies.copies[k].held_up, Time::microseconds(51));
    }
  }
  const FaultCounters& c = faults.counters();
  // Allows five standard deviations.
  const auto close = [](std::uint64_t count, double rate) {
    const double expected = rate * datagrams;
    return std::abs(static_cast<double>(count) - expected) < 5 * std::sqrt(expected);
  };
  EXPECT_TRUE(close(c.dropped, 0.05)) << c.dropped;
  EXPECT_TRUE(close(c.duplicated, 0.02)) << c.duplicated;
  EXPECT_TRUE(close(c.reordered, 0.1 * (1 - 0.05 + 0.02))) << c.reordered;
  EXPECT_TRUE(close(c.corrupted, 0.03 * (1 - 0.05 + 0.02))) << c.corrupted;
}

// A datagram is held up by the delay or, out of order, by any time up to so much more.
TEST(Faults, WhatIsReorderedIsLaterByAnyTimeUpToTheLongest) {
  Faults faults(parsed("reorder=1,reorder_delay=1ns,delay=1us,seed=3"));
  std::set<std::int64_t> extra;
  for (int i = 0; i < 50'000; ++i) {
    extra.insert((faults.draw().copies[0].held_up - Time::microseconds(1)).ps);
  }
  EXPECT_EQ(*extra.begin(), 1) << "it is later than one that is not reordered";
  EXPECT_EQ(*extra.rbegin(), 1'000);
  EXPECT_EQ(extra.size(), 1'000u);
}

TEST(Faults, DamageMayCutAnywhere) {
  Faults faults(parsed("corrupt=1,seed=11"));
  std::set<std::size_t> lengths;
  for (int i = 0; i < 10'000; ++i) {
    std::vector<std::byte> bytes(20);
    lengths.insert(faults.damage(bytes));
  }
  EXPECT_EQ(lengths.size(), 21u) << "every length from 0 to the whole";
}

TEST(Faults, DamageAlwaysChangesBytes) {
  Faults faults(parsed("corrupt=1,seed=11"));
  std::vector<std::byte> zeros(100);
  for (int i = 0; i < 10'000; ++i) {
    std::vector<std::byte> bytes = zeros;
    bytes.resize(faults.damage(bytes));
    ASSERT_LE(bytes.size(), zeros.size());
    ASSERT_NE(bytes, zeros);
  }
  EXPECT_EQ(faults.damage({}), 0u);
}

}  // namespace
}  // namespace tulle::fabric
