// Trees of aggregation nodes on the topologies that have them, and what is refused.

#include "fabric/aggregation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "fabric/built_test.h"
#include "fabric/random_topology_test.h"
#include "fabric/topology_builder.h"

namespace tulle::fabric {
namespace {

using Trees = std::vector<AggregationTree>;
using Groups = std::vector<std::vector<std::uint32_t>>;

constexpr Time delay = Time::nanoseconds(50);

Groups all_hosts(const Topology& topology) {
  Groups groups(1, std::vector<std::uint32_t>(topology.hosts));
  std::iota(groups[0].begin(), groups[0].end(), 0u);
  return groups;
}

Trees trees_on(Topology& topology, const Groups& groups) {
  auto trees = add_aggregation_trees(topology, groups, delay);
  EXPECT_TRUE(trees) << trees.error().message;
  return trees ? std::move(*trees) : Trees{};
}

std::string error_on(Topology topology, const Groups& groups) {
  const auto trees = add_aggregation_trees(topology, groups, delay);
  EXPECT_FALSE(trees);
  return trees ? "" : trees.error().message;
}

// Returns the rate of all links between two nodes together; 0: there is none.
std::int64_t rate_between(const Topology& topology, std::uint32_t a, std::uint32_t b) {
  std::int64_t rate = 0;
  for (const Link& link : topology.links) {
    const bool joins = (link.a == a && link.b == b) || (link.a == b && link.b == a);
    if (joins) rate += link.bits_per_second;
  }
  return rate;
}

// Checks that a port is a host of the topology behind the adapters, at the switch, with this rate
// and the delay, and that no other node has it.
class Ports {
 public:
  Ports(const Topology& topology, const Topology& before) : topology_(topology) {
    for (const Link& link : topology.links) {
      if (link.a >= before.hosts && link.a < topology.hosts) link_of_.emplace(link.a, link);
    }
  }

  void expect(std::uint32_t port, std::uint32_t at_switch, std::int64_t rate) {
    ASSERT_TRUE(link_of_.contains(port)) << "port " << port;
    const Link& link = link_of_.at(port);
    EXPECT_EQ(link.b, at_switch);
    EXPECT_EQ(link.bits_per_second, rate);
    EXPECT_EQ(link.delay, delay);
    EXPECT_EQ(topology_.ports[port], 1u);
    EXPECT_TRUE(taken_.insert(port).second) << "port " << port << " has two owners";
  }
  void expect_all_taken() const { EXPECT_EQ(taken_.size(), topology_.aggregation_ports); }

