// A port alone: the test is its owner, its driver and its neighbour.

#include "rdma/port/port.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tulle::port {
namespace {

constexpr Time us(std::int64_t n) { return Time::microseconds(n); }

class Bench {
 public:
  explicit Bench(const Settings& settings, bool has_head_lifetime = false)
      : settings_(settings), port(settings_, &frames, has_head_lifetime) {}

  FrameRef put(std::uint8_t lane, std::uint16_t bytes = 1'000, Time now = Time::zero()) {
    const FrameRef ref = frames.take();
    Frame& frame = frames[ref];
    frame.buffer_bytes = bytes;
    frame.gap_bytes = 20;
    frame.service_class = lane & 0xF;
    frame.traffic_class = ecn_capable;
    port.put(now, ref, frame);
    return ref;
  }
  // Returns the lane of the next frame, or -1 if none may be sent.
  int pull() {
    const FrameRef ref = port.pull(Time::zero(), random_);
    if (ref == no_frame) return -1;
    const int lane = frames[ref].service_class;
    frames.give(ref);
    return lane;
  }
  // Returns the lanes of the next frames, up to the first moment when none may be sent.
  std::string pull_all() {
    std::string lanes;
    for (int lane; (lane = pull()) >= 0;) lanes += std::to_string(lane);
    return lanes;
  }
  void credit(std::uint8_t lane, std::uint16_t limit) {
    port.handle_control(Time::zero(), Control::of(CreditUpdate{lane, limit}));
  }
  // Gives a list of frames back to the pool and returns how many these are.
  int give(FrameRef first) {
    int count = 0;
    for (FrameRef next; first != no_frame; first = next, ++count) {
      next = frames[first].next;
      frames.give(first);
    }
    return count;
  }

 private:
  Settings settings_;
  Random random_{1};

