#include "fabric/switch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "fabric/built_test.h"
#include "fabric/routing.h"
#include "fabric/topology.h"

namespace tulle::fabric {
namespace {

// A single switch whose driver is the test.
class Bench {
 public:
  explicit Bench(const SwitchSettings& settings, std::uint16_t ports = 4, std::uint64_t seed = 1,
                 std::uint32_t node = 100)
      : settings_(settings), at(settings_, node, ports, seed, frames) {}

  port::FrameRef frame(std::uint16_t bytes, std::uint8_t service_class = 0,
                       std::uint32_t flow = 0) {
    const port::FrameRef ref = frames.take();
    port::Frame& made = frames[ref];
    made.source = flow & 0xFF'FFFF;
    made.source_port = 0xC000;
    made.buffer_bytes = bytes;
    made.gap_bytes = 0;
    made.service_class = service_class & 7;
    made.traffic_class = 0;
    return ref;
  }
  // Returns true if the frame was accepted.
  bool arrive(std::uint16_t in, std::uint16_t out, std::uint16_t bytes,
              std::uint8_t service_class = 0) {
    const port::FrameRef ref = frame(bytes, service_class);
    if (at.receive(Time::zero(), in, ref, {&out, 1}) == out) return true;
    frames.give(ref);
    return false;
  }
  // Returns the next frame. A frame of 0 bytes means that none may be sent.
  port::Frame pull(std::uint16_t port) {
    const port::FrameRef ref = at.pull(Time::zero(), port);
    if (ref == port::no_frame) return {};
    const port::Frame taken = frames[ref];
    frames.give(ref);
    return taken;
  }
  // Returns all pending pause messages, as "PORT:stop/go".
  std::string told() {
    std::string text;
    for (std::uint16_t port; (port = at.take_talker()) != Switch::no_port;) {
      while (at.port(port).has_control()) {
        const port::Control control = at.port(port).pull_control();
        text += std::to_string(port) + ":" + std::to_string(control.pause.stop) + "/" +
                std::to_string(control.pause.go) + " ";
      }
    }
    return text;
  }

 private:
  SwitchSettings settings_;