 private:
  const Topology& topology_;
  std::map<std::uint32_t, Link> link_of_;
  std::set<std::uint32_t> taken_;
};

// Checks what is true of every tree: it reaches its hosts where they are, its edges are links, and
// a switch has one node of it at most.
void expect_tree(const AggregationTree& tree, const std::vector<std::uint32_t>& hosts,
                 const Topology& topology, const Topology& before, Ports& ports) {
  ASSERT_FALSE(tree.nodes.empty());
  std::set<std::uint32_t> switches;
  std::vector<std::uint32_t> members, children(tree.nodes.size());
  for (std::uint32_t i = 0; i < tree.nodes.size(); ++i) {
    const AggregationTree::Node& node = tree.nodes[i];
    EXPECT_FALSE(topology.is_host(node.switch_node));
    EXPECT_TRUE(switches.insert(node.switch_node).second) << "two nodes in one switch";
    if (i == 0) {
      EXPECT_EQ(node.parent, AggregationTree::none) << "the first node is the root";
      EXPECT_EQ(node.up_port, AggregationTree::none);
      EXPECT_EQ(node.parent_port, AggregationTree::none);
    } else {
      ASSERT_LT(node.parent, i) << "children come behind their parents";
      ++children[node.parent];
      const std::uint32_t above = tree.nodes[node.parent].switch_node;
      const std::int64_t rate = rate_between(topology, node.switch_node, above);
      ASSERT_GT(rate, 0) << "an edge is a link";
      ports.expect(node.up_port, node.switch_node, rate);
      ports.expect(node.parent_port, above, rate);
    }
    for (const AggregationTree::Member& member : node.members) {
      members.push_back(member.host);
      const std::int64_t rate = rate_between(topology, member.host, node.switch_node);
      ASSERT_GT(rate, 0) << "host " << member.host << " is at its node's switch";
      ports.expect(member.port, node.switch_node, rate);
    }
  }
  for (std::uint32_t i = 0; i < tree.nodes.size(); ++i) {
    EXPECT_FALSE(tree.nodes[i].members.empty() && children[i] == 0) << "a node has work to do";
  }
  std::ranges::sort(members);
  std::vector<std::uint32_t> expected = hosts;
  std::ranges::sort(expected);
  EXPECT_EQ(members, expected);
  EXPECT_EQ(topology.adapters(), before.hosts);
}

// Returns the greatest number of edges from the root to a node.
std::uint32_t depth_of(const AggregationTree& tree) {
  std::vector<std::uint32_t> depth(tree.nodes.size());
  for (std::size_t i = 1; i < depth.size(); ++i) depth[i] = depth[tree.nodes[i].parent] + 1;
  return *std::ranges::max_element(depth);
}

// Plans the trees and checks them, with what was there before: it keeps its links and ports.
Trees checked_trees(Topology topology, const Groups& groups) {
  const Topology before = topology;
  Trees trees = trees_on(topology, groups);
  EXPECT_EQ(trees.size(), groups.size());
  const std::uint32_t added = topology.hosts - before.hosts;
  EXPECT_EQ(topology.aggregation_ports, added);
  EXPECT_EQ(topology.switches, before.switches);
  for (std::size_t i = 0; i < before.links.size(); ++i) {
    Link link = before.links[i];
    for (std::uint32_t* end : {&link.a, &link.b}) *end += *end < before.hosts ? 0 : added;
    EXPECT_EQ(topology.links[i], link);
  }
  std::vector<std::uint32_t> used(topology.nodes());
  for (const Link& link : topology.links) ++used[link.a], ++used[link.b];
  EXPECT_EQ(used, topology.ports) << "each port has a link";
  for (std::uint32_t node = before.hosts; node < before.nodes(); ++node) {
    EXPECT_EQ(topology.name(node + added), before.name(node));
  }
  Ports ports(topology, before);
  for (std::size_t i = 0; i < trees.size(); ++i) {
    expect_tree(trees[i], groups[i], topology, before, ports);
  }
  ports.expect_all_taken();
  return trees;
}

TEST(AggregationTrees, OneSwitchIsTheRootOfAll) {
  const Topology topology = built(single_switch({.hosts = 5}));
  const Trees trees = checked_trees(topology, all_hosts(topology));
  ASSERT_EQ(trees[0].nodes.size(), 1u);
  EXPECT_EQ(trees[0].nodes[0].members.size(), 5u);
}

// Each leaf of the group and a spine have a node. Other leaves have none, and a group at one leaf
// needs no spine.
TEST(AggregationTrees, LeavesMeetInASpine) {
  const Topology topology =
      built(leaf_spine({.leaves = 4, .spines = 2, .hosts_per_leaf = 4, .links_per_pair = 3}));
  const Trees all = checked_trees(topology, all_hosts(topology));
  EXPECT_EQ(all[0].nodes.size(), 5u);
  EXPECT_EQ(depth_of(all[0]), 1u);
  const Trees some = checked_trees(topology, {{0, 5, 6}});
  EXPECT_EQ(some[0].nodes.size(), 3u);
  const Trees one_leaf = checked_trees(topology, {{4, 5, 6}});
  EXPECT_EQ(one_leaf[0].nodes.size(), 1u);
}

TEST(AggregationTrees, RootsAreTakenInTurn) {
  Topology topology =
      built(rail_optimised({.servers = 8, .rails = 4, .servers_per_group = 2, .spines = 3}));
  Groups groups(4);
  for (std::uint32_t host = 0; host < topology.hosts; ++host) groups[host % 4].push_back(host);
  checked_trees(topology, groups);
  std::vector<std::string> roots;
  const Trees trees = trees_on(topology, groups);
  for (const auto& tree : trees) roots.push_back(topology.name(tree.nodes[0].switch_node));
  EXPECT_EQ(roots, (std::vector<std::string>{"spine 0", "spine 1", "spine 2", "spine 0"}));
}

TEST(AggregationTrees, AFatTreeHasThreeStoreys) {
  const Topology topology = built(fat_tree({.k = 4}));
  const Trees trees = checked_trees(topology, all_hosts(topology));
  EXPECT_EQ(depth_of(trees[0]), 2u);
  EXPECT_EQ(trees[0].nodes.size(), 1u + 4 + 8) << "a core, a switch of each pod, and all edges";
  const Trees of_pod = checked_trees(topology, {{0, 1, 2, 3}});
  EXPECT_EQ(depth_of(of_pod[0]), 1u) << "a pod needs no core";
}

// A port is as fast as the link by which data come, also where links differ.
TEST(AggregationTrees, PortsHaveTheRatesOfTheirLinks) {
  const Topology topology =
      built(from_csv("a,b,gbps,delay_ns\n0,3,100,500\n1,3,200,500\n2,4,400,500\n3,4,50,500\n"
                     "3,4,25,500\n",
                     "links.csv"));
  checked_trees(topology, all_hosts(topology));
}

// Switches with hosts may be inside of a tree. The farthest leaf is as near to the root as can be.
TEST(AggregationTrees, OtherTopologiesHaveThemToo) {
  const Topology ring = built(torus({.size = {5}}));
  EXPECT_EQ(depth_of(checked_trees(ring, all_hosts(ring))[0]), 2u);
  const Topology plane = built(torus({.size = {4, 4}, .hosts_per_switch = 2}));
  EXPECT_EQ(depth_of(checked_trees(plane, all_hosts(plane))[0]), 4u);
  const Topology groups = built(dragonfly({}));
  const Trees trees = checked_trees(groups, all_hosts(groups));
  EXPECT_EQ(trees[0].nodes.size(), groups.switches);
  EXPECT_LE(depth_of(trees[0]), 3u);
}

TEST(AggregationTrees, AnyGraphHasThem) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Topology topology = random_topology(seed);
    Groups groups(3);
    for (std::uint32_t host = 0; host < topology.hosts; ++host) {
      groups[(host + seed) % 2].push_back(host);
      if (host % 3 == 0) groups[2].push_back(host);
    }
    checked_trees(topology, groups);
    if (HasFailure()) return;
  }
}

