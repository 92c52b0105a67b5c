// Tests fluids against times that were computed by hand. Links carry a byte each picosecond.

#include "study/fluid/play.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace tulle::fluid {
namespace {

// Adds a flow whose acknowledgements take `back`.
void add(Traffic& traffic, double start, double bytes, const std::vector<LinkIndex>& path,
         const std::vector<LinkIndex>& back = {}, double round_trip = 0) {
  Flow flow;
  flow.start = start;
  flow.bytes = flow.alone = bytes;
  flow.round_trip = round_trip;
  flow.first_hop = static_cast<std::uint32_t>(traffic.hops.size());
  flow.hops = static_cast<std::uint32_t>(path.size());
  flow.hops_back = static_cast<std::uint32_t>(back.size());
  traffic.hops.insert(traffic.hops.end(), path.begin(), path.end());
  traffic.hops.insert(traffic.hops.end(), back.begin(), back.end());
  traffic.hops_max = std::max(traffic.hops_max, flow.hops);
  traffic.flows.push_back(flow);
}

Traffic with_links(std::size_t count, double queue_bytes_max = 1e9) {
  Traffic traffic;
  traffic.links.assign(count, {1, queue_bytes_max});
  return traffic;
}

bool always(std::uint64_t) { return true; }

// There are no queues if nothing is ever in flight.
constexpr Settings without_queues{Backlog::window, 0, 0, 0};

TEST(Play, AFlowThatIsAloneTakesNoLonger) {
  Traffic traffic = with_links(3);
  add(traffic, 5, 1'000, {0, 1, 2});
  Play play(traffic, without_queues);
  play.run(always);
  EXPECT_DOUBLE_EQ(play.delay(0), 0);
}

// From 0 to 400 the first flow is alone, then both have half. The second one is done after 1,200
// more, and the first one, which has 0 left then, as well.
TEST(Play, TwoFlowsShareALinkWhileBothAreThere) {
  Traffic traffic = with_links(3);
  add(traffic, 0, 1'000, {0, 2});
  add(traffic, 400, 2'000, {1, 2});
  Play play(traffic, without_queues);
  play.run(always);
  // The first has 600 left at 400, and ends at 1,600. The second then has 1,400 left, and ends at
  // 3,000, which is 2,600 after it began.
  EXPECT_NEAR(play.delay(0), 600, 1e-6);
  EXPECT_NEAR(play.delay(1), 600, 1e-6);
  EXPECT_EQ(play.findings().most_bound, 2u);
}

// With a round trip of 100, a window of 300 and half the rate, 50 bytes of each long flow are on
// the way, and 250 wait. The third flow comes when they do, and waits for both.
TEST(Play, AFlowWaitsForWhatTheWindowsOfOthersHaveLeftInTheQueue) {
  Traffic traffic = with_links(5, 400);
  add(traffic, 0, 100'000, {0, 3}, {}, 100);
  add(traffic, 0, 100'000, {1, 3}, {}, 100);
  add(traffic, 10'000, 1, {2, 3}, {}, 100);
  Play play(traffic, {Backlog::window, 300, 0, 0});
  play.run(always);
  // Its one byte takes three times as long beside the two.
  EXPECT_NEAR(play.delay(2), 500 + 2, 1e-6);
  EXPECT_EQ(play.findings().longest, 500);
  EXPECT_EQ(play.findings().too_long, 1u);
  EXPECT_EQ(play.findings().queues, 3u) << "of each flow, the queues behind its own link";
}

TEST(Play, AnAcknowledgementWaitsLikeData) {
  Traffic traffic = with_links(6);
  add(traffic, 0, 100'000, {0, 3}, {}, 100);
  add(traffic, 0, 100'000, {1, 3}, {}, 100);
  add(traffic, 10'000, 1, {4, 5}, {2, 3}, 100);
  Play play(traffic, {Backlog::window, 300, 0, 0});
  play.run(always);
  EXPECT_NEAR(play.delay(2), 500, 1e-6);
}

TEST(Play, ALinkThatIsInUseKeepsAPacketForHalfAPacketsTime) {
  Traffic traffic = with_links(5);
  add(traffic, 0, 100'000, {0, 3});
  add(traffic, 10'000, 1, {4, 1}, {2, 3});
  Play play(traffic, {Backlog::window, 0, 80, 0});
  play.run(always);
  EXPECT_NEAR(play.delay(1), 40, 1e-6);
}

// A quarter of the link is in use, and a packet of 80 bytes takes 20 there.
TEST(Play, AFasterLinkKeepsAPacketForLess) {
  Traffic traffic = with_links(5);
  traffic.links[3].rate = 4;
  add(traffic, 0, 100'000, {0, 3});
  add(traffic, 10'000, 1, {4, 1}, {2, 3});
  Play play(traffic, {Backlog::window, 0, 80, 0});
  play.run(always);
  EXPECT_NEAR(play.delay(1), 20.0 / 4 / 2, 1e-6);
}

// Two flows fill the switch before their common link, each the room of its port, and then their
// ports of the switch before. A third flow by the first one's port waits there, although its own
// links are free: the 100 bytes in front of it leave at half the rate.
TEST(Play, CreditsHoldUpAFlowThatDoesNotUseTheBottleneck) {
  Traffic traffic = with_links(7);
  add(traffic, 0, 100'000, {0, 1, 4});
  add(traffic, 0, 100'000, {2, 3, 4});
  add(traffic, 10'000, 1, {6, 1, 5});
  Play play(traffic, {Backlog::credits, 100, 0, 0});
  play.run(always);
  EXPECT_EQ(play.findings().blocked, 1u);
  EXPECT_NEAR(play.delay(2), 200, 2);
}

// Three flows share link 4, and the first of them leaves two thirds of link 1 to a fourth. After
// 90, 60 bytes of the first wait before link 4, which has room for 100: none of them waits before
// link 1, where 30 of the fourth do.
TEST(Play, WhatWaitsFurtherOnTakesNothingFromAQueue) {
  Traffic traffic = with_links(12);
  add(traffic, 0, 100'000, {0, 1, 4});
  add(traffic, 0, 100'000, {2, 3, 4});
  add(traffic, 0, 100'000, {7, 8, 4});
  add(traffic, 0, 100'000, {9, 1, 10});
  add(traffic, 90, 1, {6, 1, 5});
  Play play(traffic, {Backlog::credits, 100, 0, 0});
  play.run(always);
  EXPECT_NEAR(play.delay(4), 30 + 2, 1e-6) << "its byte takes three times as long beside the two";
}

TEST(Play, TheCallerMayStopIt) {
  Traffic traffic = with_links(2);
  for (int i = 0; i < 5'000; ++i) add(traffic, i * 10.0, 5, {0, 1});
  Play play(traffic, without_queues);
  play.run([](std::uint64_t) { return false; });
  EXPECT_GE(play.delay(0), 0);
  EXPECT_LT(play.delay(4'999), 0) << "it is not done";
}

TEST(Play, TheCallerHearsOfProgressEach1024thEvent) {
  Traffic traffic = with_links(2);
  for (int i = 0; i < 1'024; ++i) add(traffic, i * 10.0, 5, {0, 1});
  std::vector<std::uint64_t> done;
  Play play(traffic, without_queues);
  play.run([&done](std::uint64_t flows) {
    done.push_back(flows);
    return true;
  });
  EXPECT_EQ(done, (std::vector<std::uint64_t>{512, 1'024})) << "a flow begins, and ends";
}

TEST(Play, FlowsMayBeInAnyOrder) {
  Traffic traffic = with_links(3);
  add(traffic, 400, 2'000, {1, 2});
  add(traffic, 0, 1'000, {0, 2});
  Play play(traffic, without_queues);
  play.run(always);
  EXPECT_NEAR(play.delay(0), 600, 1e-6);
  EXPECT_NEAR(play.delay(1), 600, 1e-6);
}

}  // namespace
}  // namespace tulle::fluid