 public:
  FramePool frames;
  Port port;
};

Settings with(FlowControl flow_control) {
  Settings settings;
  settings.flow_control = flow_control;
  return settings;
}

Settings with_credits(std::uint32_t lane_buffer_bytes = 64 * 100) {
  Settings settings = with(FlowControl::credits);
  settings.lane_buffer_bytes = lane_buffer_bytes;
  return settings;
}

// --- pause ---

TEST(PortPause, AStoppedClassWaitsAndTheOthersGo) {
  Bench bench(with(FlowControl::pfc));
  bench.put(0);
  bench.put(1);
  EXPECT_TRUE(bench.port.handle_control(us(1), Control::of(Pause{.stop = 1}), us(10)));
  EXPECT_FALSE(bench.port.handle_control(us(2), Control::of(Pause{.stop = 1}), us(10)))
      << "the class was stopped before";
  EXPECT_EQ(bench.pull_all(), "1");
  EXPECT_EQ(bench.port.stopped(), 1u);
  EXPECT_FALSE(bench.port.has_frame());
  bench.port.handle_control(us(5), Control::of(Pause{.go = 1}));
  EXPECT_EQ(bench.pull_all(), "0");
  EXPECT_EQ(bench.port.counters().pauses, 1u);
  EXPECT_EQ(bench.port.counters().paused_ps, us(4).ps);
}

TEST(PortPause, APauseThatIsNotRenewedEnds) {
  Bench bench(with(FlowControl::pfc));
  bench.put(3);
  bench.port.handle_control(us(0), Control::of(Pause{.stop = 1 << 3}), us(10));
  EXPECT_EQ(bench.port.expire_pauses(us(10) - Time{1}), us(10));
  EXPECT_EQ(bench.pull(), -1);
  EXPECT_TRUE(bench.port.expire_pauses(us(10)).is_never());
  EXPECT_EQ(bench.pull(), 3);
}

TEST(PortPause, AClockThatMovesItsZeroChangesNoPause) {
  Settings settings = with(FlowControl::pfc);
  settings.watchdog = us(100);
  Bench bench(settings);
  bench.put(3);
  bench.put(4);
  bench.port.handle_control(us(1'000), Control::of(Pause{.stop = 1 << 3}), us(10));
  bench.port.handle_control(us(1'000), Control::of(Pause{.stop = 1 << 4}));
  bench.port.rebase(us(900));
  EXPECT_EQ(bench.port.expire_pauses(us(110) - Time{1}), us(110));
  EXPECT_EQ(bench.pull(), -1);
  EXPECT_TRUE(bench.port.expire_pauses(us(110)).is_never());
  EXPECT_EQ(bench.pull(), 3);
  bench.port.rebase(us(100));
  EXPECT_EQ(bench.port.trip_watchdog(us(100) - Time{1}), 0u);
  EXPECT_EQ(bench.port.trip_watchdog(us(100)), 1u << 4);
}

TEST(PortPause, TheNeighbourIsToldOnceToStopAndOnceToGoOn) {
  Bench bench(with(FlowControl::pfc));
  EXPECT_TRUE(bench.port.stop(0b01)) << "a message is due now";
  EXPECT_FALSE(bench.port.stop(0b10)) << "one was due before";
  const Control stop = bench.port.pull_control();
  EXPECT_EQ(stop.kind, Control::Kind::pause);
  EXPECT_EQ(stop.pause.stop, 0b11);
  EXPECT_EQ(stop.pause.go, 0);
  EXPECT_EQ(bench.port.pull_control().kind, Control::Kind::none);
  EXPECT_TRUE(bench.port.stop(bench.port.stopping())) << "a renewal";
  EXPECT_EQ(bench.port.pull_control().pause.stop, 0b11);
  EXPECT_TRUE(bench.port.resume(0b01));
  EXPECT_EQ(bench.port.stopping(), 0b10);
  const Control go = bench.port.pull_control();
  EXPECT_EQ(go.pause.stop, 0);
  EXPECT_EQ(go.pause.go, 0b01);
}

TEST(PortPause, TheWatchdogDropsWhatAStuckNeighbourHoldsBack) {
  Settings settings = with(FlowControl::pfc);
  settings.watchdog = us(100);
  Bench bench(settings);
  bench.put(0);
  bench.put(0);
  bench.put(1);
  bench.port.handle_control(us(0), Control::of(Pause{.stop = 1}));
  EXPECT_EQ(bench.port.trip_watchdog(us(99)), 0u);
  EXPECT_TRUE(bench.port.is_watched());
  EXPECT_EQ(bench.port.trip_watchdog(us(100)), 1u);
  EXPECT_EQ(bench.give(bench.port.empty_queue(0)), 2);
  EXPECT_TRUE(bench.port.drops(0));
  EXPECT_FALSE(bench.port.drops(1));
  EXPECT_EQ(bench.port.counters().watchdog_trips, 1u);
  EXPECT_EQ(bench.port.queue_bytes(), 1'000u);
  bench.port.handle_control(us(200), Control::of(Pause{.go = 1}));
  EXPECT_FALSE(bench.port.drops(0)) << "the class may go on";
}

// --- credits ---

TEST(PortCredits, AFrameWaitsForTheCreditsOfItsWholeLength) {
  Bench bench(with_credits());
  bench.put(0, 640);
  bench.put(1, 64);
  EXPECT_EQ(bench.pull(), -1);
  EXPECT_EQ(bench.port.counters().credit_stalls, 1u);
  bench.credit(0, 9);
  EXPECT_EQ(bench.pull(), -1) << "10 blocks are needed";
  bench.credit(1, 1);
  EXPECT_EQ(bench.pull(), 1) << "lanes do not wait for each other";
  bench.credit(0, 10);
  EXPECT_EQ(bench.pull(), 0);
  bench.put(0, 64);
  EXPECT_EQ(bench.pull(), -1) << "all credits are spent";
}

TEST(PortCredits, TheNeighbourIsToldWhenAQuarterOfALaneIsFree) {
  Bench bench(with_credits(64 * 40));
  EXPECT_EQ(bench.port.announce_credits(2).credit.limit, 40u);
  for (int i = 0; i < 4; ++i) bench.port.take_room(2, 640);
  EXPECT_EQ(bench.port.credits().receivers[2].free_blocks(), 0u);
  EXPECT_FALSE(bench.port.has_control());
  EXPECT_TRUE(bench.port.free_room(2, 640));
  const Control told = bench.port.pull_control();
  EXPECT_EQ(told.kind, Control::Kind::credit);
  EXPECT_EQ(told.credit.lane, 2u);
  EXPECT_EQ(told.credit.limit, 50u);
  EXPECT_FALSE(bench.port.has_control());
}

TEST(PortCredits, AnAdapterAsksWhichLanesAreOpen) {
  Settings settings = with_credits();
  settings.arbitration = VlArbitration(std::vector<VlWeight>{{0, 4}, {1, 4}}, {}, 0);
  Bench bench(settings);
  bench.credit(1, 100);
  bench.credit(5, 100);
  EXPECT_EQ(bench.port.open_lanes(6'400), 1u << 1) << "lane 5 is in no table of the arbitration";
  EXPECT_EQ(bench.port.open_lanes(6'401), 0u);
  Frame frame;
  frame.service_class = 1;
  frame.buffer_bytes = 3'200;
  EXPECT_EQ(bench.port.choose(1u << 1), 1u);
  bench.port.count_sent(frame);
  EXPECT_EQ(bench.port.open_lanes(3'200), 1u << 1);
  EXPECT_EQ(bench.port.open_lanes(3'201), 0u);
  EXPECT_EQ(bench.port.counters().frames, 1u);
}

TEST(PortCredits, APortWithoutCreditsTakesNoHarmFromAnUpdate) {
  Bench bench(with(FlowControl::pfc));
  bench.credit(0, 100);
  EXPECT_FALSE(bench.port.has_credits());
}

// --- lanes ---

TEST(PortLanes, ArbitrationSharesTheLinkByWeight) {
  Settings settings = with_credits(64 * 2'047);
  // Lane 0 has the high table. Lanes 1 and 2 share what is left, two frames to one.
  const std::vector<VlWeight> high = {{0, 64}};
  const std::vector<VlWeight> low = {{1, 2}, {2, 1}};
  settings.arbitration = VlArbitration(high, low, VlArbitration::limit_unbounded);
  Bench bench(settings);
  for (std::uint8_t lane = 0; lane < 3; ++lane) bench.credit(lane, 2'000);
  for (int i = 0; i < 4; ++i) bench.put(1, 64);
  for (int i = 0; i < 2; ++i) bench.put(2, 64);
  bench.put(0, 64);
  EXPECT_EQ(bench.pull_all(), "0112112");
}

TEST(PortLanes, ClassesTakeTurnsByTheirQuantumAndStrictOnesComeFirst) {
  Settings settings = with(FlowControl::none);
  settings.quantum_bytes = {2'040, 1'020, 0, 0, 0, 0, 0, 0};
  Bench bench(settings);
  for (int i = 0; i < 4; ++i) bench.put(0);
  for (int i = 0; i < 2; ++i) bench.put(1);
  bench.put(2);
  bench.put(7);
  EXPECT_EQ(bench.pull_all(), "72001001");
}

TEST(PortLanes, AQueueBeyondItsThresholdIsMarkedOnce) {
  Settings settings = with(FlowControl::none);
  settings.ecn = {.enabled = true, .least_bytes = 1'500, .most_bytes = 1'500, .probability = 1};
  Bench bench(settings);
  const FrameRef first = bench.put(0);
  const FrameRef second = bench.put(0);
  EXPECT_EQ(bench.pull(), 0);
  EXPECT_EQ(bench.pull(), 0);
  EXPECT_EQ(bench.frames[first].traffic_class & ecn_mask, ecn_congestion_experienced);
  EXPECT_EQ(bench.frames[second].traffic_class & ecn_mask, ecn_capable);
  EXPECT_EQ(bench.port.counters().marked, 1u);
}

TEST(PortLanes, AFrameAtTheHeadHasALifetimeAndAStalledLaneDropsAll) {
  Settings settings = with_credits();
  settings.stall_count = 2;
  Bench bench(settings, true);
  for (int i = 0; i < 3; ++i) bench.put(4, 640, us(0));
  EXPECT_EQ(bench.port.expire_head(us(9), 4, us(10)), Port::Expired::nothing);
  EXPECT_EQ(bench.port.next_expiry(4, us(10)), us(10));
  EXPECT_EQ(bench.port.expire_head(us(10), 4, us(10)), Port::Expired::head);
  bench.frames.give(bench.port.take_head(4));
  EXPECT_EQ(bench.port.queue_bytes(4), 1'280u);
  bench.port.rebase(us(4));
  EXPECT_EQ(bench.port.expire_head(us(16) - Time{1}, 4, us(10)), Port::Expired::nothing);
  EXPECT_EQ(bench.port.expire_head(us(16), 4, us(10)), Port::Expired::queue);
  EXPECT_EQ(bench.give(bench.port.empty_queue(4)), 2);
  EXPECT_TRUE(bench.port.drops(4));
  EXPECT_EQ(bench.port.next_expiry(4, us(10)), us(96)) << "eight lifetimes";
  bench.port.rebase(us(96));
  EXPECT_EQ(bench.port.expire_head(us(1), 4, us(10)), Port::Expired::nothing);
  EXPECT_FALSE(bench.port.drops(4));
}

// --- the link ---

TEST(PortLink, ADownLinkLosesItsQueuesAndForgetsThePauses) {
  Bench bench(with(FlowControl::pfc));
  bench.put(0);
  bench.put(6);
  bench.port.stop(0b100);
  bench.port.handle_control(us(0), Control::of(Pause{.stop = 1}), us(1'000));
  bench.port.take_down(us(3));
  EXPECT_TRUE(bench.port.is_down());
  EXPECT_EQ(bench.port.stopped(), 0u);
  EXPECT_EQ(bench.port.counters().paused_ps, us(3).ps);
  EXPECT_FALSE(bench.port.has_control()) << "nobody is there to be told";
  int lost = 0;
  for (std::uint32_t lane = 0; lane < classes; ++lane) {
    EXPECT_TRUE(bench.port.drops(lane));
    lost += bench.give(bench.port.empty_queue(lane));
  }
  EXPECT_EQ(lost, 2);
  EXPECT_EQ(bench.port.queue_bytes(), 0u);
  EXPECT_EQ(bench.frames.in_use(), 0u);

  bench.port.bring_up();
  EXPECT_FALSE(bench.port.drops(0));
  EXPECT_EQ(bench.port.pull_control().pause.stop, 0b100) << "the new neighbour must stop as well";
  bench.put(0);
  EXPECT_EQ(bench.pull(), 0);
}

TEST(PortLink, CreditsAreCountedAnewAndFramesInMemoryKeepTheirs) {
  Bench bench(with_credits(64 * 100));
  bench.credit(0, 10);
  bench.put(0, 640);
  EXPECT_EQ(bench.pull(), 0);
  bench.port.take_room(0, 64 * 30);
  bench.port.take_down(us(1));
  bench.port.bring_up();
  EXPECT_EQ(bench.port.credits().senders[0].total_sent(), 0u);
  bench.put(0, 640);
  EXPECT_EQ(bench.pull(), -1) << "the old limit does not count";
  std::vector<std::uint16_t> limits(classes);
  while (bench.port.has_control()) {
    const Control told = bench.port.pull_control();
    limits[told.credit.lane] = told.credit.limit;
  }
  EXPECT_EQ(limits[0], 70u);
  EXPECT_EQ(limits[7], 100u);
  bench.credit(0, 10);
  EXPECT_EQ(bench.pull(), 0);
}

// --- management ---

TEST(PortManagement, MessagesLeaveInOrderAndPlacesAreUsedAgain) {
  ManagementPool<int> pool;
  ManagementLane here, there;
  EXPECT_EQ(pool.pop(here), ManagementLane::none);
  pool.push(here, pool.take(10));
  pool.push(there, pool.take(20));
  pool.push(here, pool.take(11));
  EXPECT_FALSE(here.empty());
  std::uint32_t place = pool.pop(here);
  EXPECT_EQ(pool[place], 10);
  pool.give(place);
  EXPECT_EQ(pool.take(12), place);
  place = pool.pop(here);
  EXPECT_EQ(pool[place], 11);
  EXPECT_TRUE(here.empty());
  EXPECT_EQ(pool[pool.pop(there)], 20);
}

}  // namespace
}  // namespace tulle::port
