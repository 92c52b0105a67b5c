#include "rdma/port/congestion.h"

#include <gtest/gtest.h>

#include <array>
#include <optional>

#include "fabric/switch.h"

namespace tulle::fabric {
namespace {

constexpr std::uint32_t buffer = 16'000;  // of a lane

port::CongestionSettings always_marking() {
  port::CongestionSettings settings;
  settings.enabled = true;
  settings.marking_rate = 0;
  return settings;
}

bool marks(const port::CongestionSettings& settings, std::uint32_t queue_bytes,
           std::uint32_t frame_bytes = 4'000) {
  Random random(1);
  return port::LaneCongestion().marks(settings, buffer, false, queue_bytes, frame_bytes, random);
}

TEST(Congestion, TheThresholdFallsEvenlyFromOneToFifteen) {
  port::CongestionSettings settings = always_marking();
  settings.threshold = 0;
  EXPECT_FALSE(marks(settings, 1'000'000)) << "none are marked";
  for (const auto& [threshold, bytes] : {std::pair{1, 15'000}, {8, 8'000}, {15, 1'000}}) {
    settings.threshold = static_cast<std::uint8_t>(threshold);
    EXPECT_FALSE(marks(settings, static_cast<std::uint32_t>(bytes))) << threshold;
    EXPECT_TRUE(marks(settings, static_cast<std::uint32_t>(bytes) + 1)) << threshold;
  }
}

TEST(Congestion, ShortPacketsAreNotMarked) {
  const port::CongestionSettings settings = always_marking();
  EXPECT_FALSE(marks(settings, buffer, 511));
  EXPECT_TRUE(marks(settings, buffer, 512));
}

TEST(Congestion, MarkingRateIsTheMeanNumberOfPacketsBetweenTwo) {
  port::CongestionSettings settings = always_marking();
  for (const int rate : {0, 1, 10}) {
    settings.marking_rate = static_cast<std::uint16_t>(rate);
    Random random(7);
    int marked = 0;
    constexpr int packets = 110'000;
    for (int i = 0; i < packets; ++i) {
      marked +=
          port::LaneCongestion().marks(settings, buffer, false, buffer, 4'000, random) ? 1 : 0;
    }
    EXPECT_NEAR(marked, packets / (rate + 1.0), packets * 0.005) << rate;
  }
}

TEST(Congestion, WhoLackedCreditsIsAVictimUntilItHasSentALanesBufferInARow) {
  const port::CongestionSettings settings = always_marking();
  Random random(1);
  port::LaneCongestion lane;
  const auto lane_marks = [&](bool masked) {
    return lane.marks(settings, buffer, masked, buffer, 4'000, random);
  };
  EXPECT_TRUE(lane_marks(false));
  lane.lacks_credits();
  EXPECT_FALSE(lane_marks(false));
  EXPECT_TRUE(lane_marks(true)) << "the victim mask";
  for (int sent = 0; sent < 4; ++sent) {
    EXPECT_FALSE(lane_marks(false)) << sent;
    lane.sent(4'000);
  }
  EXPECT_TRUE(lane_marks(false));
  for (int i = 0; i < 3; ++i) lane.sent(0xF000'0000);  // the sum does not wrap
  EXPECT_FALSE(lane.is_victim(buffer));
}

// --- a switch: frames come in by port 0 and leave by port 1 ---

class Bench {
 public:
  explicit Bench(const port::CongestionSettings& congestion) {
    settings_.flow_control = port::FlowControl::credits;
    settings_.lane_buffer_bytes = buffer;
    settings_.congestion = congestion;
  }
  Switch make() {
    Switch at(settings_, 100, 2, 1, frames);
    for (std::uint8_t lane = 0; lane < port::classes; ++lane)
      at.port(1).handle_control(Time::zero(), port::Control::of(port::CreditUpdate{lane, 2'047}));
    return at;
  }
  void arrive(Switch& at, std::uint8_t lane = 0, std::uint16_t bytes = 3'200) {
    const port::FrameRef ref = frames.take();
    port::Frame& frame = frames[ref];
    frame.buffer_bytes = bytes;
    frame.gap_bytes = 0;
    frame.service_class = lane & 0xF;
    frame.traffic_class = 0;
    wire::Packet packet;
    packet.opcode = wire::opcode(wire::TransportClass::rc, wire::Operation::write_middle);
    frame.header_bytes = wire::encode(packet, frame.header) & 0x3F;
    constexpr std::uint16_t out = 1;
    ASSERT_EQ(at.receive(Time::zero(), 0, ref, out), out);
  }
  // Returns true if the next frame has FECN, or nothing if no frame may be sent.
  std::optional<bool> pull(Switch& at) {
    const port::FrameRef ref = at.pull(Time::zero(), 1);
    if (ref == port::no_frame) return std::nullopt;
    wire::Packet packet;
    EXPECT_EQ(wire::decode(frames[ref].header, packet).status, wire::DecodeStatus::ok);
    frames.give(ref);
    return packet.fecn;
  }
  port::FramePool frames;

 private:
  SwitchSettings settings_;
};

TEST(SwitchCongestion, TheRootMarksWhatIsBeforeALongQueue) {
  port::CongestionSettings settings = always_marking();
  settings.threshold = 8;  // 8,000 bytes
  Bench bench(settings);
  Switch at = bench.make();
  for (int i = 0; i < 4; ++i) bench.arrive(at);
  EXPECT_EQ(bench.pull(at), true);
  EXPECT_EQ(bench.pull(at), true);  // 9,600 bytes with this frame
  EXPECT_EQ(bench.pull(at), false);
  EXPECT_EQ(bench.pull(at), false);
  EXPECT_EQ(at.port(1).counters().marked, 2u);
}

TEST(SwitchCongestion, AVictimMarksNothingUnlessItsPortIsInTheMask) {
  for (const bool masked : {false, true}) {
    Bench bench(always_marking());
    Switch at = bench.make();
    if (masked) at.port(1).mark_as_victim();
    at.port(1).handle_control(
        Time::zero(), port::Control::of(port::CreditUpdate{0, 100}));  // two frames of 50 blocks
    for (int i = 0; i < 4; ++i) bench.arrive(at);
    EXPECT_EQ(bench.pull(at), true) << "nothing has told it yet";
    EXPECT_EQ(bench.pull(at), true);
    EXPECT_EQ(bench.pull(at), std::nullopt);
    at.port(1).handle_control(Time::zero(), port::Control::of(port::CreditUpdate{0, 150}));
    EXPECT_EQ(bench.pull(at), masked) << "credits have come, but it had to wait for them";
    EXPECT_EQ(bench.pull(at), std::nullopt);
  }
}

TEST(SwitchCongestion, LanesAreJudgedOnTheirOwn) {
  Bench bench(always_marking());
  Switch at = bench.make();
  at.port(1).handle_control(Time::zero(),
                            port::Control::of(port::CreditUpdate{0, 0}));  // no credits on lane 0
  bench.arrive(at, 0);
  for (int i = 0; i < 3; ++i) bench.arrive(at, 1);
  EXPECT_EQ(bench.pull(at), true) << "lane 1";
  at.port(1).handle_control(Time::zero(), port::Control::of(port::CreditUpdate{0, 2'047}));
  bench.arrive(at, 0);
  EXPECT_EQ(bench.pull(at), false) << "lane 0, of the high table";
}

TEST(SwitchCongestion, SeveralLanesMayBeVictimsAtOnce) {
  Bench bench(always_marking());
  Switch at = bench.make();
  const auto credit = [&](std::uint8_t lane, std::uint16_t limit) {
    at.port(1).handle_control(Time::zero(), port::Control::of(port::CreditUpdate{lane, limit}));
  };
  for (const std::uint8_t lane : std::array<std::uint8_t, 2>{1, 4}) {
    credit(lane, 0);
    bench.arrive(at, lane);
  }
  EXPECT_EQ(bench.pull(at), std::nullopt);
  for (const std::uint8_t lane : std::array<std::uint8_t, 2>{1, 4}) {
    credit(lane, 2'047);
    bench.arrive(at, lane);
    EXPECT_EQ(bench.pull(at), false) << int{lane};
    EXPECT_EQ(bench.pull(at), false) << int{lane};
  }
}

TEST(SwitchCongestion, WhatCameInMarkedIsNotCountedAgain) {
  Bench bench(always_marking());
  Switch at = bench.make();
  bench.arrive(at);
  const auto ref = static_cast<port::FrameRef>(0);
  ASSERT_TRUE(wire::mark_fecn(bench.frames[ref].header));
  EXPECT_FALSE(wire::mark_fecn(bench.frames[ref].header));
  EXPECT_EQ(bench.pull(at), true);
  EXPECT_EQ(at.port(1).counters().marked, 0u);
}

TEST(SwitchCongestion, OffNothingIsMarked) {
  Bench bench({});
  Switch at = bench.make();
  for (int i = 0; i < 4; ++i) bench.arrive(at);
  EXPECT_EQ(bench.pull(at), false);
}

}  // namespace
}  // namespace tulle::fabric
