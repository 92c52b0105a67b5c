#include "fabric/deadlock.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "fabric/built_test.h"
#include "fabric/random_topology_test.h"

namespace tulle::fabric {
namespace {

DeadlockReport checked(const Topology& t, const Routes& routes, const DeadlockSettings& settings) {
  DeadlockReport report = check_deadlock(t, routes, settings);
  // A cycle must be closed: each channel ends where the next begins.
  const Wiring wiring(t);
  for (std::size_t i = 0; i < report.cycle.size(); ++i) {
    const Channel& channel = report.cycle[i];
    EXPECT_EQ(wiring.peer(channel.from, channel.from_port).node, channel.to);
    EXPECT_EQ(wiring.peer(channel.from, channel.from_port).port, channel.to_port);
    EXPECT_EQ(channel.to, report.cycle[(i + 1) % report.cycle.size()].from);
  }
  return report;
}

DeadlockReport checked(const Topology& t, RoutingKind kind, const DeadlockSettings& settings = {}) {
  return checked(t, routes_of(t, kind), settings);
}

// Returns true if forwarding tables are free of deadlock with these lanes.
bool free_with(const PathLanes& lanes, const Topology& t, RoutingKind kind, unsigned lmc = 0) {
  const Routes routes = routes_of(t, kind);
  DeadlockSettings settings = with_lanes(lanes, routes);
  settings.forwarding_tables = true;
  settings.lmc = lmc;
  return checked(t, routes, settings).deadlock_free();
}

TEST(Deadlock, ARingLocksUpWithoutADateline) {
  const Topology t = built(torus({.size = {4}}));
  const DeadlockReport report = checked(t, RoutingKind::shortest);
  ASSERT_EQ(report.cycle.size(), 4u);
  EXPECT_EQ(report.channels, 8u);
  EXPECT_EQ(report.dependencies, 8u);
  EXPECT_EQ(describe_cycle(t, report.cycle),
            "switch (0) → switch (1) → switch (2) → switch (3) → switch (0)");
  EXPECT_FALSE(checked(t, RoutingKind::dimension_ordered).deadlock_free());

  EXPECT_TRUE(free_with(PathLanes::torus(t), t, RoutingKind::dimension_ordered));
  EXPECT_TRUE(free_with(PathLanes::torus(t), t, RoutingKind::shortest));
}

TEST(Deadlock, ARingOfThreeHasNoRouteOfTwoLinks) {
  EXPECT_TRUE(checked(built(torus({.size = {3}})), RoutingKind::shortest).deadlock_free());
}

TEST(Deadlock, TorusWithADateline) {
  for (const TorusSettings& settings :
       {TorusSettings{.size = {5, 4}}, TorusSettings{.size = {4, 4, 4}},
        TorusSettings{.size = {2, 6, 5}, .hosts_per_switch = 2}, TorusSettings{.size = {9, 3}}}) {
    const Topology t = built(torus(settings));
    EXPECT_FALSE(checked(t, RoutingKind::dimension_ordered).deadlock_free());
    EXPECT_TRUE(free_with(PathLanes::torus(t), t, RoutingKind::dimension_ordered));
    EXPECT_TRUE(free_with(PathLanes::torus(t), t, RoutingKind::dimension_ordered, 2));
    // Dimension order exists to prevent turns from y to x: the dateline alone does not.
    EXPECT_FALSE(free_with(PathLanes::torus(t), t, RoutingKind::shortest));
  }
}

TEST(Deadlock, DragonflyNeedsASecondLaneAfterTheGlobalLink) {
  for (const std::uint32_t groups : {0u, 4u}) {
    const Topology t = built(dragonfly({.groups = groups}));
    const DeadlockReport report = checked(t, RoutingKind::dragonfly_minimal);
    EXPECT_FALSE(report.deadlock_free());
    EXPECT_TRUE(free_with(PathLanes::dragonfly(t), t, RoutingKind::dragonfly_minimal));
    const Routes routes = routes_of(t, RoutingKind::dragonfly_minimal);
    EXPECT_TRUE(checked(t, routes, with_lanes(PathLanes::dragonfly(t), routes)).deadlock_free())
        << "whatever path a switch chooses";
  }
}

TEST(Deadlock, ByWayOfAThirdGroupADragonflyNeedsThreeLanes) {
  for (const std::uint32_t groups : {0u, 3u, 4u}) {
    const Topology t = built(dragonfly({.groups = groups}));
    const Routes routes = routes_of(t, RoutingKind::dragonfly_minimal);
    const GroupRoutes by_groups(t, routes);
    const auto is_free = [&](const PathLanes& lanes) {
      DeadlockSettings settings = with_lanes(lanes, routes);
      settings.non_minimal = &by_groups;
      return checked(t, routes, settings).deadlock_free();
    };
    EXPECT_TRUE(is_free(PathLanes::dragonfly_non_minimal(t)));
    EXPECT_FALSE(is_free(PathLanes::dragonfly(t))) << "two are not enough";
    EXPECT_FALSE(checked(t, routes, {.non_minimal = &by_groups}).deadlock_free());
    EXPECT_TRUE(
        checked(t, routes, with_lanes(PathLanes::dragonfly_non_minimal(t), routes)).deadlock_free())
        << "minimal paths use them as well";
  }
}

// Lanes may depend on where a packet comes from.
TEST(Deadlock, AHopSaysWhetherItBeginsAtAHost) {
  const Topology t = built(dragonfly({}));
  const Routes routes = routes_of(t, RoutingKind::dragonfly_minimal);
  const GroupRoutes by_groups(t, routes);
  const Wiring wiring(t);
  std::size_t from_hosts = 0, others = 0;
  DeadlockSettings settings;
  settings.non_minimal = &by_groups;
  settings.vl = [&](const Hop& hop) {
    const bool is_host = t.is_host(wiring.peer(hop.switch_node, hop.in_port).node);
    EXPECT_EQ(hop.from_host, is_host);
    ++(is_host ? from_hosts : others);
    return std::uint8_t{0};
  };
  checked(t, routes, settings);
  EXPECT_GT(from_hosts, 0u);
  EXPECT_GT(others, 0u);
}

TEST(Deadlock, TreesAreFree) {
  for (const Topology& t :
       {built(single_switch({.hosts = 9})), built(fat_tree({.k = 4})), built(fat_tree({.k = 8})),
        built(leaf_spine({.leaves = 5, .spines = 3, .links_per_pair = 2})),
        built(rail_optimised({.servers = 8, .rails = 4, .servers_per_group = 4, .spines = 2}))}) {
    for (const auto kind : {RoutingKind::shortest, RoutingKind::up_down, RoutingKind::fat_tree}) {
      const DeadlockReport report = checked(t, kind);
      EXPECT_TRUE(report.deadlock_free()) << describe_cycle(t, report.cycle);
      EXPECT_TRUE(checked(t, kind, {.forwarding_tables = true, .lmc = 2}).deadlock_free());
    }
  }
}

TEST(Deadlock, UpDownIsFreeOnRandomGraphs) {
  int shortest_locks_up = 0;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Topology t = random_topology(seed);
    const DeadlockReport report = checked(t, RoutingKind::up_down);
    EXPECT_TRUE(report.deadlock_free()) << describe_cycle(t, report.cycle);
    shortest_locks_up += !checked(t, RoutingKind::shortest).deadlock_free();
  }
  EXPECT_GT(shortest_locks_up, 0);  // otherwise the graphs would prove nothing
}

TEST(Deadlock, UpDownIsFreeOnRingsAndDragonflies) {
  EXPECT_TRUE(checked(built(torus({.size = {5, 4}})), RoutingKind::up_down).deadlock_free());
  EXPECT_TRUE(checked(built(dragonfly({})), RoutingKind::up_down).deadlock_free());
}

// The tree has lost links, so that each leaf keeps two spines. A leaf reaches its neighbours'
// neighbours only by going down and up again, and around the leaves this closes a cycle.
TEST(Deadlock, FailedLinksMakeShortestRoutesLockUp) {
  Topology t = built(leaf_spine({.leaves = 4, .spines = 4, .hosts_per_leaf = 1}));
  std::erase_if(t.links, [&](const Link& link) {
    const std::uint32_t leaf = link.a - t.hosts, spine = link.b - t.hosts - 4;
    return !t.is_host(link.a) && spine != leaf && spine != (leaf + 1) % 4;
  });
  EXPECT_EQ(checked(t, RoutingKind::shortest).cycle.size(), 8u);
  EXPECT_TRUE(checked(t, RoutingKind::up_down).deadlock_free());
}

// A switch that chooses among candidates sends to the host's first address. With tables, each of
// the host's addresses has a path.
TEST(Deadlock, ServiceLevelsAreThoseOfThePathsThatThereAre) {
  const Topology t = built(leaf_spine({}));
  const Routes routes = routes_of(t, RoutingKind::shortest);
  for (const unsigned lmc : {0u, 2u}) {
    for (const bool forwarding_tables : {false, true}) {
      std::set<std::uint32_t> paths;
      DeadlockSettings settings;
      settings.forwarding_tables = forwarding_tables;
      settings.lmc = lmc;
      settings.sl = [&paths](std::uint32_t, std::uint32_t, std::uint32_t path) {
        paths.insert(path);
        return std::uint8_t{0};
      };
      EXPECT_TRUE(checked(t, routes, settings).deadlock_free());
      ASSERT_FALSE(paths.empty());
      EXPECT_EQ(*paths.begin(), 0u);
      EXPECT_EQ(paths.size(), forwarding_tables ? std::size_t{1} << lmc : 1u);
      EXPECT_EQ(*paths.rbegin(), paths.size() - 1);
    }
  }
}

TEST(Deadlock, LanesAreNamed) {
  const Topology t = built(torus({.size = {4}}));
  const VlMap all_on_lane_2 = [](const Hop&) { return std::uint8_t{2}; };
  const DeadlockReport report = checked(t, RoutingKind::shortest, {.vls = 3, .vl = all_on_lane_2});
  EXPECT_EQ(describe_cycle(t, report.cycle),
            "switch (0) (VL 2) → switch (1) (VL 2) → switch (2) (VL 2) → switch (3) (VL 2) → "
            "switch (0)");
}

TEST(Deadlock, WhatClimbsAndThenDescendsIsFree) {
  for (const auto& t : {built(fat_tree({.k = 4})), built(leaf_spine({.leaves = 4, .spines = 2}))}) {
    for (const auto kind : {RoutingKind::shortest, RoutingKind::up_down, RoutingKind::fat_tree}) {
      EXPECT_TRUE(climbs_then_descends(t, routes_of(t, kind)));
    }
  }
  const Topology ring = built(torus({.size = {4}}));
  EXPECT_FALSE(climbs_then_descends(ring, routes_of(ring, RoutingKind::shortest)));
  // This is free too, but its links have no up and down by the distance from hosts.
  EXPECT_FALSE(climbs_then_descends(ring, routes_of(ring, RoutingKind::up_down)));
  EXPECT_TRUE(checked(ring, RoutingKind::up_down).deadlock_free());
}

// Trees that have lost some links: where the short check finds no deadlock, the long check finds
// none either.
TEST(Deadlock, TheShortCheckIsNeverWrong) {
  int free = 0, undecided = 0, locks = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Random random(seed);
    Topology t = built(leaf_spine({.leaves = 5, .spines = 4, .hosts_per_leaf = 1}));
    const double lost = 0.6 * random.unit();
    std::erase_if(t.links,
                  [&](const Link& link) { return !t.is_host(link.a) && random.chance(lost); });
    for (const auto kind : {RoutingKind::shortest, RoutingKind::up_down}) {
      auto routes = compute_routes(t, {.kind = kind, .partial = true});
      ASSERT_TRUE(routes) << routes.error().message;
      const bool short_check = climbs_then_descends(t, *routes);
      const bool long_check = checked(t, *routes, {}).deadlock_free();
      EXPECT_TRUE(long_check || !short_check) << "seed " << seed;
      ++(short_check ? free : long_check ? undecided : locks);
    }
  }
  EXPECT_GT(std::min({free, undecided, locks}), 20) << free << " " << undecided << " " << locks;
}

TEST(Deadlock, AThousandHosts) {
  const Topology t = built(fat_tree({.k = 16}));
  for (const auto kind : {RoutingKind::shortest, RoutingKind::up_down, RoutingKind::fat_tree}) {
    const DeadlockReport report = checked(t, kind);
    EXPECT_TRUE(report.deadlock_free());
    EXPECT_EQ(report.channels, 2u * 2 * 1024);
  }
}

}  // namespace
}  // namespace tulle::fabric
