// Rails and planes that are networks of their own.

#include <gtest/gtest.h>

#include <string>

#include "fabric/built_test.h"
#include "fabric/deadlock.h"
#include "fabric/topology.h"

namespace tulle::fabric {
namespace {

std::string error_of(const Result<Topology>& result) {
  return result ? "" : result.error().message;
}

// Follows the first of the routes. Returns the number of switches on the way; 0 if there is none.
std::uint32_t switches_between(const Topology& t, const Routes& routes, std::uint32_t from,
                               std::uint32_t to) {
  const Wiring wiring(t);
  std::uint32_t node = wiring.peer(from, 0).node;
  for (std::uint32_t count = 1; count < 8; ++count) {
    const auto ports = routes.candidates(node, to);
    if (ports.empty()) return 0;
    node = wiring.peer(node, ports.front()).node;
    if (node == to) return count;
  }
  return 0;
}

// Each pair of hosts of one network has a way, and no other pair has one.
void expect_networks(const Topology& t, RoutingKind kind) {
  const Routes routes = routes_of(t, kind);
  for (std::uint32_t from = 0; from < t.hosts; ++from) {
    for (std::uint32_t to = 0; to < t.hosts; ++to) {
      if (from == to) continue;
      const bool is_one = from % t.networks == to % t.networks;
      EXPECT_EQ(switches_between(t, routes, from, to) > 0, is_one) << from << " to " << to;
    }
  }
  EXPECT_TRUE(climbs_then_descends(t, routes));
}

constexpr RoutingKind kinds[] = {RoutingKind::shortest, RoutingKind::up_down,
                                 RoutingKind::fat_tree};

TEST(RailOnly, EachRailIsANetworkOfItsOwn) {
  const Topology t =
      built(rail_only({.servers = 5, .rails = 4, .servers_per_group = 2, .spines = 3}));
  EXPECT_EQ(t.hosts, 20u);
  EXPECT_EQ(t.switches, 4u * (3 + 3));
  EXPECT_EQ(t.networks, 4u);
  EXPECT_EQ(t.separate_rails(), 4u);
  EXPECT_EQ(t.links.size(), 20u + 4 * 3 * 3);
  EXPECT_EQ(t.name(20), "leaf 0");
  EXPECT_EQ(t.name(20 + 12), "spine 0");
  // Server 4 is alone in the third group, and its rail 2 has the leaf 2 * 3 + 2.
  EXPECT_EQ(Wiring(t).peer(4 * 4 + 2, 0).node, *t.find("leaf 8"));
  for (const RoutingKind kind : kinds) expect_networks(t, kind);
}

TEST(RailOnly, OneGroupHasASwitchForEachRail) {
  const Topology t = built(rail_only({.servers = 4, .rails = 8}));
  EXPECT_EQ(t.switches, 8u);
  EXPECT_EQ(t.ports[t.hosts], 4u);
  for (const RoutingKind kind : kinds) expect_networks(t, kind);
}

TEST(Planes, AreCopiesOfTheNetwork) {
  for (const Topology& one :
       {built(single_switch({.hosts = 3})), built(leaf_spine({.leaves = 3, .hosts_per_leaf = 2})),
        built(fat_tree({.k = 4})),
        built(rail_optimised({.servers = 4, .rails = 2, .servers_per_group = 2})),
        built(rail_only({.servers = 4, .rails = 2, .servers_per_group = 2}))}) {
    const Topology t = built(in_planes(one, 3));
    EXPECT_EQ(t.hosts, 3 * one.hosts);
    EXPECT_EQ(t.whole_adapters(), one.hosts);
    EXPECT_EQ(t.switches, 3 * one.switches);
    EXPECT_EQ(t.links.size(), 3 * one.links.size());
    EXPECT_EQ(t.networks, 3 * one.networks);
    EXPECT_EQ(t.separate_rails(), one.networks);
    for (const RoutingKind kind : kinds) expect_networks(t, kind);
    const Routes copies = routes_of(t, RoutingKind::shortest);
    const Routes before = routes_of(one, RoutingKind::shortest);
    for (std::uint32_t to = 1; to < one.hosts; ++to) {
      EXPECT_EQ(switches_between(t, copies, 2, to * 3 + 2), switches_between(one, before, 0, to));
    }
  }
}

TEST(Planes, SizesAreChecked) {
  EXPECT_EQ(error_of(rail_only({.rails = 0})), "rail-only: rails is at least 1, not 0");
  EXPECT_EQ(error_of(rail_only({.servers = 1u << 20, .rails = 8, .servers_per_group = 1u << 20})),
            "rail-only: there would be 1048576 ports of a switch; at most 32767 are possible, take "
            "smaller sizes");
  EXPECT_EQ(error_of(rail_only({.servers = 1u << 20, .rails = 1u << 20})).find("rail-only: there"),
            0u);
  EXPECT_EQ(error_of(in_planes(built(single_switch({.hosts = 30'000})), 200)),
            "there would be 6000200 hosts and switches; at most 4194304 are possible, take smaller "
            "sizes");
  EXPECT_EQ(error_of(in_planes(built(single_switch({})), 0)), "a topology has at least 1 network");
}

}  // namespace
}  // namespace tulle::fabric
