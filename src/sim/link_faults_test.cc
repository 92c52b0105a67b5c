#include "sim/link_faults.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "fabric/routing.h"
#include "fabric/topology.h"

namespace tulle::sim {
namespace {

// Two hosts at a switch. Host 0 sends.
class LinkFaultsTest : public testing::Test {
 protected:
  static constexpr std::int64_t never = Time::never().ps;

  Nodes& nodes_with(const NetworkSettings& settings) {
    nodes.emplace(settings, routes, topology);
    nodes->places = {{0, 0, 0}, {1, 1, 0}, {2, 2, 0}};
    nodes->hosts.emplace(0, device::Configuration{});
    end = &nodes->ends.emplace(0);
    end->port = &nodes->hosts[0].adapter.port();
    frame.payload_bytes = 1'000;
    frame.buffer_bytes = 1'060;
    return *nodes;
  }

  fabric::Topology topology = *fabric::single_switch({.hosts = 2});
  fabric::Routes routes = *fabric::compute_routes(topology, {});
  std::optional<Nodes> nodes;
  LinkEnd* end = nullptr;
  port::Frame frame;
};

TEST_F(LinkFaultsTest, WithoutFaultsNothingHappens) {
  LinkFaults faults(nodes_with({}));
  EXPECT_FALSE(faults.disturb(*end, frame, never));
  EXPECT_FALSE(faults.goes_down_by(*end, never));
  EXPECT_EQ(frame.damaged, 0u);
}

TEST_F(LinkFaultsTest, EachThirdDataPacketIsDamaged) {
  NetworkSettings settings;
  settings.lose_every = 3;
  LinkFaults faults(nodes_with(settings));
  std::vector<unsigned> damaged;
  for (int i = 0; i < 6; ++i) {
    port::Frame acknowledgement;
    EXPECT_FALSE(faults.disturb(*end, acknowledgement, never));
    EXPECT_EQ(acknowledgement.damaged, 0u);
    frame.damaged = 0;
    EXPECT_FALSE(faults.disturb(*end, frame, never));
    damaged.push_back(frame.damaged);
  }
  EXPECT_EQ(damaged, (std::vector<unsigned>{0, 0, 1, 0, 0, 1}));
  EXPECT_EQ(end->port->counters().damaged, 2u);
}

TEST_F(LinkFaultsTest, AFrameIsLostIfTheLinkGoesFirst) {
  NetworkSettings settings;
  settings.faults.outages.push_back({0, Time{100}, Time{200}});
  Nodes& at = nodes_with(settings);
  at.port_faults.resize(at.ends.size());
  at.port_faults[0].downs = {300, 100};
  LinkFaults faults(at);
  EXPECT_FALSE(faults.disturb(*end, frame, 99));
  EXPECT_TRUE(faults.disturb(*end, frame, 100));
  EXPECT_TRUE(faults.goes_down_by(*end, 100));
  EXPECT_EQ(faults.last_loss(), Time{100});
  EXPECT_EQ(end->port->counters().lost, 1u);
  EXPECT_EQ(end->port->counters().lost_bytes, 1'060u);
  faults.go_down(*end);
  EXPECT_FALSE(faults.goes_down_by(*end, 299));
  EXPECT_TRUE(faults.goes_down_by(*end, 300));
}

TEST_F(LinkFaultsTest, BitErrorsDamageFrames) {
  NetworkSettings settings;
  settings.faults.bit_errors.push_back({0, 1, Time{100}});
  Nodes& at = nodes_with(settings);
  at.port_faults.resize(at.ends.size());
  LinkFaults faults(at);
  EXPECT_FALSE(faults.disturb(*end, frame, never));
  EXPECT_EQ(frame.damaged, 0u);
  faults.set_bit_error_rate(*end, 1);
  EXPECT_FALSE(faults.disturb(*end, frame, never));
  EXPECT_EQ(frame.damaged, 1u);
  EXPECT_EQ(faults.last_loss(), Time::zero());
}

}  // namespace
}  // namespace tulle::sim