// The tree's edges are links, so that a node sends to a neighbour alone.
TEST(AggregationTrees, RoutesLeadAlongTheirEdges) {
  Topology topology = built(leaf_spine({.leaves = 3, .spines = 2, .hosts_per_leaf = 2}));
  const Trees trees = trees_on(topology, all_hosts(topology));
  const Routes routes = routes_of(topology, RoutingKind::shortest);
  const Wiring wiring(topology);
  for (const auto& node : trees[0].nodes) {
    if (node.parent == AggregationTree::none) continue;
    const std::uint32_t above = trees[0].nodes[node.parent].switch_node;
    for (const auto& [from, to, port] : {std::tuple(node.switch_node, above, node.parent_port),
                                         std::tuple(above, node.switch_node, node.up_port)}) {
      const auto candidates = routes.candidates(from, port);
      ASSERT_EQ(candidates.size(), 1u);
      EXPECT_EQ(wiring.peer(from, candidates[0]).node, to);
    }
  }
}

TEST(AggregationTrees, WhatCannotBeIsRefused) {
  TopologyBuilder islands_of(4, 2, Tiers{});
  for (std::uint32_t host = 0; host < 4; ++host) islands_of.link(host, 4 + host / 2, {});
  const Topology islands = islands_of.take();
  EXPECT_EQ(error_on(islands, all_hosts(islands)), "no switch reaches all hosts");
  checked_trees(islands, {{0, 1}, {2, 3}});

  TopologyBuilder loose_of(3, 1, Tiers{});
  loose_of.link(0, 3, {});
  loose_of.link(2, 3, {});
  const Topology loose = loose_of.take();
  EXPECT_EQ(error_on(loose, all_hosts(loose)), "host 1 is at no switch, which could reduce");
  checked_trees(loose, {{0, 2}});

  const Topology full = built(single_switch({.hosts = max_switch_ports / 2 + 1}));
  EXPECT_NE(error_on(full, all_hosts(full)).find("has no more ports for the trees"),
            std::string::npos);
}

}  // namespace
}  // namespace tulle::fabric
