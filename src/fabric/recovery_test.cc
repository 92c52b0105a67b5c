#include "fabric/recovery.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tulle::fabric {
namespace {

constexpr Time us(std::int64_t n) { return Time::microseconds(n); }

// Hosts 0 to 3, leaves 4 and 5, spines 6 and 7. Links 0 to 3 belong to the hosts, and the others
// follow leaf by leaf.
Topology two_leaves() {
  auto topology = leaf_spine({});
  TULLE_CHECK(static_cast<bool>(topology));
  return std::move(*topology);
}
constexpr std::uint32_t leaf_0 = 4, leaf_1 = 5, spine_1 = 7;  // nodes

std::uint32_t link_of(const Topology& topology, std::uint32_t a, std::uint32_t b) {
  for (std::uint32_t i = 0; i < topology.links.size(); ++i) {
    if (topology.links[i].a == a && topology.links[i].b == b) return i;
  }
  ADD_FAILURE() << "no such link";
  return 0;
}

Recovery planned(const Topology& topology, const RecoverySettings& settings,
                 std::vector<Outage> outages, RoutingKind kind = RoutingKind::shortest) {
  auto recovery = plan_recovery(topology, {kind}, settings, std::move(outages));
  TULLE_CHECK(static_cast<bool>(recovery));
  return std::move(*recovery);
}

// Returns the number of ports by which a switch may send to a host at a given time, or 99 if its
// routes never changed.
std::size_t ways(const Recovery& recovery, Time now, std::uint32_t node, std::uint32_t host) {
  const Routes* routes = nullptr;
  for (const RouteChange& change : recovery.route_changes) {
    if (change.node == node && change.at <= now) routes = &recovery.versions[change.version];
  }
  return routes == nullptr ? 99 : routes->candidates(node, host).size();
}

TEST(Outages, ThoseOfOneLinkThatTouchAreOne) {
  const std::vector<Outage> found = merged({{1, us(5), us(8)},
                                            {0, us(1), us(2)},
                                            {1, us(8), us(9)},
                                            {1, us(1), us(6)},
                                            {0, us(4), Time::never()},
                                            {0, us(6), us(7)}});
  const std::vector<Outage> expected = {
      {0, us(1), us(2)}, {0, us(4), Time::never()}, {1, us(1), us(9)}};
  EXPECT_EQ(found, expected);
}

TEST(Recovery, WithoutOutagesNothingChanges) {
  for (const bool subnet_manager : {false, true}) {
    RecoverySettings settings;
    settings.subnet_manager = subnet_manager;
    const Recovery recovery = planned(two_leaves(), settings, {});
    EXPECT_TRUE(recovery.outages.empty());
    EXPECT_TRUE(recovery.route_changes.empty());
    EXPECT_TRUE(recovery.avoidances.empty());
  }
}

TEST(Recovery, EthernetsNeighboursComeFirstThenAllOthers) {
  const Topology topology = two_leaves();
  RecoverySettings settings;
  settings.detection = us(10);
  settings.routing = us(30);
  const std::uint32_t link = link_of(topology, leaf_0, spine_1);
  const Recovery recovery = planned(topology, settings, {{link, us(100), us(500)}});
  EXPECT_EQ(recovery.outages, (std::vector<Outage>{{link, us(100), us(500)}}));

  ASSERT_EQ(recovery.avoidances.size(), 4u);
  const std::vector<PortAvoidance>& avoided = recovery.avoidances;
  EXPECT_EQ(avoided[0].at, us(110));
  EXPECT_EQ(std::min(avoided[0].node, avoided[1].node), leaf_0);
  EXPECT_EQ(std::max(avoided[0].node, avoided[1].node), spine_1);
  EXPECT_TRUE(avoided[0].is_avoided && avoided[1].is_avoided);
  EXPECT_EQ(avoided[2].at, us(510));
  EXPECT_FALSE(avoided[2].is_avoided || avoided[3].is_avoided);

  EXPECT_EQ(ways(recovery, us(139), leaf_1, 0), 99u) << "as before";
  EXPECT_EQ(ways(recovery, us(140), leaf_1, 0), 1u);
  EXPECT_EQ(ways(recovery, us(140), leaf_0, 2), 1u);
  EXPECT_EQ(ways(recovery, us(539), leaf_1, 0), 1u);
  EXPECT_EQ(ways(recovery, us(540), leaf_1, 0), 2u);
}

TEST(Recovery, WhatIsOverBeforeItIsNoticedChangesNothing) {
  const Topology topology = two_leaves();
  RecoverySettings settings;
  settings.detection = us(10);
  const Outage flap = {link_of(topology, leaf_0, spine_1), us(100), us(110)};
  const Recovery recovery = planned(topology, settings, {flap});
  EXPECT_EQ(recovery.outages, (std::vector<Outage>{flap}));
  EXPECT_TRUE(recovery.avoidances.empty());
  EXPECT_TRUE(recovery.route_changes.empty());
}

TEST(Recovery, RoutesToAHostLeadToItsSwitchAllTheSame) {
  for (const bool subnet_manager : {false, true}) {
    RecoverySettings settings;
    settings.subnet_manager = subnet_manager;
    const Recovery recovery = planned(two_leaves(), settings, {{0, us(100), us(200'000)}});
    EXPECT_EQ(recovery.outages.size(), 1u);
    EXPECT_TRUE(recovery.avoidances.empty());
    EXPECT_TRUE(recovery.route_changes.empty());
  }
}

TEST(Recovery, ASwitchThatIsCutOffHasNoRoutes) {
  const Topology topology = two_leaves();
  std::vector<Outage> outages;
  for (std::uint32_t i = 0; i < topology.links.size(); ++i) {
    const Link& link = topology.links[i];
    if (link.a == leaf_0 || link.b == leaf_0) outages.push_back({i, us(100)});
  }
  const Recovery recovery = planned(topology, {}, outages);
  EXPECT_EQ(recovery.versions.size(), 1u);
  EXPECT_EQ(ways(recovery, Time::never(), leaf_1, 0), 0u);
  EXPECT_EQ(ways(recovery, Time::never(), leaf_1, 2), 1u);
}

TEST(Recovery, ASubnetManagerWritesOneTableAfterTheOther) {
  const Topology topology = two_leaves();
  RecoverySettings settings;
  settings.subnet_manager = true;
  settings.trap_delay = us(5);
  settings.computing = us(20);
  settings.programming = us(3);  // 4 hosts and 4 switches make one block
  const std::uint32_t link = link_of(topology, leaf_0, spine_1);
  const Recovery recovery =
      planned(topology, settings, {{link, us(100), us(500)}}, RoutingKind::fat_tree);
  EXPECT_TRUE(recovery.avoidances.empty());
  ASSERT_EQ(recovery.route_changes.size(), 8u);
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(recovery.route_changes[i].at, us(128 + 3 * i));
    EXPECT_EQ(recovery.route_changes[i].node, leaf_0 + i);
    EXPECT_EQ(recovery.route_changes[4 + i].at, us(528 + 3 * i));
  }
  // A port that comes up carries data once the last table is written.
  EXPECT_EQ(recovery.outages, (std::vector<Outage>{{link, us(100), us(537)}}));
}

TEST(Recovery, LargeTablesTakeTheirBlocks) {
  auto topology = fat_tree({.k = 8});  // 128 hosts and 80 switches: LIDs up to 208, four blocks
  TULLE_CHECK(static_cast<bool>(topology));
  RecoverySettings settings;
  settings.subnet_manager = true;
  settings.trap_delay = settings.computing = Time::zero();
  settings.programming = us(1);
  const auto last = static_cast<std::uint32_t>(topology->links.size() - 1);
  const Recovery recovery = planned(*topology, settings, {{last, us(0)}}, RoutingKind::fat_tree);
  EXPECT_EQ(recovery.route_changes.front().at, us(4));
  EXPECT_EQ(recovery.route_changes.back().at, us(4 * 80));
}

TEST(Recovery, WithoutTrapsTheNextSweepFindsAllThatIsDownByThen) {
  const Topology topology = two_leaves();
  RecoverySettings settings;
  settings.subnet_manager = true;
  settings.traps = false;
  settings.sweep_interval = us(1'000);
  settings.computing = settings.programming = Time::zero();
  const std::uint32_t one = link_of(topology, leaf_0, spine_1);
  const std::uint32_t other = link_of(topology, leaf_1, spine_1);
  const Recovery recovery =
      planned(topology, settings, {{one, us(100)}, {other, us(300), us(400)}, {other, us(1'000)}});
  EXPECT_EQ(recovery.versions.size(), 1u) << "all at the first sweep";
  ASSERT_EQ(recovery.route_changes.size(), 4u) << "each switch once";
  EXPECT_EQ(recovery.route_changes.front().at, us(1'000));
  EXPECT_EQ(ways(recovery, us(1'000), leaf_1, 0), 1u);
  EXPECT_EQ(recovery.outages[1], (Outage{other, us(300), Time::never()})) << "never active between";
}

TEST(Recovery, EqualLossesShareTheirRoutes) {
  const Topology topology = two_leaves();
  RecoverySettings settings;
  settings.detection = settings.routing = us(1);
  const std::uint32_t link = link_of(topology, leaf_0, spine_1);
  std::vector<Outage> flaps;
  for (std::int64_t i = 0; i < 10; ++i) flaps.push_back({link, us(100 * i), us(100 * i + 50)});
  const Recovery recovery = planned(topology, settings, flaps);
  EXPECT_EQ(recovery.versions.size(), 2u);
  EXPECT_EQ(recovery.route_changes.size(), 20u * 4);
}

}  // namespace
}  // namespace tulle::fabric
