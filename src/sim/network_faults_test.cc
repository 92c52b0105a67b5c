// Tests of links that go down, hosts that take in too little, and the routes around them.

#include <gtest/gtest.h>

#include <map>

#include "sim/traffic_test.h"

namespace tulle::sim {
namespace {

constexpr std::int64_t gbps = 1'000'000'000;
constexpr Time us(std::int64_t n) { return Time::microseconds(n); }

std::uint32_t link_between(const fabric::Topology& topology, std::uint32_t a, std::uint32_t b) {
  for (std::uint32_t i = 0; i < topology.links.size(); ++i) {
    const fabric::Link& link = topology.links[i];
    if (std::minmax(link.a, link.b) == std::minmax(a, b)) return i;
  }
  ADD_FAILURE() << "no such link";
  return 0;
}

// Hosts 0 to 3, leaves 4 and 5, spines 6 and 7.
fabric::Topology two_leaves() {
  const fabric::LinkSettings link{100 * gbps, us(1)};
  return must(fabric::leaf_spine({2, 2, 2, 1, link, link}));
}

class FaultsOf : public testing::TestWithParam<LinkLayer> {};

INSTANTIATE_TEST_SUITE_P(Layers, FaultsOf,
                         testing::Values(LinkLayer::ethernet, LinkLayer::infiniband),
                         [](const auto& info) {
                           return info.param == LinkLayer::ethernet ? "ethernet" : "infiniband";
                         });

// Frames on the wire and frames that wait in the switch are lost. Frames in the adapter are not,
// and the transport retransmits the missing ones.
TEST_P(FaultsOf, AMessageOutlivesItsLink) {
  NetworkSettings settings = plain(GetParam());
  settings.faults.outages = {{1, us(20), us(90)}};
  Traffic traffic(star(2, 100 * gbps), settings);
  std::uint64_t late = 0;
  traffic.network().on_send([&](const Sending& sending) {
    const bool is_of_link = sending.node == 1 || (sending.node == 2 && sending.port == 1);
    const bool is_down = us(20) <= sending.now && sending.now < us(90);
    late += is_of_link && is_down;
  });
  const std::size_t message = traffic.write(0, 1, 1'000'000);
  traffic.run();
  EXPECT_TRUE(traffic.all_done());
  EXPECT_GT(traffic.end(message), us(90));
  EXPECT_EQ(late, 0u) << "nothing is sent by a port without a link";
  const FaultTotals totals = traffic.network().fault_totals();
  EXPECT_GT(totals.frames, 24u) << "two microseconds' at least";
  EXPECT_GT(totals.last_loss, us(20));
  EXPECT_LT(totals.last_loss, us(90));
  EXPECT_EQ(traffic.network().frames_in_use(), 0u);
}

TEST_P(FaultsOf, AFrameIsLostUnlessItIsThereBefore) {
  // One packet leaves its host at 0 and arrives at the other some 2.2 us later.
  NetworkSettings settings = plain(GetParam());
  Traffic healthy(star(2, 100 * gbps), settings);
  Time arrives;
  healthy.network().on_send([&](const Sending& sending) {
    const bool is_data = sending.frame != nullptr && sending.frame->payload_bytes > 0;
    if (sending.node == 2 && is_data) arrives = sending.arrives;
  });
  healthy.write(0, 1, 1'000);
  healthy.run();
  ASSERT_GT(arrives, us(2));
  for (const auto& [from, lost] : {std::pair{arrives, true}, {arrives + Time{1}, false}}) {
    settings.faults.outages = {{1, from, from + Time{1}}};
    Traffic traffic(star(2, 100 * gbps), settings);
    std::uint64_t data_lost = 0;
    traffic.network().on_send([&](const Sending& sending) {
      data_lost += sending.lost && sending.frame != nullptr && sending.frame->payload_bytes > 0;
    });
    traffic.write(0, 1, 1'000);
    traffic.run();
    EXPECT_EQ(data_lost, lost ? 1u : 0u);
    EXPECT_EQ(traffic.network().fault_totals().frames, 1u) << "the frame or its acknowledgement";
    EXPECT_TRUE(traffic.all_done());
  }
}

TEST_P(FaultsOf, ALinkThatStaysDownFailsItsFlowsAndNoOthers) {
  NetworkSettings settings = plain(GetParam());
  settings.faults.outages = {{1, us(20)}};
  Traffic traffic(star(3, 100 * gbps), settings);
  const std::size_t cut = traffic.write(0, 1, 1'000'000);
  const std::size_t other = traffic.write(0, 2, 1'000'000);
  traffic.run(Time::seconds(1));
  EXPECT_TRUE(traffic.connections()[cut].failed);
  EXPECT_FALSE(traffic.connections()[other].failed);
  EXPECT_LT(traffic.end(other), us(400));
}

TEST_P(FaultsOf, ARouteAroundALinkTakesWhatItTook) {
  const fabric::Topology topology = two_leaves();
  fabric::RecoverySettings recovery;
  recovery.subnet_manager = GetParam() == LinkLayer::infiniband;
  recovery.detection = us(10);
  recovery.routing = us(20);
  recovery.trap_delay = us(10);
  recovery.computing = us(20);
  recovery.programming = Time::zero();
  for (const bool recovers : {false, true}) {
    NetworkSettings settings = plain(GetParam());
    for (const std::uint32_t leaf : {4u, 5u}) {
      settings.faults.outages.push_back({link_between(topology, leaf, 7), us(20)});
    }
    Traffic traffic(topology, settings, fabric::RoutingKind::up_down,
                    recovers ? &recovery : nullptr);
    for (std::uint32_t i = 0; i < 8; ++i) traffic.write(i % 2, 2 + i / 2 % 2, 400'000);
    for (std::uint32_t i = 0; i < 8; ++i) traffic.write(2 + i % 2, i / 2 % 2, 400'000);
    traffic.run(Time::milliseconds(100));
    EXPECT_EQ(traffic.all_done(), recovers);
    const FaultTotals totals = traffic.network().fault_totals();
    EXPECT_GT(totals.frames, 0u);
    if (!recovers) continue;
    EXPECT_LE(totals.last_loss, us(20 + 30));
    EXPECT_EQ(traffic.network().frames_in_use(), 0u);
  }
}

TEST(Faults, OfFramesWithoutAWaySomeAreCounted) {
  const fabric::Topology topology = two_leaves();
  fabric::RecoverySettings recovery;
  recovery.detection = us(5);
  recovery.routing = us(5);
  NetworkSettings settings = plain();
  for (const std::uint32_t spine : {6u, 7u}) {
    settings.faults.outages.push_back({link_between(topology, 4, spine), us(20), us(300)});
  }
  Traffic traffic(topology, settings, fabric::RoutingKind::shortest, &recovery);
  traffic.write(2, 0, 1'000'000);
  traffic.run();
  EXPECT_TRUE(traffic.all_done());
  const FaultTotals totals = traffic.network().fault_totals();
  EXPECT_GT(totals.unrouted, 0u);
  EXPECT_GT(totals.frames, totals.unrouted);
}

TEST(Faults, BitErrorsStayOnTheirLink) {
  NetworkSettings settings = plain();
  settings.faults.bit_errors = {{1, 1e-6, us(50), us(100)}};
  Traffic traffic(star(3, 100 * gbps), settings);
  std::map<std::uint16_t, std::uint64_t> damaged;
  traffic.network().on_send([&](const Sending& sending) {
    if (sending.frame == nullptr || sending.frame->damaged == 0) return;
    const std::uint16_t link =
        sending.node < 3 ? static_cast<std::uint16_t>(sending.node) : sending.port;
    ++damaged[link];
    EXPECT_GE(sending.now, us(50));
    EXPECT_LT(sending.now, us(100));
  });
  traffic.write(0, 1, 2'000'000);
  traffic.write(0, 2, 2'000'000);
  traffic.run();
  EXPECT_TRUE(traffic.all_done());
  EXPECT_EQ(damaged.size(), 1u);
  EXPECT_GT(damaged[1], 0u);
}

// The host takes in 20 of 100 Gb/s: the message takes five times as long, and nothing is lost.
TEST_P(FaultsOf, ASlowHostHoldsBackWhoSendsToIt) {
  NetworkSettings settings = plain(GetParam());
  settings.faults.slow_hosts = {{.host = 1, .bits_per_second = 20 * gbps, .buffer_bytes = 50'000}};
  Traffic traffic(star(3, 100 * gbps), settings);
  const std::size_t message = traffic.write(0, 1, 2'000'000);
  traffic.run();
  EXPECT_TRUE(traffic.all_done());
  EXPECT_GT(traffic.end(message), us(800));
  EXPECT_LT(traffic.end(message), us(850));
  EXPECT_EQ(traffic.retransmitted(), 0u);
  EXPECT_EQ(traffic.network().fault_totals().frames, 0u);
  if (GetParam() == LinkLayer::ethernet) {
    EXPECT_GT(traffic.network().counters(3, 1).pauses, 2u);
  } else {
    EXPECT_GT(traffic.network().counters(3, 1).credit_stalls, 2u);
  }
}

TEST_P(FaultsOf, ASlowHostThatRecoversIsAsFastAsBefore) {
  NetworkSettings settings = plain(GetParam());
  settings.faults.slow_hosts = {{.host = 1, .from = us(10), .until = us(60)}};
  Traffic traffic(star(2, 100 * gbps), settings);
  const std::size_t message = traffic.write(0, 1, 1'000'000);
  traffic.run();
  EXPECT_TRUE(traffic.all_done());
  EXPECT_GT(traffic.end(message), us(80 + 40)) << "80 us of the line, and nearly 50 of silence";
  EXPECT_LT(traffic.end(message), us(80 + 65));
  EXPECT_EQ(traffic.retransmitted(), 0u);
  EXPECT_EQ(traffic.network().frames_in_use(), 0u);
}

// Without flow control, the frames for which the buffer has no room are lost.
TEST(Faults, ASlowHostLosesWhatNothingHoldsBack) {
  NetworkSettings settings = plain();
  settings.switches.flow_control = port::FlowControl::none;
  settings.faults.slow_hosts = {
      {.host = 1, .bits_per_second = 20 * gbps, .until = us(60), .buffer_bytes = 50'000}};
  Traffic traffic(star(2, 100 * gbps), settings);
  traffic.write(0, 1, 1'000'000);
  traffic.run();
  EXPECT_TRUE(traffic.all_done());
  EXPECT_GT(traffic.network().counters(1, 0).lost, 0u);
  EXPECT_EQ(traffic.network().counters(2, 1).pauses, 0u);
}

// Nothing reaches a stuck adapter. Its switch stops the hosts that send to it, and with them their
// traffic to others, until the adapter's watchdog trips.
TEST(Faults, AStuckHostStopsOthersUntilItsWatchdogTrips) {
  for (const Time watchdog : {Time::zero(), us(500)}) {
    NetworkSettings settings = plain();
    settings.switches.xoff_bytes = 40'000;
    settings.host.watchdog = watchdog;
    settings.faults.slow_hosts = {{.host = 1, .from = us(20)}};
    Traffic traffic(star(3, 100 * gbps), settings);
    traffic.write(0, 1, 1'000'000);
    const std::size_t bystander = traffic.write(0, 2, 1'000'000);
    traffic.run(Time::milliseconds(5));
    EXPECT_EQ(traffic.network().counters(0, 0).pauses > 0, true);
    EXPECT_EQ(traffic.network().counters(1, 0).watchdog_trips, watchdog > Time::zero() ? 1u : 0u);
    if (watchdog == Time::zero()) {
      EXPECT_TRUE(traffic.end(bystander).is_never());
    } else {
      // The last pause of the stuck host holds for up to 336 us.
      EXPECT_GT(traffic.end(bystander), us(520));
      EXPECT_LT(traffic.end(bystander), us(520 + 336 + 200));
      EXPECT_GT(traffic.network().counters(1, 0).lost, 0u) << "of what it has no room for";
    }
  }
}

// A pause that is still asked for does not end when the link comes up.
TEST(Faults, AStuckHostAsksAgainWhenItsLinkIsBack) {
  NetworkSettings settings = plain();
  settings.faults.slow_hosts = {{.host = 1, .from = us(20), .until = us(900)}};
  settings.faults.outages = {{1, us(100), us(200)}};
  Traffic traffic(star(2, 100 * gbps), settings);
  std::uint64_t frames = 0;
  traffic.network().on_send([&](const Sending& sending) {
    const bool is_to_host = sending.node == 2 && sending.port == 1 && sending.frame != nullptr;
    if (is_to_host && sending.now > us(210) && sending.now < us(900)) ++frames;
  });
  traffic.write(0, 1, 1'000'000);
  traffic.run();
  EXPECT_TRUE(traffic.all_done());
  EXPECT_EQ(frames, 0u);
}

}  // namespace
}  // namespace tulle::sim