 public:
  port::FramePool frames;
  Switch at;
};

SwitchSettings pfc(std::uint32_t xoff, std::uint32_t xon_gap, std::uint32_t headroom) {
  SwitchSettings settings;
  settings.flow_control = port::FlowControl::pfc;
  settings.xoff_bytes = xoff;
  settings.xon_gap_bytes = xon_gap;
  settings.headroom_bytes = headroom;
  settings.buffer_bytes = 1'000'000;
  return settings;
}

port::Control pause_message(std::uint8_t stop, std::uint8_t go) {
  port::Control control;
  control.kind = port::Control::Kind::pause;
  control.pause = {stop, go};
  return control;
}

// --- memory ---

TEST(SwitchMemory, UpToXoffNobodyIsAsked) {
  Bench bench(pfc(3'000, 1'000, 2'000));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(bench.arrive(0, 1, 1'000));
  EXPECT_EQ(bench.told(), "");
  EXPECT_EQ(bench.at.port(0).held(0).bytes, 3'000u);
  EXPECT_EQ(bench.at.port(1).queue_bytes(0), 3'000u);
  EXPECT_EQ(bench.at.bytes_held(), 3'000u);
}

TEST(SwitchMemory, BeyondXoffOneStopThenHeadroomThenLossThenOneGo) {
  Bench bench(pfc(3'000, 1'000, 2'000));
  for (int i = 0; i < 3; ++i) bench.arrive(0, 1, 1'000);
  EXPECT_TRUE(bench.arrive(0, 1, 1'000)) << "into the headroom";
  EXPECT_EQ(bench.told(), "0:1/0 ");
  EXPECT_TRUE(bench.arrive(0, 1, 1'000));
  EXPECT_EQ(bench.told(), "") << "it has been told";
  EXPECT_FALSE(bench.arrive(0, 1, 1)) << "3,000 + 2,000 are full";
  EXPECT_EQ(bench.at.lossless_drops(), 1u);
  EXPECT_EQ(bench.at.port(1).counters().dropped, 1u);

  // The headroom empties first: 5,000 bytes are held, 2,000 of them in the headroom. At 3,000 -
  // 1,000, the class may go on.
  std::string said;
  for (const char* expected : {"", "", "0:0/1 ", "", ""}) {
    EXPECT_EQ(bench.pull(1).buffer_bytes, 1'000u);
    EXPECT_EQ(bench.told(), expected) << bench.at.port(0).held(0).bytes;
  }
  EXPECT_EQ(bench.at.bytes_held(), 0u);
  EXPECT_EQ(bench.at.bytes_held_max(), 5'000u);
  EXPECT_EQ(bench.at.port(0).counters().ingress_bytes_max, 5'000u);
  EXPECT_EQ(bench.frames.in_use(), 0u);
}

TEST(SwitchMemory, WhatArrivesWhileTheHeadroomIsInUseGoesThereToo) {
  // This holds even though shared memory has room again: the headroom must be empty before the
  // class may go on.
  Bench bench(pfc(2'000, 500, 3'000));
  bench.arrive(0, 1, 100);
  bench.arrive(0, 1, 1'950);  // 2,050 are more than 2,000
  EXPECT_EQ(bench.told(), "0:1/0 ");
  bench.pull(1);  // 100 leave the headroom, which is freed first
  const port::Port::Held& held = bench.at.port(0).held(0);
  EXPECT_EQ(held.bytes, 1'950u);
  EXPECT_EQ(held.headroom_bytes, 1'850u);
  bench.arrive(0, 1, 50);  // 2,000 would be few enough
  EXPECT_EQ(held.headroom_bytes, 1'900u);
  bench.pull(1);  // 1,900 of 1,950 leave the headroom
  EXPECT_EQ(held.headroom_bytes, 0u);
  EXPECT_EQ(bench.told(), "0:0/1 ");
  bench.arrive(0, 1, 50);
  EXPECT_EQ(held.headroom_bytes, 0u) << "it is free again, and so is the shared memory";
  EXPECT_EQ(bench.at.bytes_held(), 100u);
}

TEST(SwitchMemory, PortsAndClassesAreAskedOnTheirOwn) {
  Bench bench(pfc(1'000, 500, 2'000));
  bench.arrive(0, 3, 1'000, 0);
  bench.arrive(0, 3, 1'000, 5);
  bench.arrive(1, 3, 1'000, 0);
  EXPECT_EQ(bench.told(), "");
  bench.arrive(0, 3, 1'000, 5);
  EXPECT_EQ(bench.told(), "0:32/0 ") << "bit 5";
  bench.arrive(0, 3, 1'000, 0);
  bench.arrive(1, 3, 1'000, 0);
  EXPECT_EQ(bench.told(), "1:1/0 0:1/0 ");
}

TEST(SwitchMemory, SeveralClassesAreToldInOneFrame) {
  Bench bench(pfc(1'000, 500, 2'000));
  for (const int c : {0, 5, 0, 5}) bench.arrive(0, 3, 1'000, static_cast<std::uint8_t>(c));
  EXPECT_EQ(bench.told(), "0:33/0 ");
}

TEST(SwitchMemory, AStopThatIsTakenBackBeforeItWasToldBecomesAGo) {
  Bench bench(pfc(1'000, 500, 2'000));
  bench.arrive(0, 1, 1'000);
  bench.arrive(0, 1, 1'000);
  bench.pull(1);
  bench.pull(1);
  EXPECT_EQ(bench.told(), "0:0/1 ");
}

TEST(SwitchMemory, DynamicThresholdIsAlphaTimesWhatIsLeft) {
  SwitchSettings settings = pfc(0, 0, 5'000);
  settings.alpha = 0.5;
  settings.buffer_bytes = 9'000;
  Bench bench(settings);
  // Each frame has 1,000 bytes. With h bytes held before it, the threshold is (9,000 - h) / 2. With
  // 2,000 held, 3,500 are allowed and 3,000 fit. With 3,000 held, 3,000 are allowed and 4,000 do
  // not fit.
  for (int i = 0; i < 3; ++i) bench.arrive(0, 1, 1'000);
  EXPECT_EQ(bench.told(), "");
  bench.arrive(0, 1, 1'000);
  EXPECT_EQ(bench.told(), "0:1/0 ");
  // Another port is allowed (9,000 - 3,000) / 2 = 3,000 bytes for its first frame, 2,500 for its
  // second, and 2,000 for its third.
  for (int i = 0; i < 2; ++i) bench.arrive(2, 1, 1'000);
  EXPECT_EQ(bench.told(), "");
  bench.arrive(2, 1, 1'000);
  EXPECT_EQ(bench.told(), "2:1/0 ") << "(9,000 - 5,000) / 2 < 3,000";
}

TEST(SwitchMemory, AStoppedPortGoesOnWhenItHoldsNothingWhateverIsLeft) {
  SwitchSettings settings = pfc(0, 2'000, 10'000);
  settings.alpha = 0.1;
  settings.buffer_bytes = 10'000;
  Bench bench(settings);
  bench.arrive(0, 1, 1'000);  // the threshold is 1,000
  bench.arrive(0, 1, 1'000);  // the threshold is 900, so this goes into the headroom
  EXPECT_EQ(bench.told(), "0:1/0 ");
  bench.pull(1);
  EXPECT_EQ(bench.told(), "");  // 1,000 + 2,000 > 1,000
  bench.pull(1);
  EXPECT_EQ(bench.told(), "0:0/1 ");
}

TEST(SwitchMemory, WithoutFlowControlAQueueHasItsLimit) {
  SwitchSettings settings;
  settings.flow_control = port::FlowControl::none;
  settings.lossy_queue_bytes = 3'000;
  settings.buffer_bytes = 5'000;
  Bench bench(settings);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(bench.arrive(static_cast<std::uint16_t>(i), 3, 1'000));
  EXPECT_FALSE(bench.arrive(0, 3, 1)) << "the queue is full, wherever it came in";
  EXPECT_TRUE(bench.arrive(0, 2, 2'000)) << "another queue is not";
  EXPECT_FALSE(bench.arrive(0, 1, 1)) << "but all memory is";
  EXPECT_EQ(bench.at.port(3).counters().dropped, 1u);
  EXPECT_EQ(bench.at.port(1).counters().dropped, 1u);
  EXPECT_EQ(bench.at.lossless_drops(), 0u);
  EXPECT_EQ(bench.told(), "");
  bench.pull(3);
  EXPECT_TRUE(bench.arrive(0, 3, 1'000));
}

TEST(SwitchMemory, WithoutALimitALossyQueueHasAlphasShare) {
  SwitchSettings settings;
  settings.flow_control = port::FlowControl::none;
  settings.alpha = 1;
  settings.buffer_bytes = 6'000;
  Bench bench(settings);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(bench.arrive(0, 3, 1'000));  // 3,000 <= 6,000 - 2,000
  EXPECT_FALSE(bench.arrive(0, 3, 1'000)) << "4,000 > 6,000 - 3,000";
}

TEST(SwitchMemory, OfClassesSomeAreLossy) {
  SwitchSettings settings = pfc(1'000, 500, 1'000);
  settings.lossless_classes = 1u << 3;
  settings.lossy_queue_bytes = 1'000;
  Bench bench(settings);
  EXPECT_TRUE(bench.arrive(0, 1, 1'000, 0));
  EXPECT_FALSE(bench.arrive(0, 1, 1'000, 0));
  EXPECT_EQ(bench.told(), "");
  EXPECT_EQ(bench.at.lossless_drops(), 0u);
  EXPECT_TRUE(bench.arrive(0, 1, 1'000, 3));
  EXPECT_TRUE(bench.arrive(0, 1, 1'000, 3));
  EXPECT_EQ(bench.told(), "0:8/0 ");
  EXPECT_FALSE(bench.arrive(0, 1, 1'000, 3));
  EXPECT_EQ(bench.at.lossless_drops(), 1u);
}

// --- pauses and credits from the neighbour ---

TEST(SwitchPause, AStoppedClassWaitsAndOthersDoNot) {
  Bench bench(pfc(100'000, 1'000, 1'000));
  bench.arrive(0, 1, 1'000, 0);
  bench.arrive(0, 1, 2'000, 5);
  bench.at.port(1).handle_control(Time::microseconds(1), pause_message(1, 0));
  EXPECT_EQ(bench.pull(1).buffer_bytes, 2'000u);
  EXPECT_FALSE(bench.at.port(1).has_frame());
  EXPECT_EQ(bench.pull(1).buffer_bytes, 0u);
  bench.at.port(1).handle_control(Time::microseconds(2),
                                  pause_message(2, 0));  // class 1 is stopped too
  bench.at.port(1).handle_control(Time::microseconds(3), pause_message(0, 1));
  EXPECT_EQ(bench.pull(1).buffer_bytes, 1'000u);
  bench.at.port(1).handle_control(Time::microseconds(5), pause_message(0, 2));
  EXPECT_EQ(bench.at.port(1).counters().pauses, 2u);
  EXPECT_EQ(bench.at.port(1).counters().paused_ps, 4'000'000)
      << "from 1 to 5 us some class was stopped";
}

TEST(SwitchCredits, AFrameGoesWhenItsLaneHasCreditsForIt) {
  SwitchSettings settings;
  settings.flow_control = port::FlowControl::credits;
  settings.lane_buffer_bytes = 64 * 40;
  Bench bench(settings);
  bench.arrive(0, 1, 640, 0);
  bench.arrive(0, 1, 64, 1);
  EXPECT_FALSE(bench.at.port(1).has_frame());
  port::Control credit;
  credit.kind = port::Control::Kind::credit;
  credit.credit = {0, 9};
  bench.at.port(1).handle_control(Time::zero(), credit);
  EXPECT_FALSE(bench.at.port(1).has_frame()) << "10 blocks are needed";
  credit.credit = {0, 10};
  bench.at.port(1).handle_control(Time::zero(), credit);
  EXPECT_EQ(bench.pull(1).buffer_bytes, 640u);
  EXPECT_EQ(bench.pull(1).buffer_bytes, 0u) << "lane 1 has none";
  // The frame is released: the neighbour is told as soon as a quarter of lane 0's 40 blocks is free
  // again, here 10 blocks.
  EXPECT_EQ(bench.at.take_talker(), 0u);
  const port::Control back = bench.at.port(0).pull_control();
  EXPECT_EQ(back.kind, port::Control::Kind::credit);
  EXPECT_EQ(back.credit.lane, 0u);
  EXPECT_EQ(back.credit.limit, 50u);
  EXPECT_FALSE(bench.at.port(0).has_control());
}

// A frame of level 0 comes in on lane 0 and leaves on lane 3. It takes room of lane 0 and credits
// of lane 3.
TEST(SwitchLanes, AFrameCountsOnTheLaneItCameByUntilItLeavesByAnother) {
  SwitchSettings settings;
  settings.flow_control = port::FlowControl::credits;
  settings.lane_buffer_bytes = 64 * 40;
  Bench bench(settings);
  port::SlToVl lanes(port::default_lanes, 4);
  port::LaneRow to_lane_3 = port::default_lanes;
  to_lane_3[0] = 3;
  lanes.set(0, 1, to_lane_3);
  bench.at.set_lanes(lanes);
  bench.arrive(0, 1, 640);
  bench.arrive(2, 1, 64);
  EXPECT_EQ(bench.at.port(0).credits().receivers[0].free_blocks(), 30u);
  EXPECT_EQ(bench.at.port(0).credits().receivers[3].free_blocks(), 40u);
  EXPECT_EQ(bench.at.port(0).held(0).bytes, 640u);
  EXPECT_EQ(bench.at.port(1).queue_bytes(0), 64u) << "from port 2 it stays";
  EXPECT_EQ(bench.at.port(1).queue_bytes(3), 640u);
  port::Control credit;
  credit.kind = port::Control::Kind::credit;
  credit.credit = {3, 10};
  bench.at.port(1).handle_control(Time::zero(), credit);
  const port::Frame left = bench.pull(1);
  EXPECT_EQ(left.buffer_bytes, 640u);
  EXPECT_EQ(left.service_class, 3u);
  EXPECT_EQ(left.in_class, 0u);
  EXPECT_EQ(bench.at.port(1).credits().senders[3].total_sent(), 10u);
  EXPECT_EQ(bench.at.port(1).credits().senders[0].total_sent(), 0u);
  EXPECT_EQ(bench.at.port(0).credits().receivers[0].free_blocks(), 40u);
  EXPECT_EQ(bench.at.take_talker(), 0u);
  EXPECT_EQ(bench.at.port(0).pull_control().credit.lane, 0u);
}

TEST(SwitchLanes, AFrameWithoutALaneIsDroppedAndItsRoomIsFree) {
  SwitchSettings settings;
  settings.flow_control = port::FlowControl::credits;
  settings.lane_buffer_bytes = 64 * 40;
  Bench bench(settings);
  port::LaneRow row = port::default_lanes;
  row[0] = port::vl15;
  const port::SlToVl lanes(row);
  bench.at.set_lanes(lanes);
  EXPECT_FALSE(bench.arrive(0, 1, 640));
  EXPECT_EQ(bench.at.port(1).counters().unmapped, 1u);
  EXPECT_EQ(bench.at.port(1).counters().dropped, 0u);
  EXPECT_EQ(bench.at.port(0).credits().receivers[0].free_blocks(), 40u);
  EXPECT_EQ(bench.at.bytes_held(), 0u);
  EXPECT_EQ(bench.at.port(0).pull_control().credit.limit, 50u) << "what it took may come again";
}

// --- partitions ---

TEST(SwitchPartitions, PortsLetThroughWhatIsOfTheirHostsPartitions) {
  SwitchSettings settings;
  settings.flow_control = port::FlowControl::credits;
  settings.lane_buffer_bytes = 64 * 40;
  constexpr Pkey one{0x8001}, limited_one{0x0001}, two{0x8002};
  struct Case {
    Pkey pkey;
    bool inbound, outbound;
    int in_drops, out_drops;
  };
  // Port 0's host is in partition 1, port 1's host in 1 and 2, and port 2's host only in 2.
  for (const Case& c : {Case{one, true, true, 0, 1}, Case{limited_one, true, true, 0, 1},
                        Case{two, true, true, 1, 0}, Case{one, true, false, 0, 0},
                        Case{two, true, false, 1, 0}, Case{two, false, true, 0, 0},
                        Case{one, false, true, 0, 1}, Case{one, false, false, 0, 0}}) {
    Bench bench(settings);
    const auto host_of = [&](std::vector<Pkey> pkeys) {
      return port::Partitions{std::move(pkeys), c.inbound, c.outbound};
    };
    const SwitchPartitions ports = {host_of({one}), host_of({one, two}), host_of({two}), {}};
    bench.at.set_partitions(ports);
    wire::Packet packet;
    packet.opcode = wire::Opcode{0x11};
    packet.pkey = c.pkey;
    const auto arrive = [&](std::uint16_t out) {
      const port::FrameRef ref = bench.frame(64);
      wire::encode(packet, bench.frames[ref].header);
      const bool taken = bench.at.receive(Time::zero(), 0, ref, {&out, 1}) == out;
      if (!taken) bench.frames.give(ref);
      return taken;
    };
    EXPECT_EQ(arrive(2), c.in_drops + c.out_drops == 0);
    EXPECT_EQ(bench.at.port(0).counters().pkey_dropped_in, static_cast<std::uint64_t>(c.in_drops));
    EXPECT_EQ(bench.at.port(2).counters().pkey_dropped_out,
              static_cast<std::uint64_t>(c.out_drops));
    EXPECT_EQ(bench.at.port(0).credits().receivers[0].free_blocks(),
              c.in_drops + c.out_drops == 0 ? 39u : 40u);
    EXPECT_EQ(arrive(1), c.in_drops == 0) << "its host has both";
    EXPECT_EQ(arrive(3), c.in_drops == 0) << "between switches nobody asks";
  }
}

// --- the order of frames ---

TEST(SwitchOrder, AQueueIsFirstInFirstOut) {
  Bench bench(pfc(100'000, 1'000, 1'000));
  for (std::uint16_t i = 1; i <= 50; ++i) bench.arrive(i % 3, 3, i);
  for (std::uint16_t i = 1; i <= 50; ++i) EXPECT_EQ(bench.pull(3).buffer_bytes, i);
}

TEST(SwitchOrder, StrictClassesComeFirstTheHighestBeforeOthers) {
  SwitchSettings settings = pfc(1'000'000, 1'000, 1'000);  // classes 6 and 7 have no quantum
  Bench bench(settings);
  for (const int c : {0, 6, 3, 7, 6, 0, 7}) bench.arrive(0, 1, 100, static_cast<std::uint8_t>(c));
  std::string order;
  for (port::Frame frame; (frame = bench.pull(1)).buffer_bytes != 0;) {
    order += std::to_string(frame.service_class);
  }
  EXPECT_EQ(order.substr(0, 4), "7766");
  EXPECT_EQ(order.size(), 7u);
}

TEST(SwitchOrder, SharesAreProportionalToQuantaWhateverTheFramesLengths) {
  // Class 0 may send 8,000 bytes a round in frames of 4,178, class 1 4,000 bytes in frames of 86,
  // and class 2 2,000 bytes in frames of 1,500. All classes always have frames waiting. Their
  // shares are 8 : 4 : 2.
  SwitchSettings settings = pfc(4'000'000'000, 1'000, 1'000);
  settings.buffer_bytes = 1'000'000'000;
  settings.quantum_bytes = {8'000, 4'000, 2'000, 0, 0, 0, 0, 0};
  Bench bench(settings);
  const std::array<std::uint16_t, 3> length = {4'178, 86, 1'500};
  for (int i = 0; i < 4'000; ++i) {
    for (std::uint8_t c = 0; c < 3; ++c) {
      for (std::uint32_t bytes = 0; bytes < 4'178; bytes += length[c])
        bench.arrive(0, 1, length[c], c);
    }
  }
  std::array<double, 3> sent{};
  while (sent[0] + sent[1] + sent[2] < 14'000'000) {
    const port::Frame frame = bench.pull(1);
    ASSERT_NE(frame.buffer_bytes, 0u);
    sent[frame.service_class] += frame.buffer_bytes;
  }
  // There are 1,000 rounds. A class is ahead or behind by at most a frame.
  EXPECT_NEAR(sent[0], 8'000'000, 12'000);
  EXPECT_NEAR(sent[1], 4'000'000, 6'000);
  EXPECT_NEAR(sent[2], 2'000'000, 4'000);
}

TEST(SwitchOrder, AClassThatHasNothingSavesNothingUp) {
  SwitchSettings settings = pfc(4'000'000'000, 1'000, 1'000);
  settings.buffer_bytes = 1'000'000'000;
  settings.quantum_bytes = {1'000, 4'000, 1'000, 0, 0, 0, 0, 0};
  Bench bench(settings);
  for (int i = 0; i < 1'000; ++i) {
    bench.arrive(0, 1, 1'000, 0);
    bench.arrive(0, 1, 1'000, 2);
  }
  // In each of many rounds, class 1 may send four frames and has one.
  for (int round = 0; round < 50; ++round) {
    bench.arrive(0, 1, 1'000, 1);
    int of_class_1 = 0;
    for (int i = 0; i < 3; ++i) of_class_1 += bench.pull(1).service_class == 1 ? 1 : 0;
    ASSERT_EQ(of_class_1, 1) << "round " << round;
  }
  // From now on it has many. It sends four of six frames, and has not saved the other 150.
  for (int i = 0; i < 500; ++i) bench.arrive(0, 1, 1'000, 1);
  int of_class_1 = 0;
  for (int i = 0; i < 60; ++i) of_class_1 += bench.pull(1).service_class == 1 ? 1 : 0;
  EXPECT_NEAR(of_class_1, 40, 4);
}

// --- marks ---

// Returns how many of 20,000 frames are marked as they leave a queue that stays `bytes` long.
std::uint64_t marked_at(std::uint32_t bytes, std::uint8_t ecn, std::uint64_t seed) {
  SwitchSettings settings = pfc(100'000'000, 1'000, 1'000);
  settings.buffer_bytes = 100'000'000;
  settings.ecn = {true, 10'000, 50'000, 0.2};
  Bench bench(settings, 4, seed);
  const std::uint16_t out = 1;
  const auto one_more = [&] {
    const port::FrameRef ref = bench.frame(1'000);
    bench.frames[ref].traffic_class = static_cast<std::uint8_t>(0x68 | ecn);
    bench.at.receive(Time::zero(), 0, ref, {&out, 1});
  };
  for (std::uint32_t held = 0; held + 1'000 < bytes; held += 1'000) one_more();
  std::uint64_t congestion_experienced = 0;
  for (int i = 0; i < 20'000; ++i) {
    one_more();
    const port::Frame frame = bench.pull(1);
    EXPECT_EQ(frame.traffic_class & ~port::ecn_mask, 0x68) << "the DSCP stays";
    if ((frame.traffic_class & port::ecn_mask) == port::ecn_congestion_experienced)
      ++congestion_experienced;
  }
  EXPECT_EQ(bench.at.port(1).counters().marked, congestion_experienced);
  return congestion_experienced;
}

TEST(SwitchMarks, NoneUpToKminAllBeyondKmax) {
  EXPECT_EQ(marked_at(10'000, port::ecn_capable, 1), 0u);
  EXPECT_EQ(marked_at(51'000, port::ecn_capable, 1), 20'000u);
}

TEST(SwitchMarks, BetweenThemInProportion) {
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    for (const std::uint32_t bytes : {11'000u, 20'000u, 30'000u, 50'000u}) {
      // Pmax is 0.2 at 50,000: p = 0.2 * (bytes - 10,000) / 40,000.
      const double p = 0.2 * (bytes - 10'000) / 40'000;
      const double mean = 20'000 * p;
      const double deviation = std::sqrt(20'000 * p * (1 - p));
      EXPECT_NEAR(static_cast<double>(marked_at(bytes, port::ecn_capable, seed)), mean,
                  4.5 * deviation)
          << bytes << " bytes, seed " << seed;
    }
  }
}

TEST(SwitchMarks, NoneOnWhatIsNotEcnCapable) { EXPECT_EQ(marked_at(60'000, 0, 1), 0u); }

TEST(SwitchMarks, AFrameThatCameInMarkedIsNotCountedAgain) {
  SwitchSettings settings = pfc(100'000'000, 1'000, 1'000);
  settings.ecn = {true, 1'000, 2'000, 1};
  Bench bench(settings);
  const std::uint16_t out = 1;
  for (const std::uint8_t ecn :
       {port::ecn_congestion_experienced, port::ecn_capable, port::ecn_capable}) {
    const port::FrameRef ref = bench.frame(1'500);
    bench.frames[ref].traffic_class = ecn;
    bench.at.receive(Time::zero(), 0, ref, {&out, 1});
  }
  // The queue has 4,500 bytes.
  EXPECT_EQ(bench.pull(1).traffic_class, port::ecn_congestion_experienced);
  EXPECT_EQ(bench.at.port(1).counters().marked, 0u);
  // The queue has 3,000 bytes.
  EXPECT_EQ(bench.pull(1).traffic_class, port::ecn_congestion_experienced);
  EXPECT_EQ(bench.at.port(1).counters().marked, 1u);
}

// --- paths ---

SwitchSettings choosing(PathChoice choice) {
  SwitchSettings settings = pfc(100'000'000, 1'000, 1'000);
  settings.buffer_bytes = 1'000'000'000;
  settings.path_choice = choice;
  return settings;
}

constexpr std::array<std::uint16_t, 4> four = {2, 3, 4, 5};

std::uint16_t port_for(Bench& bench, std::uint32_t flow, Time now = Time::zero(),
                       std::uint16_t bytes = 1'000) {
  return bench.at.receive(now, 0, bench.frame(bytes, 0, flow), four);
}

// Returns chi-squared of counts that should be equal.
double chi_squared(const std::array<int, 8>& counts, double expected) {
  double sum = 0;
  for (const std::uint16_t port : four) {
    const double difference = counts[port] - expected;
    sum += difference * difference / expected;
  }
  return sum;
}

TEST(SwitchPaths, AFlowKeepsItsPortAndFlowsSpread) {
  Bench bench(choosing(PathChoice::flow), 8);
  std::array<int, 8> counts{};
  for (std::uint32_t flow = 0; flow < 4'000; ++flow) {
    const std::uint16_t port = port_for(bench, flow);
    EXPECT_EQ(port_for(bench, flow), port);
    EXPECT_EQ(port_for(bench, flow, Time::seconds(1)), port);
    ++counts[port];
  }
  // Each port expects 1,000. With 3 degrees of freedom, 16.3 is exceeded once in a thousand.
  EXPECT_LT(chi_squared(counts, 1'000), 16.3);
}

TEST(SwitchPaths, SwitchesChooseIndependently) {
  // Otherwise, all flows that took one port at the first switch would share one at the second too.
  port::FramePool frames;
  SwitchSettings settings = choosing(PathChoice::flow);
  Switch first(settings, 100, 8, 1, frames), second(settings, 101, 8, 1, frames);
  int alike = 0;
  for (std::uint32_t flow = 0; flow < 4'000; ++flow) {
    std::array<std::uint16_t, 2> ports{};
    for (Switch* at : {&first, &second}) {
      const port::FrameRef ref = frames.take();
      frames[ref].source = flow & 0xFF'FFFF;
      frames[ref].buffer_bytes = 100;
      frames[ref].service_class = 0;
      ports[at == &second] = at->receive(Time::zero(), 0, ref, four);
    }
    alike += ports[0] == ports[1];
  }
  EXPECT_NEAR(alike, 1'000, 4.5 * std::sqrt(4'000 * 0.25 * 0.75));
}

TEST(SwitchPause, APauseRunsOutUnlessItIsRenewed) {
  Bench bench({}, 2);
  port::Control stop;
  stop.kind = port::Control::Kind::pause;
  stop.pause.stop = 1;
  const Time pause = Time::microseconds(10);
  EXPECT_TRUE(bench.at.port(1).handle_control(Time::zero(), stop, pause));
  EXPECT_FALSE(bench.at.port(1).handle_control(Time::microseconds(5), stop, pause)) << "renewed";
  bench.arrive(0, 1, 1'000);
  EXPECT_EQ(bench.at.port(1).expire_pauses(Time::microseconds(10)), Time::microseconds(15));
  EXPECT_FALSE(bench.at.port(1).has_frame());
  EXPECT_TRUE(bench.at.port(1).expire_pauses(Time::microseconds(15)).is_never());
  EXPECT_TRUE(bench.at.port(1).has_frame());
  EXPECT_EQ(bench.at.port(1).counters().paused_ps, Time::microseconds(15).ps);
}

TEST(SwitchPause, TheWatchdogDropsUntilTheClassMayGoOn) {
  SwitchSettings settings;
  settings.watchdog = Time::microseconds(100);
  Bench bench(settings, 2);
  port::Control stop;
  stop.kind = port::Control::Kind::pause;
  stop.pause.stop = 1;
  port::Control go = stop;
  std::swap(go.pause.stop, go.pause.go);
  bench.at.port(1).handle_control(Time::zero(), stop);
  bench.arrive(0, 1, 1'000);
  EXPECT_TRUE(bench.at.watch(Time::microseconds(99), 1)) << "look again";
  EXPECT_EQ(bench.at.port(1).counters().watchdog_trips, 0u);
  EXPECT_FALSE(bench.at.watch(Time::microseconds(100), 1));
  EXPECT_EQ(bench.at.port(1).counters().watchdog_trips, 1u);
  EXPECT_EQ(bench.at.port(1).counters().watchdog_dropped, 1u);
  EXPECT_EQ(bench.at.bytes_held(), 0u);
  EXPECT_FALSE(bench.arrive(0, 1, 1'000)) << "still stuck";
  bench.at.port(1).handle_control(Time::microseconds(200), go);
  EXPECT_TRUE(bench.arrive(0, 1, 1'000));
  EXPECT_TRUE(bench.at.port(1).has_frame());
}

TEST(SwitchPaths, PacketsSprayEvenly) {
  Bench bench(choosing(PathChoice::packet), 8);
  std::array<int, 8> counts{};
  for (int i = 0; i < 4'000; ++i) ++counts[port_for(bench, 7)];
  // The counts are drawn from a binomial distribution with a standard deviation of 27.
  for (const std::uint16_t port : four) EXPECT_NEAR(counts[port], 1'000, 4 * 27);
}

TEST(SwitchPaths, AdaptiveTakesTheEmptiest) {
  Bench bench(choosing(PathChoice::adaptive), 8);
  for (const int port : {2, 3, 5}) {
    for (int i = 0; i < 40; ++i) bench.arrive(0, static_cast<std::uint16_t>(port), 5'000);
  }
  for (int i = 0; i < 5; ++i) EXPECT_EQ(port_for(bench, 7), 4u) << "which is empty";
}

TEST(SwitchPaths, AdaptiveDrawsAmongEqualOnes) {
  Bench bench(choosing(PathChoice::adaptive), 8);
  std::array<int, 8> counts{};
  for (int i = 0; i < 4'000; ++i) ++counts[port_for(bench, 7)];
  for (const std::uint16_t port : four) EXPECT_NEAR(counts[port], 1'000, 4 * 27);
}

TEST(SwitchPaths, AFlowletKeepsItsPortUntilTheGap) {
  SwitchSettings settings = choosing(PathChoice::flowlet);
  settings.flowlet_gap = Time::microseconds(50);
  Bench bench(settings, 8);
  Time now;
  const std::uint16_t port = port_for(bench, 7, now, 10'000);
  for (int i = 0; i < 100; ++i) {
    now += Time{49'999'999};
    EXPECT_EQ(port_for(bench, 7, now, 10'000), port) << "though its queue is the longest";
  }
  now += Time::microseconds(50);
  const std::uint16_t next = port_for(bench, 7, now, 10'000);
  EXPECT_NE(next, port) << "another is emptier";
  now += Time::microseconds(49);
  EXPECT_EQ(port_for(bench, 7, now, 10'000), next);
}

// Gives back the frames that a port loses when its link goes down. Returns their number.
std::uint32_t take_down(Bench& bench, std::uint16_t port) {
  std::uint32_t count = 0;
  for (port::FrameRef ref = bench.at.take_down(Time::zero(), port); ref != port::no_frame;
       ++count) {
    const port::FrameRef next = bench.frames[ref].next;
    bench.frames.give(ref);
    ref = next;
  }
  return count;
}

TEST(SwitchLinks, WhatWaitsForADeadPortIsLostWithItsMemory) {
  Bench bench(pfc(10'000, 1'000, 20'000));
  for (const std::uint8_t c : std::initializer_list<std::uint8_t>{0, 3, 7}) {
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(bench.arrive(0, 1, 3'000, c));
  }
  EXPECT_EQ(bench.told(), "0:137/0 ");
  EXPECT_TRUE(bench.arrive(0, 2, 100, 0));
  EXPECT_EQ(take_down(bench, 1), 12u);
  EXPECT_EQ(bench.told(), "0:0/137 ");
  EXPECT_EQ(bench.at.bytes_held(), 100u) << "what is for another port stays";
  EXPECT_EQ(bench.at.port(1).counters().lost, 12u);
  EXPECT_EQ(bench.at.port(1).counters().lost_bytes, 36'000u);

  EXPECT_FALSE(bench.arrive(0, 1, 3'000));
  EXPECT_EQ(bench.at.port(1).counters().lost, 13u);
  EXPECT_EQ(bench.at.port(1).counters().watchdog_dropped, 0u);
  EXPECT_FALSE(bench.at.port(1).has_frame());
  bench.at.port(1).bring_up();
  EXPECT_TRUE(bench.arrive(0, 1, 3'000));
  EXPECT_EQ(bench.pull(1).buffer_bytes, 3'000u);
  EXPECT_EQ(bench.pull(2).buffer_bytes, 100u);
  EXPECT_EQ(bench.at.bytes_held(), 0u);
  EXPECT_EQ(bench.frames.in_use(), 0u);
}

TEST(SwitchLinks, PausesOfALinkEndWithIt) {
  Bench bench(pfc(10'000, 1'000, 20'000));
  bench.at.port(1).handle_control(Time::zero(), pause_message(0xFF, 0), Time::milliseconds(1));
  EXPECT_TRUE(bench.arrive(0, 1, 1'000));
  EXPECT_FALSE(bench.at.port(1).has_frame());
  EXPECT_EQ(take_down(bench, 1), 1u);
  // Events that were scheduled for the pause find no pause.
  EXPECT_TRUE(bench.at.port(1).expire_pauses(Time::microseconds(5)).is_never());
  EXPECT_FALSE(bench.at.watch(Time::microseconds(6), 1));
  EXPECT_FALSE(bench.arrive(0, 1, 1'000)) << "still down";
  bench.at.port(1).bring_up();
  EXPECT_TRUE(bench.arrive(0, 1, 1'000));
  EXPECT_EQ(bench.pull(1).buffer_bytes, 1'000u);
  EXPECT_EQ(bench.at.port(1).counters().pauses, 1u);
}

// The neighbour has forgotten that it must stop, so it is told again.
TEST(SwitchLinks, AStopIsToldAgainWhenTheLinkIsBack) {
  Bench bench(pfc(10'000, 1'000, 20'000));
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(bench.arrive(0, 1, 3'000));
  EXPECT_EQ(bench.told(), "0:1/0 ");
  EXPECT_EQ(take_down(bench, 0), 0u);
  bench.at.port(0).bring_up();
  EXPECT_TRUE(bench.at.port(0).has_control());
  EXPECT_EQ(bench.at.port(0).pull_control().pause.stop, 1u);
  EXPECT_FALSE(bench.at.port(0).has_control());
}

TEST(SwitchLinks, CreditsAreCountedAnew) {
  SwitchSettings settings;
  settings.flow_control = port::FlowControl::credits;
  settings.lane_buffer_bytes = 64 * 100;
  Bench bench(settings);
  bench.at.port(1).handle_control(Time::zero(), port::Control::of(port::CreditUpdate{0, 50}));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(bench.arrive(0, 1, 640));
  EXPECT_EQ(bench.pull(1).buffer_bytes, 640u);
  EXPECT_EQ(bench.at.port(1).credits().senders[0].total_sent(), 10u);
  EXPECT_TRUE(bench.arrive(0, 2, 640)) << "it stays";

  EXPECT_EQ(take_down(bench, 1), 2u);
  EXPECT_EQ(bench.at.port(0).credits().receivers[0].free_blocks(), 90u);
  EXPECT_FALSE(bench.arrive(0, 1, 640));
  EXPECT_EQ(bench.at.port(0).credits().receivers[0].free_blocks(), 90u)
      << "what is lost takes no room";
  EXPECT_EQ(take_down(bench, 0), 0u);
  bench.at.port(0).bring_up();
  bench.at.port(1).bring_up();
  EXPECT_EQ(bench.at.port(1).credits().senders[0].total_sent(), 0u);
  EXPECT_FALSE(bench.at.port(1).credits().senders[0].may_send(64)) << "before it was told";
  EXPECT_EQ(bench.at.port(0).credits().receivers[0].limit(), 90u) << "less what is still here";
  std::uint32_t lanes = 0;
  while (bench.at.port(0).has_control()) {
    const port::Control control = bench.at.port(0).pull_control();
    EXPECT_EQ(control.credit.limit, control.credit.lane == 0 ? 90u : 100u);
    lanes |= 1u << control.credit.lane;
  }
  EXPECT_EQ(lanes, 0xFFu);
}

TEST(SwitchLinks, AFrameThatHasNoWayLeftTakesNoRoom) {
  SwitchSettings settings;
  settings.flow_control = port::FlowControl::credits;
  settings.lane_buffer_bytes = 64 * 100;
  const Topology topology = built(single_switch({.hosts = 4, .link = {}}));
  const Routes routes = routes_of(topology, RoutingKind::shortest);
  Bench bench(settings, 4, 1, 4);
  bench.at.set_routes(routes, false);
  bench.at.expect_recovery();
  bench.at.avoid(2, true);
  const port::FrameRef ref = bench.frame(640);
  bench.frames[ref].destination = 2;
  EXPECT_EQ(bench.at.receive(Time::microseconds(7), 3, ref), Switch::no_port);
  EXPECT_EQ(bench.at.port(3).credits().receivers[0].free_blocks(), 100u);
  EXPECT_EQ(bench.at.port(3).credits().receivers[0].limit(), 110u);
  EXPECT_EQ(bench.at.port(3).counters().unrouted, 1u);
  EXPECT_EQ(bench.at.port(3).counters().lost, 1u);
  EXPECT_EQ(bench.at.last_loss(), Time::microseconds(7));

  bench.at.avoid(2, false);
  EXPECT_EQ(bench.at.receive(Time::microseconds(8), 3, ref), 2u);
}

}  // namespace
}  // namespace tulle::fabric
