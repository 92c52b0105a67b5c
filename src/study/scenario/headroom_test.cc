// Tests that the headroom of the formula is enough in the worst case, and that a tenth less is not.

#include <gtest/gtest.h>

#include "sim/traffic_test.h"
#include "study/scenario/build.h"

namespace tulle::scenario {
namespace {

using sim::NetworkSettings;
using sim::Traffic;

struct Case {
  const char* name;
  std::int64_t bits_per_second;
  Time link_delay;
  Time switch_latency;
  Time send_delay, receive_delay;
  bool cut_through;
};

constexpr std::int64_t gbps = 1'000'000'000;
constexpr Case cases[] = {
    {"short links", 100 * gbps, Time::nanoseconds(20), Time::zero(), Time::zero(), Time::zero(),
     false},
    {"1.1 us", 100 * gbps, Time::nanoseconds(1'100), Time::zero(), Time::zero(), Time::zero(),
     false},
    {"a slow switch", 100 * gbps, Time::nanoseconds(200), Time::nanoseconds(2'100), Time::zero(),
     Time::zero(), false},
    {"slow hosts", 100 * gbps, Time::nanoseconds(200), Time::nanoseconds(300),
     Time::microseconds(1), Time::microseconds(2), false},
    {"400 Gb/s", 400 * gbps, Time::nanoseconds(500), Time::nanoseconds(300), Time::nanoseconds(200),
     Time::nanoseconds(200), false},
    {"cut-through", 100 * gbps, Time::microseconds(1), Time::nanoseconds(300), Time::zero(),
     Time::zero(), true},
};

NetworkSettings settings_of(const Case& c) {
  NetworkSettings settings;
  settings.switch_latency = c.switch_latency;
  settings.cut_through = c.cut_through;
  settings.host.send_delay = c.send_delay;
  settings.host.receive_delay = c.receive_delay;
  settings.host.congestion.window.enabled = false;
  settings.host.congestion.packets_per_ack_request = 1;
  settings.switches.xoff_bytes = 50'000;
  settings.switches.xon_gap_bytes = 10'000;
  return settings;
}

// Three hosts. The last has a slow link, so that the frames sent to it stay in the switch.
fabric::Topology topology_of(const Case& c) {
  fabric::Topology topology = sim::star(3, c.bits_per_second, c.link_delay);
  topology.links[2].bits_per_second /= 200;
  return topology;
}

// Returns the most bytes that a port held beyond xoff, over a sweep of the phase between two
// directions. Host 0 fills the switch's memory, and host 1 sends to host 0 all the while, so that
// the switch's pause to host 0 waits for a frame. `lost` counts lost frames.
std::uint32_t most_beyond_xoff(const Case& c, std::uint32_t headroom_bytes, std::uint64_t& lost) {
  const std::int64_t frame = 4'178 * (8'000'000'000'000 / c.bits_per_second);
  std::uint32_t most = 0;
  for (int phase = 0; phase < 24; ++phase) {
    NetworkSettings settings = settings_of(c);
    settings.switches.headroom_bytes = headroom_bytes;
    Traffic traffic(topology_of(c), settings);
    traffic.write(0, 2, 200'000);
    traffic.write(1, 0, 400'000, Time{phase * frame / 24});
    traffic.run();
    const fabric::Switch& at = traffic.network().switch_at(3);
    lost += at.lossless_drops();
    for (std::uint16_t port = 0; port < at.ports(); ++port) {
      const std::uint32_t held = at.port(port).counters().ingress_bytes_max;
      if (held > 50'000) most = std::max(most, held - 50'000);
    }
  }
  return most;
}

TEST(Headroom, WhatIsNeededIsEnoughAndATenthLessIsNot) {
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const std::uint32_t needed = headroom_needed(topology_of(c), settings_of(c));
    std::uint64_t lost = 0;
    const std::uint32_t most = most_beyond_xoff(c, needed, lost);
    EXPECT_EQ(lost, 0u);
    EXPECT_LE(most, needed);
    // In a switch that cuts through, a frame counts from its first bit on, so that one frame less
    // is needed.
    if (c.cut_through) continue;
    EXPECT_GT(most, needed * 0.9) << "of " << needed;
    most_beyond_xoff(c, needed * 9 / 10, lost);
    EXPECT_GT(lost, 0u);
  }
}

TEST(Headroom, ByHand) {
  // Three frames of 4,096 + 44 + 4 + 46 + 20, a PFC frame of 84, and twice 1 us at 12.5 bytes a ns.
  NetworkSettings settings;
  EXPECT_EQ(headroom_needed(sim::star(2, 100 * gbps), settings), 3 * 4'210 + 84 + 25'000 + 1);
  // A host takes 700 ns to see the pause, and its frames take 400 to leave. The switch takes 500 to
  // know of them.
  settings.switch_latency = Time::nanoseconds(500);
  settings.host.receive_delay = Time::nanoseconds(700);
  settings.host.send_delay = Time::nanoseconds(400);
  EXPECT_EQ(headroom_needed(sim::star(2, 100 * gbps), settings),
            3 * 4'210 + 84 + 25'000 + 1'600 * 12.5 + 1);
  // Between switches both ends take 500, which here is more than the delay of hosts.
  settings.host.send_delay = settings.host.receive_delay = Time::zero();
  const fabric::LinkSettings link{100 * gbps, Time::microseconds(1)};
  EXPECT_EQ(headroom_needed(sim::must(fabric::leaf_spine({2, 2, 2, 1, link, link})), settings),
            3 * 4'210 + 84 + 25'000 + 12'500 + 1u);
}

TEST(Headroom, OfSeveralLinksTheLongestCounts) {
  fabric::Topology topology = sim::star(3, 100 * gbps);
  topology.links[1].delay = Time::microseconds(3);
  EXPECT_EQ(headroom_needed(topology, {}), 3 * 4'210 + 84 + 75'000 + 1u);
  topology.links[2].bits_per_second = 800 * gbps;
  EXPECT_EQ(headroom_needed(topology, {}), 3 * 4'210 + 84 + 200'000 + 1u);
}

TEST(Headroom, LinksToTheMoonNeedMoreThanThereIs) {
  EXPECT_EQ(headroom_needed(sim::star(2, 100 * gbps, Time::seconds(1'000'000)), {}), 0xFFFF'FFFFu);
  EXPECT_EQ(headroom_needed(sim::star(2, 1, Time::zero()), {}), 3 * 4'210 + 84 + 1u);
}

}  // namespace
}  // namespace tulle::scenario
