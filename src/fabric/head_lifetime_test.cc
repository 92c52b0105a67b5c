// Tests of frames that stand too long at the head of a lane's queue (HOQLife, IBTA 18.2.5.4).

#include <gtest/gtest.h>

#include "fabric/switch.h"

namespace tulle::fabric {
namespace {

constexpr Time us(std::int64_t n) { return Time::microseconds(n); }
constexpr Time lifetime = us(100);

SwitchSettings settings_of() {
  SwitchSettings settings;
  settings.flow_control = FlowControl::credits;
  settings.lane_buffer_bytes = 64 * 40;
  settings.head_lifetime = lifetime;
  return settings;
}

// A switch in which frames come in by port 0 and leave by port 1 if there are credits.
class Bench {
 public:
  void arrive(Time now, std::uint8_t lane, std::uint16_t bytes = 640) {
    const FrameRef ref = frames.take();
    frames[ref].buffer_bytes = bytes;
    frames[ref].gap_bytes = 0;
    frames[ref].service_class = lane & 0xF;
    constexpr std::uint16_t out = 1;
    ASSERT_EQ(at.receive(now, 0, ref, out), out);
  }
  Time discard(Time now) { return at.discard_heads(now, 1, lifetime); }
  std::uint64_t discarded() const { return at.counters(1).discarded; }

  SwitchSettings settings = settings_of();
  FramePool frames;
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
  EXPECT_FALSE(bench.at.has_frame(1));
  EXPECT_EQ(bench.at.queue_bytes(1, 0), 0u);
  EXPECT_EQ(bench.at.ingress_bytes(0, 0), 0u);
  EXPECT_EQ(bench.at.bytes_held(), 0u);
  EXPECT_EQ(bench.frames.in_use(), 0u);
}

TEST(HeadLifetime, TheNeighbourHasItsCreditsBack) {
  Bench bench;
  bench.arrive(us(0), 0);
  bench.discard(us(100));
  ASSERT_EQ(bench.at.take_talker(), 0u);
  EXPECT_EQ(bench.at.pull_control(0).credit.limit, 50u) << "10 blocks came, and 40 are free";
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
  const FrameRef ref = bench.frames.take();
  bench.frames[ref].buffer_bytes = 64;
  bench.frames[ref].service_class = 0;
  EXPECT_EQ(bench.at.receive(us(300), 0, ref, std::uint16_t{1}), Switch::no_port);
  bench.frames.give(ref);
  EXPECT_EQ(bench.discarded(), 5u);
  EXPECT_EQ(bench.at.credit_receiver(0, 0).free_blocks(), 40u);
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
  bench.at.credit_sender(1, 0).update(1);
  bench.frames.give(bench.at.pull(us(150), 1));
  EXPECT_EQ(bench.discard(us(250)), us(350));
  EXPECT_EQ(bench.discarded(), 2u);
}

TEST(HeadLifetime, WhatLeavesGivesTheNextItsTime) {
  Bench bench;
  bench.arrive(us(0), 0);
  bench.arrive(us(0), 0);
  bench.at.credit_sender(1, 0).update(10);
  const FrameRef sent = bench.at.pull(us(90), 1);
  ASSERT_NE(sent, no_frame);
  bench.frames.give(sent);
  EXPECT_EQ(bench.discard(us(100)), us(190));
  EXPECT_EQ(bench.discarded(), 0u);
  EXPECT_EQ(bench.discard(us(190)), Time::never());
}

}  // namespace
}  // namespace tulle::fabric
