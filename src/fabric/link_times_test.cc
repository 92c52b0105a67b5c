#include "fabric/link_times.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace tulle::fabric {
namespace {

constexpr NodePort a{0, 0}, b{1, 3};
constexpr std::int64_t gigabit = 1'000'000'000;
constexpr std::int64_t bytes_of_a_microsecond = 125;

struct Links {
  Links() : times(2) {
    times.set_ports(0, 1);
    times.set_ports(1, 4);
  }
  std::vector<NodePort> advance(Time now) {
    std::vector<NodePort> free;
    times.advance(now, [&](NodePort at) { free.push_back(at); });
    return free;
  }
  LinkTimes times;
};

TEST(LinkTimesTest, WithoutRatesAllLinksAreFree) {
  Links links;
  EXPECT_TRUE(links.times.is_free(a));
  EXPECT_TRUE(links.advance(Time::milliseconds(1)).empty());
  EXPECT_FALSE(links.times.is_behind());
  EXPECT_TRUE(links.times.next().is_never());
}

TEST(LinkTimesTest, APacketTakesAsLongAsItsBits) {
  Links links;
  links.times.keep_rates();
  links.times.carry(a, gigabit, bytes_of_a_microsecond);
  EXPECT_FALSE(links.times.is_free(a));
  EXPECT_TRUE(links.times.is_free(b));
  links.times.wait(a);
  links.times.wait(a);
  EXPECT_EQ(links.times.next(), Time::microseconds(1));
  EXPECT_TRUE(links.advance(Time::nanoseconds(999)).empty());
  EXPECT_EQ(links.advance(Time::microseconds(1)), std::vector{a}) << "once, though it waited twice";
  EXPECT_TRUE(links.times.is_free(a));
  EXPECT_TRUE(links.times.next().is_never());
}

TEST(LinkTimesTest, ALinkWithoutARateTakesNoTime) {
  Links links;
  links.times.keep_rates();
  links.times.carry(a, 0, bytes_of_a_microsecond);
  EXPECT_TRUE(links.times.is_free(a));
}

TEST(LinkTimesTest, MissedTimeAdvancesFromPacketToPacket) {
  Links links;
  links.times.keep_rates();
  for (const NodePort at : {a, b}) {
    links.times.carry(at, gigabit, (at == a ? 1 : 2) * bytes_of_a_microsecond);
    links.times.wait(at);
  }
  const Time late = Time::milliseconds(1);
  EXPECT_EQ(links.advance(late), std::vector{a});
  EXPECT_TRUE(links.times.is_behind());
  EXPECT_EQ(links.advance(late), std::vector{b});
  EXPECT_TRUE(links.times.is_behind());
  EXPECT_TRUE(links.advance(late).empty());
  EXPECT_FALSE(links.times.is_behind());
}

TEST(LinkTimesTest, NoMoreTimeThanTheBoundIsMadeUpFor) {
  Links links;
  links.times.keep_rates();
  for (const NodePort at : {a, b}) {
    links.times.carry(at, gigabit, (at == a ? 1 : 2) * bytes_of_a_microsecond);
    links.times.wait(at);
  }
  EXPECT_EQ(links.advance(LinkTimes::catch_up_max + Time::milliseconds(1)), (std::vector{a, b}));
}

TEST(LinkTimesTest, APacketTakesAsLongIfTheZeroMoves) {
  Links links;
  links.times.keep_rates();
  const Time by = Time::seconds(5);
  EXPECT_TRUE(links.advance(by).empty());
  links.times.carry(a, gigabit, bytes_of_a_microsecond);
  links.times.wait(a);
  EXPECT_TRUE(links.advance(by + Time::nanoseconds(400)).empty());
  links.times.rebase(by);
  EXPECT_FALSE(links.times.is_behind());
  EXPECT_FALSE(links.times.is_free(a));
  EXPECT_EQ(links.times.next(), Time::microseconds(1));
  EXPECT_EQ(links.advance(Time::microseconds(1)), std::vector{a});
}

}  // namespace
}  // namespace tulle::fabric
