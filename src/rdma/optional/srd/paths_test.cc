#include "rdma/optional/srd/paths.h"

#include <gtest/gtest.h>

#include <set>

namespace tulle::transport::srd {
namespace {

constexpr Time usual = Time::microseconds(10);

std::multiset<std::uint8_t> chosen(Paths& paths, Time now, int count) {
  std::multiset<std::uint8_t> out;
  for (int i = 0; i < count; ++i) out.insert(paths.choose(now));
  return out;
}

TEST(SrdPaths, all_are_used_alike_and_have_names_of_their_own) {
  Paths paths(64, 1);
  const auto first = chosen(paths, Time::zero(), 128);
  std::set<std::uint32_t> labels;
  for (int path = 0; path < 64; ++path) {
    EXPECT_EQ(first.count(static_cast<std::uint8_t>(path)), 2u);
    labels.insert(paths.flow_label(static_cast<std::uint8_t>(path)));
  }
  EXPECT_GE(labels.size(), 60u);
  EXPECT_EQ(labels.count(0), 0u);
  Paths other(64, 2);
  EXPECT_NE(other.flow_label(0), paths.flow_label(0));
}

TEST(SrdPaths, one_that_takes_longer_than_others_is_avoided_ever_longer) {
  Paths paths(4, 1);
  for (std::uint8_t path = 0; path < 4; ++path) paths.acknowledged(usual, path, usual);
  Time now = usual;
  Time before = Time::zero();
  for (int strike = 0; strike < 4; ++strike) {
    paths.acknowledged(now, 2, usual * 2);
    EXPECT_EQ(chosen(paths, now, 30).count(2), 0u);
    Time until = now;
    while (paths.is_avoided(until, 2)) until += Time::nanoseconds(100);
    EXPECT_GT(until - now, before + Time{before.ps / 2});
    before = until - now;
    now = until;
    EXPECT_EQ(chosen(paths, now, 4).count(2), 1u);
  }
  paths.acknowledged(now, 2, usual);
  paths.acknowledged(now, 2, usual * 2);
  EXPECT_FALSE(paths.is_avoided(now + usual * 6, 2)) << "its strikes are forgotten";
}

TEST(SrdPaths, one_that_loses_packets_is_avoided) {
  Paths paths(4, 1);
  paths.acknowledged(usual, 0, usual);
  paths.lost(usual, 1);
  EXPECT_TRUE(paths.is_avoided(usual, 1));
  EXPECT_EQ(chosen(paths, usual, 30).count(1), 0u);
}

TEST(SrdPaths, what_is_sent_again_takes_another) {
  Paths paths(3, 1);
  for (int i = 0; i < 30; ++i) EXPECT_NE(paths.choose(Time::zero(), 1), 1);
  Paths alone(1, 1);
  EXPECT_EQ(alone.choose(Time::zero(), 0), 0) << "where there is one";
}

TEST(SrdPaths, where_all_are_avoided_the_one_whose_time_is_up_first_is_taken) {
  Paths paths(2, 1);
  paths.acknowledged(Time::zero(), 0, usual);
  paths.lost(usual, 1);
  paths.lost(usual * 2, 0);
  EXPECT_EQ(paths.choose(usual * 2), 1);
}

}  // namespace
}  // namespace tulle::transport::srd
