#include "fabric/topology.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "fabric/built_test.h"

namespace tulle::fabric {
namespace {

std::string error_of(const Result<Topology>& result) {
  EXPECT_FALSE(result);
  return result ? "" : result.error().message;
}

// Checks what is true of every topology: hosts have one port, and every port of a node has exactly
// one link.
void expect_sound(const Topology& t) {
  ASSERT_EQ(t.ports.size(), t.nodes());
  std::set<std::pair<std::uint32_t, std::uint32_t>> used;
  for (const Link& link : t.links) {
    ASSERT_LT(std::max(link.a, link.b), t.nodes());
    EXPECT_NE(link.a, link.b);
    EXPECT_LT(link.a_port, t.ports[link.a]);
    EXPECT_LT(link.b_port, t.ports[link.b]);
    EXPECT_TRUE(used.insert({link.a, link.a_port}).second);
    EXPECT_TRUE(used.insert({link.b, link.b_port}).second);
    EXPECT_GT(link.bits_per_second, 0);
  }
  std::uint64_t ports = 0;
  for (std::uint32_t node = 0; node < t.nodes(); ++node) {
    ports += t.ports[node];
    if (t.is_host(node)) {
      EXPECT_EQ(t.ports[node], 1u);
    }
  }
  EXPECT_EQ(ports, used.size());

  const Wiring wiring(t);
  for (std::uint32_t i = 0; i < t.links.size(); ++i) {
    const Link& link = t.links[i];
    EXPECT_EQ(wiring.peer(link.a, link.a_port).node, link.b);
    EXPECT_EQ(wiring.peer(link.a, link.a_port).port, link.b_port);
    EXPECT_EQ(wiring.peer(link.b, link.b_port).node, link.a);
    EXPECT_EQ(wiring.peer(link.b, link.b_port).link, i);
  }
}

TEST(Topology, SingleSwitch) {
  const Topology t = built(single_switch({.hosts = 33}));
  expect_sound(t);
  EXPECT_EQ(t.hosts, 33u);
  EXPECT_EQ(t.switches, 1u);
  EXPECT_EQ(t.ports[33], 33u);
  EXPECT_EQ(t.name(3), "host 3");
  EXPECT_EQ(t.name(33), "switch 0");
}

TEST(Topology, LeafSpineWithParallelLinksAndItsOwnUplinkRate) {
  LeafSpineSettings settings{.leaves = 4, .spines = 3, .hosts_per_leaf = 5, .links_per_pair = 2};
  settings.uplink = {800'000'000'000, Time::nanoseconds(500)};
  const Topology t = built(leaf_spine(settings));
  expect_sound(t);
  EXPECT_EQ(t.hosts, 20u);
  EXPECT_EQ(t.switches, 7u);
  EXPECT_EQ(t.links.size(), 20u + 4 * 3 * 2);
  EXPECT_EQ(t.ports[20], 5u + 6);
  EXPECT_EQ(t.ports[24], 8u);
  EXPECT_EQ(t.links.front().bits_per_second, 400'000'000'000);
  EXPECT_EQ(t.links.back().bits_per_second, 800'000'000'000);
  EXPECT_EQ(t.links.back().delay, Time::nanoseconds(500));
  EXPECT_EQ(t.name(21), "leaf 1");
  EXPECT_EQ(t.name(26), "spine 2");
}

// Checks the numbering on which flow tables made by other tools depend, written as their generator
// has it.
TEST(Topology, FatTreeIsNumberedAsPublished) {
  for (const std::uint32_t k : {2u, 4u, 8u, 16u}) {
    const Topology t = built(fat_tree({.k = k}));
    expect_sound(t);
    const std::uint32_t half = k / 2, hosts = k * k * k / 4;
    const std::uint32_t edge = hosts, aggregation = edge + k * half, core = aggregation + k * half;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> expected;
    for (std::uint32_t host = 0; host < hosts; ++host)
      expected.push_back({host, edge + host / half});
    for (std::uint32_t pod = 0; pod < k; ++pod) {
      for (std::uint32_t e = 0; e < half; ++e) {
        for (std::uint32_t a = 0; a < half; ++a) {
          expected.push_back({edge + pod * half + e, aggregation + pod * half + a});
        }
      }
    }
    for (std::uint32_t pod = 0; pod < k; ++pod) {
      for (std::uint32_t a = 0; a < half; ++a) {
        for (std::uint32_t c = 0; c < half; ++c) {
          expected.push_back({aggregation + pod * half + a, core + a * half + c});
        }
      }
    }
    ASSERT_EQ(t.links.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(std::pair(t.links[i].a, t.links[i].b), expected[i]);
    }
    EXPECT_EQ(t.hosts, hosts);
    EXPECT_EQ(t.switches, 5 * half * half);
    for (std::uint32_t node = hosts; node < t.nodes(); ++node) EXPECT_EQ(t.ports[node], k);
    EXPECT_EQ(t.name(core), "core 0");
  }
}

TEST(Topology, FatTreeOversubscribedAtTheEdge) {
  const Topology t = built(fat_tree({.k = 4, .hosts_per_edge = 6}));
  expect_sound(t);
  EXPECT_EQ(t.hosts, 4u * 2 * 6);
  EXPECT_EQ(t.ports[t.hosts], 8u);
  EXPECT_EQ(t.name(t.hosts + 1), "edge 1");
  EXPECT_EQ(t.name(t.hosts + 8), "aggregation 0");
}

TEST(Topology, RailOptimised) {
  const Topology t =
      built(rail_optimised({.servers = 10, .rails = 8, .servers_per_group = 4, .spines = 3}));
  expect_sound(t);
  EXPECT_EQ(t.hosts, 80u);
  EXPECT_EQ(t.switches, 3u * 8 + 3);
  const Wiring wiring(t);
  // Server 5 is in the second group. Its rail 2 leads to that group's third leaf.
  EXPECT_EQ(wiring.peer(5 * 8 + 2, 0).node, 80u + 8 + 2);
  EXPECT_EQ(t.ports[80], 4u + 3);
  EXPECT_EQ(t.ports[80 + 16], 2u + 3);  // the last group has two servers
  EXPECT_EQ(t.ports[80 + 24], 24u);
}

TEST(Topology, DragonflyLinksEveryPairOfGroups) {
  for (const std::uint32_t groups : {0u, 2u, 3u, 5u, 9u}) {
    const Topology t = built(dragonfly(
        {.groups = groups, .routers_per_group = 4, .hosts_per_router = 2, .global_links = 2}));
    expect_sound(t);
    const std::uint32_t g = groups == 0 ? 9 : groups;
    EXPECT_EQ(t.switches, g * 4);
    EXPECT_EQ(t.hosts, g * 8);
    std::vector<std::uint32_t> between(g * g);
    for (const Link& link : t.links) {
      if (t.is_host(link.a)) continue;
      ++between[(link.a - t.hosts) / 4 * g + (link.b - t.hosts) / 4];
    }
    for (std::uint32_t a = 0; a < g; ++a) {
      EXPECT_EQ(between[a * g + a], 6u);
      for (std::uint32_t b = a + 1; b < g; ++b) {
        EXPECT_EQ(between[a * g + b] + between[b * g + a], 8 / (g - 1)) << g;
      }
    }
    for (std::uint32_t node = t.hosts; node < t.nodes(); ++node)
      EXPECT_LE(t.ports[node], 2u + 3 + 2);
    EXPECT_EQ(t.name(t.hosts + 5), "group 1 router 1");
  }
}

TEST(Topology, TorusInTwoAndThreeDimensions) {
  const Topology flat = built(torus({.size = {4, 3}, .hosts_per_switch = 2}));
  expect_sound(flat);
  EXPECT_EQ(flat.hosts, 24u);
  EXPECT_EQ(flat.links.size(), 24u + 12 * 2);
  EXPECT_EQ(flat.ports[24], 2u + 4);
  EXPECT_EQ(flat.name(24 + 5), "switch (1,1)");

  const Topology cube = built(torus({.size = {4, 3, 2}, .hosts_per_switch = 1}));
  expect_sound(cube);
  EXPECT_EQ(cube.links.size(), 24u + 24 + 24 + 12);  // a dimension of two has one link per pair
  EXPECT_EQ(cube.ports[24], 1u + 4 + 1);
  EXPECT_EQ(cube.name(24 + 23), "switch (3,2,1)");

  // Coordinates are all named, also where the middle one is always 0.
  const Topology thin = built(torus({.size = {3, 1, 2}}));
  EXPECT_EQ(thin.name(thin.hosts + 4), "switch (1,0,1)");

  const Topology ring = built(torus({.size = {5}}));
  expect_sound(ring);
  EXPECT_EQ(ring.links.size(), 10u);
  EXPECT_EQ(ring.name(5 + 4), "switch (4)");
}

TEST(Topology, SizesThatCannotBeAreOneLine) {
  EXPECT_EQ(error_of(fat_tree({.k = 5})), "fat tree: k is even and at least 2, not 5");
  EXPECT_EQ(error_of(fat_tree({.k = 0})), "fat tree: k is even and at least 2, not 0");
  EXPECT_EQ(error_of(leaf_spine({.spines = 0})), "leaf-spine: spines is at least 1, not 0");
  EXPECT_EQ(error_of(single_switch({.hosts = 40'000})),
            "single switch: a switch would have 40000 ports; at most 32767 are possible, take more "
            "switches");
  EXPECT_EQ(error_of(dragonfly({.groups = 10})),
            "dragonfly: groups is from 2 to routers_per_group * global_links + 1 = 9, not 10");
  EXPECT_EQ(error_of(torus({.size = {2, 2, 2, 2}})),
            "torus: 1 to 3 dimensions are possible, not 4");
  EXPECT_EQ(error_of(torus({.size = {4, 0}})), "torus: size[1] is at least 1, not 0");
  EXPECT_EQ(
      error_of(dragonfly(
          {.groups = 2, .routers_per_group = 2, .hosts_per_router = 32'766, .global_links = 1})),
      "dragonfly: a switch would have 32768 ports; at most 32767 are possible, take more "
      "switches");
  // A switch of three dimensions has six ports besides those of its hosts.
  EXPECT_EQ(
      error_of(torus({.size = {2}, .hosts_per_switch = 32'762})),
      "torus: a switch would have 32768 ports; at most 32767 are possible, take more switches");
  EXPECT_EQ(built(torus({.size = {1}, .hosts_per_switch = 32'761})).hosts, 32'761u);
  EXPECT_EQ(error_of(rail_optimised({.rails = 0})), "rail-optimised: rails is at least 1, not 0");
  // The products of these sizes exceed 64 bits.
  constexpr std::uint32_t huge = 0xFFFF'FFFE;
  for (const std::string& error :
       {error_of(fat_tree({.k = huge, .hosts_per_edge = huge})),
        error_of(torus({.size = {huge, huge, huge}, .hosts_per_switch = huge})),
        error_of(
            dragonfly({.routers_per_group = huge, .hosts_per_router = huge, .global_links = huge})),
        error_of(rail_optimised({.servers = huge, .rails = huge})),
        error_of(leaf_spine({.leaves = huge, .spines = huge, .hosts_per_leaf = huge}))}) {
    EXPECT_NE(error.find("at most"), std::string::npos) << error;
  }
}

TEST(TopologyCsv, ReadsWhatAGeneratorWrites) {
  const Topology expected = built(fat_tree({.k = 4}));
  std::string text = "a,b,gbps,delay_ns\r\n";
  for (const Link& link : expected.links) {
    text += std::to_string(link.a) + "," + std::to_string(link.b) + ",400,1000\r\n";
  }
  const Topology t = built(from_csv(text, "topology.csv"));
  expect_sound(t);
  EXPECT_EQ(t.hosts, 16u);
  EXPECT_EQ(t.switches, 20u);
  EXPECT_EQ(t.ports, expected.ports);
  EXPECT_EQ(t.links, expected.links);
  EXPECT_EQ(t.name(20), "switch 20");  // the number in the file
}

TEST(TopologyCsv, SkipsCommentsAndAcceptsFractions) {
  const Topology t = built(
      from_csv("# two hosts\na,b,gbps,delay_ns\n\n 0 , 2 , 12.5 , 0.5\n1,2,100,0\n# end", "t.csv"));
  EXPECT_EQ(t.hosts, 2u);
  EXPECT_EQ(t.links[0].bits_per_second, 12'500'000'000);
  EXPECT_EQ(t.links[0].delay, Time::picoseconds(500));
}

TEST(TopologyCsv, TwoHostsMayBeLinkedToEachOther) {
  const Topology t = built(from_csv("a,b,gbps,delay_ns\n1,0,100,1000\n", "t.csv"));
  EXPECT_EQ(t.hosts, 2u);
  EXPECT_EQ(t.switches, 0u);
}

TEST(TopologyCsv, ALinkThatComesTwiceIsTwoParallelLinks) {
  const Topology t =
      built(from_csv("a,b,gbps,delay_ns\n0,2,1,1\n1,3,1,1\n2,3,1,1\n2,3,1,1\n", "t"));
  expect_sound(t);
  EXPECT_EQ(t.ports[2], 3u);
}

TEST(TopologyCsv, ErrorsNameFileAndLine) {
  const auto error = [](std::string_view rows) {
    return error_of(from_csv("a,b,gbps,delay_ns\n" + std::string(rows), "net.csv"));
  };
  EXPECT_EQ(error_of(from_csv("", "net.csv")),
            "net.csv:1: there are no links; after the header a,b,gbps,delay_ns, write one line a "
            "link");
  EXPECT_EQ(error_of(from_csv("0,1,100,1000\n", "net.csv")),
            "net.csv:1: the first line must be the header a,b,gbps,delay_ns, not \"0,1,100,1000\"");
  EXPECT_EQ(error("0,2,100\n"),
            "net.csv:2: there are 3 columns; write the four of a,b,gbps,delay_ns");
  EXPECT_EQ(error("0,2,100,1\nx,2,100,1\n"),
            "net.csv:3: a node is a number from 0 to 4194303, not \"x\"");
  EXPECT_EQ(error("a\rb,2,100,1\n"),
            "net.csv:2: a node is a number from 0 to 4194303, not \"a?b\"");
  EXPECT_EQ(error("-1,2,100,1\n"), "net.csv:2: a node is a number from 0 to 4194303, not \"-1\"");
  EXPECT_EQ(error("0,4194304,100,1\n"),
            "net.csv:2: a node is a number from 0 to 4194303, not \"4194304\"");
  EXPECT_EQ(error("0,2,100,1\n2,2,100,1\n"),
            "net.csv:3: node 2 is linked to itself; name two different nodes");
  for (const std::string gbps : {"0", "-1", "nan", "inf", "1e99", "", "100G", "1e-12"}) {
    EXPECT_EQ(error("0,2," + gbps + ",1\n"),
              "net.csv:2: gbps is a number above 0, at most 1000000, not \"" + gbps + "\"");
  }
  for (const std::string delay : {"-1", "nan", "", "1us", "1e13"}) {
    EXPECT_EQ(error("0,2,100," + delay + "\n"),
              "net.csv:2: delay_ns is a number from 0 to 1000000000000, not \"" + delay + "\"");
  }
  EXPECT_EQ(error("0,4,1,1\n2,4,1,1\n1,5,1,1\n3,5,1,1\n"),
            "net.csv:4: node 1 cannot be reached from node 0; add a link that joins the two parts");
  EXPECT_EQ(error("0,1,1,1\n1,2,1,1\n0,2,1,1\n"),
            "net.csv:2: node 0 has 2 links, so there is no host; hosts, with one link each, come "
            "first");
  EXPECT_EQ(
      error("0,1,1,1\n1,2,1,1\n"),
      "net.csv:3: node 2 has one link as a host has, but node 1 before it is a switch; number "
      "the hosts first");
  EXPECT_EQ(
      error("0,1,1,1\n2,3,1,1\n2,4,1,1\n3,4,1,1\n"),
      "net.csv:2: node 0 and node 1 are hosts (one link each) and linked to each other, which "
      "only two nodes without a switch may be; link each to a switch");
  EXPECT_EQ(error("0,4,1,1\n1,4,1,1\n2,5,1,1\n3,5,1,1\n"),
            "net.csv:4: node 2 cannot be reached from node 0; add a link that joins the two parts");
  EXPECT_EQ(error("0,2,1,1\n1,2,1,1\n2,9,1,1\n"),
            "net.csv:4: node 9 is named, but node 3 has no link; number the nodes from 0 without "
            "gaps");
}

}  // namespace
}  // namespace tulle::fabric
