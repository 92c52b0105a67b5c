#include "rdma/optional/tcp/congestion.h"

#include <gtest/gtest.h>

#include <cmath>

#include "rdma/optional/tcp/pair_test.h"

namespace tulle::transport::tcp {
namespace {

using testing::Pair;

constexpr std::uint32_t mss = 1'000;
constexpr Time round_trip = Time::microseconds(100);

Settings settings(CongestionControl control = CongestionControl::cubic) {
  Settings settings;
  settings.mss_bytes = mss;
  settings.initial_window_segments = 10;
  settings.congestion_control = control;
  return settings;
}

// Acknowledges so many segments at once, while the window holds the sender back.
void acknowledge(Congestion& congestion, std::uint64_t segments) {
  congestion.acknowledged(Time::zero(), round_trip, segments * mss, true);
}

std::uint64_t segments_of(const Congestion& congestion) { return congestion.window_bytes() / mss; }

TEST(TcpCongestion, SlowStartGrowsByWhatIsAcknowledgedWhileTheWindowIsTheLimit) {
  const Settings with = settings();
  Congestion congestion(with);
  EXPECT_EQ(congestion.window_bytes(), 10u * mss);
  EXPECT_TRUE(congestion.in_slow_start());
  acknowledge(congestion, 10);
  EXPECT_EQ(congestion.window_bytes(), 20u * mss);
  congestion.acknowledged(Time::zero(), round_trip, 20 * mss, false);
  EXPECT_EQ(congestion.window_bytes(), 20u * mss) << "the application had no more to send";
}

TEST(TcpCongestion, ALossTakesThreeTenthsOfCubicsWindowAndHalfOfRenos) {
  for (const bool is_cubic : {true, false}) {
    const Settings with = settings(is_cubic ? CongestionControl::cubic : CongestionControl::dctcp);
    Congestion congestion(with);
    acknowledge(congestion, 90);
    congestion.lost();
    EXPECT_EQ(segments_of(congestion), is_cubic ? 70u : 50u);
    EXPECT_FALSE(congestion.in_slow_start());
    for (int i = 0; i < 30; ++i) congestion.lost();
    EXPECT_EQ(segments_of(congestion), 2u) << "RFC 5681 §3.1: two segments at least";
  }
}

// RFC 5681 §3.1: the threshold is that of the first time-out in a row, as nothing was sent since
// that could tell more.
TEST(TcpCongestion, TimeOutsInARowCountOnceForTheThreshold) {
  const Settings with = settings();
  Congestion congestion(with);
  acknowledge(congestion, 90);
  for (const bool again : {false, true, true}) {
    congestion.timed_out(again);
    EXPECT_EQ(segments_of(congestion), 1u);
  }
  acknowledge(congestion, 60);
  EXPECT_EQ(segments_of(congestion), 61u);
  EXPECT_TRUE(congestion.in_slow_start());
  acknowledge(congestion, 9);
  EXPECT_EQ(segments_of(congestion), 70u);
  EXPECT_FALSE(congestion.in_slow_start());
}

TEST(TcpCongestion, TheConnectionTellsTheFirstTimeOutFromThoseThatFollow) {
  Settings with = settings();
  with.receive_buffer_bytes = with.send_buffer_bytes = 2'000'000;
  Pair pair(with);
  pair.a.connection.append(90 * mss);
  pair.run(Time::seconds(300));
  const std::uint64_t before = pair.a.connection.window_bytes();
  ASSERT_GT(before, 50u * mss);
  pair.path = [](bool, const Segment&, std::uint64_t) { return Pair::Fate{0, {}, false}; };
  pair.a.connection.append(300 * mss);
  for (Time until = pair.now; pair.a.counters.ack_timeouts < 3; until += Time::milliseconds(50)) {
    pair.run(until);
  }
  pair.path = [](bool, const Segment&, std::uint64_t) { return Pair::Fate{}; };
  pair.run(Time::seconds(300));
  ASSERT_EQ(pair.b.connection.in_order(), 390u * mss);
  // Slow start ends at seven tenths of what it was. Without it, a segment a round trip would not
  // come that far.
  EXPECT_GE(pair.a.connection.window_bytes(), before * 7 / 10 - mss);
  EXPECT_LE(pair.a.connection.window_bytes(), before * 7 / 10 + 60 * mss);
}

TEST(TcpCongestion, AnIdleTimeTakesTheWindowAndNotTheThreshold) {
  const Settings with = settings();
  Congestion congestion(with);
  acknowledge(congestion, 90);
  congestion.lost();
  ASSERT_EQ(segments_of(congestion), 70u);
  congestion.restarted();
  EXPECT_EQ(segments_of(congestion), 10u);
  acknowledge(congestion, 60);
  EXPECT_EQ(segments_of(congestion), 70u);
  EXPECT_FALSE(congestion.in_slow_start());
}

// Lets acknowledgements of one round come with this time between them, for so long.
void train(Congestion& congestion, Time apart, Time length, Time least) {
  const std::uint64_t sent_end = 1'000'000;
  for (Time now = Time::seconds(1), end = now + length; now <= end; now += apart) {
    congestion.watch_slow_start(now, least, mss, sent_end);
  }
}

// Ha and Rhee: a train of acknowledgements that is longer than half of the shortest round trip
// fills the path.
TEST(TcpCongestion, SlowStartEndsWithALongTrainOfAcknowledgements) {
  const Time least = Time::milliseconds(10);
  struct Case {
    std::uint64_t more_segments;
    Time apart, length;
    CongestionControl control;
    bool ends;
  };
  using enum CongestionControl;
  const Case cases[] = {
      {6, Time::milliseconds(1), Time::milliseconds(6), cubic, true},
      {6, Time::milliseconds(2), Time::milliseconds(6), cubic, true},
      {6, Time::milliseconds(1), Time::milliseconds(5), cubic, false},  // exactly half
      {6, Time::milliseconds(3), Time::milliseconds(9), cubic, false},  // no train
      {5, Time::milliseconds(1), Time::milliseconds(6), cubic, false},  // fifteen segments
      {6, Time::milliseconds(1), Time::milliseconds(6), dctcp, false},
  };
  for (const Case& each : cases) {
    const Settings with = settings(each.control);
    Congestion congestion(with);
    acknowledge(congestion, each.more_segments);
    train(congestion, each.apart, each.length, least);
    EXPECT_EQ(congestion.in_slow_start(), !each.ends) << (&each - cases);
  }
}

TEST(TcpCongestion, ATrainInCongestionAvoidanceMovesNoThreshold) {
  const Settings with = settings();
  Congestion congestion(with);
  acknowledge(congestion, 90);
  congestion.lost();
  for (int i = 0; i < 40; ++i) acknowledge(congestion, segments_of(congestion));
  ASSERT_GT(segments_of(congestion), 80u);
  train(congestion, Time::milliseconds(1), Time::milliseconds(20), Time::milliseconds(10));
  congestion.restarted();
  acknowledge(congestion, 60);
  EXPECT_FALSE(congestion.in_slow_start()) << "70 segments, where the loss was";
}

// RFC 9438 §4.2: the window aims at where the cubic curve is one round trip from now.
TEST(TcpCongestion, CubicAimsARoundTripAhead) {
  Cubic cubic;
  cubic.reduce(1'000 * mss, mss);
  const Time trip = Time::milliseconds(100);
  cubic.increase(Time::seconds(10), trip, 700 * mss, mss, mss);
  const double growth =
      cubic.increase(Time::seconds(11), trip, 750 * mss, mss, 750 * mss);  // a whole window
  const double k = std::cbrt(300 / 0.4);
  const double target = 0.4 * std::pow(1.1 - k, 3) + 1'000;
  EXPECT_NEAR(growth, (target - 750) * mss, 1.0);
}

}  // namespace
}  // namespace tulle::transport::tcp
