// Tests of frames that stand too long at the head of a lane's queue (HOQLife, IBTA 18.2.5.4).

#include <gtest/gtest.h>

#include "fabric/switch.h"

namespace tulle::fabric {
namespace {

constexpr Time us(std::int64_t n) { return Time::microseconds(n); }
constexpr Time lifetime = us(100);

SwitchSettings settings_of() {
  SwitchSettings settings;
  settings.flow_control = port::FlowControl::credits;
  settings.lane_buffer_bytes = 64 * 40;
  settings.head_lifetime = lifetime;
  return settings;
}

// A switch in which frames come in by port 0 and leave by port 1 if there are credits.
class Bench {
 public:
  void arrive(Time now, std::uint8_t lane, std::uint16_t bytes = 640) {
    const port::FrameRef ref = frames.take();
    frames[ref].buffer_bytes = bytes;
    frames[ref].gap_bytes = 0;
    frames[ref].service_class = lane & 0xF;
    constexpr std::uint16_t out = 1;
    ASSERT_EQ(at.receive(now, 0, ref, out), out);
  }
  Time discard(Time now) { return at.discard_heads(now, 1); }
  std::uint64_t discarded() const { return at.port(1).counters().discarded; }

  SwitchSettings settings = settings_of();
  port::FramePool frames;
  Switch at{settings, 100, 2, 1, frames};
};

TEST(HeadLifetime, OneFrameGoesEachTimeAndTheNextHasItsOwn) {
  Bench bench;
  bench.arrive(us(0), 0);
  bench.arrive(us(60), 0);
  EXPECT_EQ(bench.discard(us(100) - Time{1}), us(100));
  EXPECT_EQ(bench.discarded(), 0u);
  EXPECT_EQ(bench.discard(us(100)), us(200)) << "the second is at the head since now";
  EXPECT_EQ(bench.discarded(), 1u);
  EXPECT_EQ(bench.discard(us(199)), us(200));
  EXPECT_EQ(bench.discard(us(200)), Time::never());
  EXPECT_EQ(bench.discarded(), 2u);
  EXPECT_FALSE(bench.at.port(1).has_frame());
  EXPECT_EQ(bench.at.port(1).queue_bytes(0), 0u);
  EXPECT_EQ(bench.at.port(0).held(0).bytes, 0u);
  EXPECT_EQ(bench.at.bytes_held(), 0u);
  EXPECT_EQ(bench.frames.in_use(), 0u);
}

TEST(HeadLifetime, TheNeighbourHasItsCreditsBack) {
  Bench bench;
  bench.arrive(us(0), 0);
  bench.discard(us(100));
  ASSERT_EQ(bench.at.take_talker(), 0u);
  EXPECT_EQ(bench.at.port(0).pull_control().credit.limit, 50u) << "10 blocks came, and 40 are free";
}

TEST(HeadLifetime, LanesAreJudgedOnTheirOwn) {
  Bench bench;
  bench.arrive(us(0), 0);
  bench.arrive(us(50), 1);
  EXPECT_EQ(bench.discard(us(100)), us(150));
  EXPECT_EQ(bench.discarded(), 1u);
  EXPECT_EQ(bench.discard(us(150)), Time::never());
  EXPECT_EQ(bench.discarded(), 2u);
}

TEST(HeadLifetime, ALaneThatHasDiscardedSomeInARowDiscardsAllForAWhile) {
  Bench bench;
  bench.settings.stall_count = 2;
  for (int i = 0; i < 4; ++i) bench.arrive(us(0), 0, 64);
  EXPECT_EQ(bench.discard(us(100)), us(200));
  EXPECT_EQ(bench.discarded(), 1u);
  EXPECT_EQ(bench.discard(us(200)), us(1'000)) << "the second in a row: eight lifetimes";
  EXPECT_EQ(bench.discarded(), 4u);
  EXPECT_EQ(bench.at.bytes_held(), 0u);
  const port::FrameRef ref = bench.frames.take();
  bench.frames[ref].buffer_bytes = 64;
  bench.frames[ref].service_class = 0;
  EXPECT_EQ(bench.at.receive(us(300), 0, ref, std::uint16_t{1}), Switch::no_port);
  bench.frames.give(ref);
  EXPECT_EQ(bench.discarded(), 5u);
  EXPECT_EQ(bench.at.port(0).credits().receivers[0].free_blocks(), 40u);
  bench.arrive(us(400), 1, 64);
  EXPECT_EQ(bench.discard(us(500)), us(1'000)) << "the other lane has its own count";
  EXPECT_EQ(bench.discard(us(1'000)), Time::never());
  bench.arrive(us(1'000), 0, 64);
  EXPECT_EQ(bench.discard(us(1'050)), us(1'100)) << "and begins anew";
}

TEST(HeadLifetime, OneThatIsSentEndsTheRow) {
  Bench bench;
  bench.settings.stall_count = 2;
  for (int i = 0; i < 4; ++i) bench.arrive(us(0), 0, 64);
  bench.discard(us(100));
  bench.at.port(1).handle_control(Time::zero(), port::Control::of(port::CreditUpdate{0, 1}));
  bench.frames.give(bench.at.pull(us(150), 1));
  EXPECT_EQ(bench.discard(us(250)), us(350));
  EXPECT_EQ(bench.discarded(), 2u);
}

TEST(HeadLifetime, WhatLeavesGivesTheNextItsTime) {
  Bench bench;
  bench.arrive(us(0), 0);
  bench.arrive(us(0), 0);
  bench.at.port(1).handle_control(Time::zero(), port::Control::of(port::CreditUpdate{0, 10}));
  const port::FrameRef sent = bench.at.pull(us(90), 1);
  ASSERT_NE(sent, port::no_frame);
  bench.frames.give(sent);
  EXPECT_EQ(bench.discard(us(100)), us(190));
  EXPECT_EQ(bench.discarded(), 0u);
  EXPECT_EQ(bench.discard(us(190)), Time::never());
}

}  // namespace
}  // namespace tulle::fabric
