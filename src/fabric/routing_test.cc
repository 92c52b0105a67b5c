#include "fabric/routing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "fabric/built_test.h"
#include "fabric/random_topology_test.h"

namespace tulle::fabric {
namespace {

constexpr std::uint32_t far = 0xFFFF'FFFF;

// Computes the distances of all nodes to one host by a plain search that shares no code with the
// code under test.
std::vector<std::uint32_t> distances_to(const Topology& t, std::uint32_t host) {
  std::vector<std::vector<std::uint32_t>> neighbours(t.nodes());
  for (const Link& link : t.links) {
    neighbours[link.a].push_back(link.b);
    neighbours[link.b].push_back(link.a);
  }
  std::vector<std::uint32_t> distance(t.nodes(), far);
  std::vector<std::uint32_t> queue = {host};
  distance[host] = 0;
  for (std::size_t i = 0; i < queue.size(); ++i) {
    for (const std::uint32_t next : neighbours[queue[i]]) {
      if (distance[next] != far) continue;
      distance[next] = distance[queue[i]] + 1;
      queue.push_back(next);
    }
  }
  return distance;
}

// Returns the longest route from any leaf to `host` in links, over all candidates. Fails if a
// packet may return to a switch or finds no route.
std::uint32_t longest_route(const Topology& t, const Wiring& wiring, const Routes& routes,
                            std::uint32_t host) {
  enum : std::uint32_t { unknown = far, on_the_way = far - 1 };
  std::vector<std::uint32_t> longest(t.nodes(), unknown);
  longest[host] = 0;
  const auto follow = [&](auto self, std::uint32_t node) -> std::uint32_t {
    if (longest[node] == on_the_way) {
      ADD_FAILURE() << "a loop through " << t.name(node) << " on the way to host " << host;
      return 0;
    }
    if (longest[node] != unknown) return longest[node];
    longest[node] = on_the_way;
    const auto ports = routes.candidates(node, host);
    EXPECT_FALSE(ports.empty()) << t.name(node) << " to host " << host;
    EXPECT_TRUE(std::is_sorted(ports.begin(), ports.end()));
    std::uint32_t hops = 0;
    for (const std::uint16_t port : ports) {
      hops = std::max(hops, self(self, wiring.peer(node, port).node) + 1);
    }
    EXPECT_NE(std::find(ports.begin(), ports.end(), routes.port(node, host)), ports.end());
    return longest[node] = hops;
  };
  std::uint32_t result = 0;
  for (std::uint32_t leaf = 0; leaf < routes.leaves(); ++leaf) {
    result = std::max(result, follow(follow, routes.leaf_node(leaf)) + 1);
  }
  return result;
}

void expect_all_reached(const Topology& t, RoutingKind kind) {
  const Routes routes = routes_of(t, kind);
  const Wiring wiring(t);
  for (std::uint32_t host = 0; host < t.hosts; ++host) longest_route(t, wiring, routes, host);
}

// Checks that the candidates are exactly the ports that bring a packet one hop nearer.
void expect_shortest(const Topology& t, const Routes& routes) {
  const Wiring wiring(t);
  for (std::uint32_t host = 0; host < t.hosts; ++host) {
    const auto distance = distances_to(t, host);
    for (std::uint32_t node = t.hosts; node < t.nodes(); ++node) {
      std::vector<std::uint16_t> nearer;
      for (std::uint16_t port = 0; port < t.ports[node]; ++port) {
        if (distance[wiring.peer(node, port).node] + 1 == distance[node]) nearer.push_back(port);
      }
      ASSERT_TRUE(std::ranges::equal(routes.candidates(node, host), nearer))
          << t.name(node) << " to host " << host;
    }
  }
}

TEST(Routing, KindsHaveNames) {
  for (const auto kind : {RoutingKind::shortest, RoutingKind::up_down, RoutingKind::fat_tree,
                          RoutingKind::dimension_ordered, RoutingKind::dragonfly_minimal}) {
    EXPECT_EQ(routing_kind(to_string(kind)), kind);
  }
  EXPECT_EQ(routing_kind("best"), std::nullopt);
}

TEST(Routing, ShortestOnEveryShape) {
  for (const Topology& t :
       {built(single_switch({.hosts = 5})),
        built(leaf_spine({.leaves = 3, .spines = 2, .hosts_per_leaf = 3, .links_per_pair = 2})),
        built(fat_tree({.k = 4})), built(fat_tree({.k = 8, .hosts_per_edge = 5})),
        built(rail_optimised({.servers = 6, .rails = 4, .servers_per_group = 2, .spines = 3})),
        built(dragonfly({})), built(torus({.size = {5, 4}})), built(torus({.size = {3, 4, 2}}))}) {
    expect_shortest(t, routes_of(t, RoutingKind::shortest));
  }
}

TEST(Routing, ShortestOnRandomGraphs) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Topology t = random_topology(seed);
    expect_shortest(t, routes_of(t, RoutingKind::shortest));
  }
}

TEST(Routing, ManyPortsASwitch) {
  // The ports need more than one word of bits.
  const Topology t = built(leaf_spine({.leaves = 2, .spines = 130, .hosts_per_leaf = 70}));
  expect_shortest(t, routes_of(t, RoutingKind::shortest));
  EXPECT_EQ(routes_of(t, RoutingKind::shortest).candidates(t.hosts, 139).size(), 130u);
}

TEST(Routing, FatTreeHasAllItsPaths) {
  const Topology t = built(fat_tree({.k = 8}));
  for (const auto kind : {RoutingKind::shortest, RoutingKind::up_down}) {
    const Routes routes = routes_of(t, kind);
    const std::uint32_t edge = t.hosts, aggregation = edge + 32, core = aggregation + 32;
    EXPECT_EQ(routes.candidates(edge, 127).size(), 4u);
    EXPECT_EQ(routes.candidates(edge, 4).size(), 4u);  // same pod
    EXPECT_EQ(routes.candidates(aggregation, 127).size(), 4u);
    EXPECT_EQ(routes.candidates(aggregation, 4).size(), 1u);
    EXPECT_EQ(routes.candidates(core, 127).size(), 1u);
    EXPECT_EQ(routes.candidates(core, 127)[0], 7u);
    EXPECT_EQ(routes.candidates(edge, 2)[0], 2u);
    const Wiring wiring(t);
    EXPECT_EQ(longest_route(t, wiring, routes, 0), 6u);
    expect_shortest(t, routes);
  }
}

TEST(Routing, UpDownReachesAllWithoutLoops) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    expect_all_reached(random_topology(seed), RoutingKind::up_down);
  }
  expect_all_reached(built(dragonfly({})), RoutingKind::up_down);
  expect_all_reached(built(torus({.size = {5, 4}})), RoutingKind::up_down);
  expect_all_reached(built(single_switch({})), RoutingKind::up_down);
}

// Given a root, the test knows the order of switches too: by distance from the root, then by
// number. No route may lead up after it has led down.
TEST(Routing, UpDownNeverLeadsUpAgain) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Topology t = random_topology(seed);
    const std::uint32_t root = t.hosts + static_cast<std::uint32_t>(seed) % t.switches;
    auto result = compute_routes(t, {.kind = RoutingKind::up_down, .roots = {root}});
    ASSERT_TRUE(result) << result.error().message;
    const Routes& routes = *result;
    const Wiring wiring(t);
    const auto rank = distances_to(t, root);
    const auto leads_up = [&](std::uint32_t from, std::uint32_t to) {
      return std::pair(rank[to], to) < std::pair(rank[from], from);
    };
    for (std::uint32_t host = 0; host < t.hosts; ++host) {
      // A switch that is reached by going down must go on down.
      for (std::uint32_t node = t.hosts; node < t.nodes(); ++node) {
        for (const std::uint16_t port : routes.candidates(node, host)) {
          const std::uint32_t next = wiring.peer(node, port).node;
          if (t.is_host(next) || leads_up(node, next)) continue;
          for (const std::uint16_t next_port : routes.candidates(next, host)) {
            const std::uint32_t after = wiring.peer(next, next_port).node;
            EXPECT_TRUE(t.is_host(after) || !leads_up(next, after));
          }
        }
      }
      longest_route(t, wiring, routes, host);
    }
  }
}

// Returns the switch from which the farthest one is nearest; of several, the one with the least sum
// of distances, and of those the first.
std::uint32_t middle_of(const Topology& t) {
  std::uint32_t middle = 0;
  auto best = std::pair(far, far);
  for (std::uint32_t node = t.hosts; node < t.nodes(); ++node) {
    const auto distance = distances_to(t, node);
    const auto first = distance.begin() + t.hosts;
    const auto worth = std::pair(*std::max_element(first, distance.end()),
                                 std::accumulate(first, distance.end(), 0u));
    if (worth < best) std::tie(middle, best) = std::tuple(node, worth);
  }
  return middle;
}

// Where the switches farthest from hosts do not suffice as roots, there is one root: the middle
// switch, from which no switch is far.
TEST(Routing, UpDownWithoutTiersHasItsRootInTheMiddle) {
  int with_middle = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Topology t = random_topology(seed);
    std::vector<std::uint32_t> to_hosts(t.nodes(), far);
    for (std::uint32_t host = 0; host < t.hosts; ++host) {
      const auto distance = distances_to(t, host);
      std::ranges::transform(to_hosts, distance, to_hosts.begin(),
                             [](std::uint32_t a, std::uint32_t b) { return std::min(a, b); });
    }
    const std::uint32_t top = *std::max_element(to_hosts.begin() + t.hosts, to_hosts.end());
    RoutingSettings settings{.kind = RoutingKind::up_down};
    for (std::uint32_t node = t.hosts; node < t.nodes(); ++node) {
      if (to_hosts[node] == top) settings.roots.push_back(node);
    }
    if (compute_routes(t, settings)) continue;
    ++with_middle;
    settings.roots = {middle_of(t)};
    auto expected = compute_routes(t, settings);
    ASSERT_TRUE(expected) << expected.error().message;
    const Routes routes = routes_of(t, RoutingKind::up_down);
    for (std::uint32_t node = t.hosts; node < t.nodes(); ++node) {
      for (std::uint32_t host = 0; host < t.hosts; ++host) {
        ASSERT_TRUE(
            std::ranges::equal(routes.candidates(node, host), expected->candidates(node, host)))
            << t.name(node) << " to host " << host;
      }
    }
  }
  EXPECT_GE(with_middle, 10);
}

TEST(Routing, UpDownRefusesARootThatIsAHost) {
  const Topology t = built(fat_tree({.k = 4}));
  const auto result = compute_routes(t, {.kind = RoutingKind::up_down, .roots = {3}});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message,
            "up_down routing: root 3 is no switch; name nodes from 16 to 35");
}

// Returns how often a shift by n (every host sends to the host n further on) uses a directed link,
// at most.
std::uint32_t shift_contention(const Topology& t, const Routes& routes, std::uint32_t n,
                               std::uint32_t path) {
  const Wiring wiring(t);
  std::vector<std::array<std::uint32_t, 2>> used(t.links.size());
  std::uint32_t most = 0;
  for (std::uint32_t source = 0; source < t.hosts; ++source) {
    const std::uint32_t destination = (source + n) % t.hosts;
    std::uint32_t node = wiring.peer(source, 0).node;
    while (node != destination) {
      const auto& peer = wiring.peer(node, routes.port(node, destination, path));
      most = std::max(most, ++used[peer.link][t.links[peer.link].a == node]);
      node = peer.node;
    }
  }
  return most;
}

TEST(Routing, FatTreeShiftsHaveNoContention) {
  for (const Topology& t :
       {built(fat_tree({.k = 4})), built(fat_tree({.k = 8})),
        built(leaf_spine({.leaves = 4, .spines = 4, .hosts_per_leaf = 8, .links_per_pair = 2}))}) {
    const Routes routes = routes_of(t, RoutingKind::fat_tree);
    for (std::uint32_t n = 1; n < t.hosts; ++n) {
      for (const std::uint32_t path : {0u, 1u, 5u}) {
        EXPECT_EQ(shift_contention(t, routes, n, path), 1u) << n << " path " << path;
      }
    }
    expect_all_reached(t, RoutingKind::fat_tree);
  }
}

TEST(Routing, FatTreeOversubscribedSharesEvenly) {
  const Topology t = built(fat_tree({.k = 4, .hosts_per_edge = 4}));
  const Routes routes = routes_of(t, RoutingKind::fat_tree);
  for (std::uint32_t n = 1; n < t.hosts; ++n) EXPECT_LE(shift_contention(t, routes, n, 0), 2u);
}

TEST(Routing, FatTreeNeedsTiers) {
  const auto result =
      compute_routes(built(torus({.size = {4, 4}})), {.kind = RoutingKind::fat_tree});
  ASSERT_FALSE(result);
  EXPECT_EQ(
      result.error().message,
      "fat_tree routing: switch (0,0) and switch (1,0) are linked but equally far from hosts, "
      "so there are no tiers; take shortest or up_down");
}

// IBTA 7.11.1: a port has 2^LMC local identifiers, each with a separate path.
TEST(Routing, PathsToOneHostTakeDifferentLinks) {
  const Topology t = built(fat_tree({.k = 8}));
  const Wiring wiring(t);
  for (const auto kind : {RoutingKind::fat_tree, RoutingKind::shortest, RoutingKind::up_down}) {
    const Routes routes = routes_of(t, kind);
    std::set<std::uint32_t> cores;
    for (std::uint32_t path = 0; path < 16; ++path) {
      std::uint32_t node = wiring.peer(0, 0).node;
      while (node != 127) {
        if (t.name(node).starts_with("core")) cores.insert(node);
        node = wiring.peer(node, routes.port(node, 127, path)).node;
      }
    }
    EXPECT_EQ(cores.size(), 16u);
  }
  const auto table = routes_of(t, RoutingKind::fat_tree).forwarding_table(t.hosts, 2);
  ASSERT_EQ(table.size(), 128u * 4);
  EXPECT_EQ(table[2], 0u);  // one of the switch's hosts, whichever path
  EXPECT_EQ(std::set<std::uint16_t>(table.begin() + 4 * 127, table.end()),
            (std::set<std::uint16_t>{4, 5, 6, 7}));
}

TEST(Routing, ForwardingTablesShareUplinksEvenly) {
  const Topology t =
      built(rail_optimised({.servers = 16, .rails = 8, .servers_per_group = 8, .spines = 4}));
  const Routes routes = routes_of(t, RoutingKind::shortest);
  std::vector<std::uint32_t> used(t.ports[t.hosts]);
  for (const std::uint16_t port : routes.forwarding_table(t.hosts)) ++used[port];
  for (std::uint32_t port = 0; port < 8; ++port) EXPECT_EQ(used[port], 1u);
  for (std::uint32_t port = 8; port < 12; ++port) EXPECT_EQ(used[port], (128u - 8) / 4);
}

TEST(Routing, DimensionOrderedFinishesADimensionBeforeTheNext) {
  for (const Topology& t : {built(torus({.size = {5, 4}, .hosts_per_switch = 2})),
                            built(torus({.size = {4, 3, 2}})), built(torus({.size = {6}}))}) {
    const Routes routes = routes_of(t, RoutingKind::dimension_ordered);
    const Wiring wiring(t);
    const auto size = std::get<TorusShape>(t.shape).size;
    const auto at = [&](std::uint32_t node) {
      const std::uint32_t i = node - t.hosts;
      return std::array{i % size[0], i / size[0] % size[1], i / size[0] / size[1]};
    };
    for (std::uint32_t host = 0; host < t.hosts; ++host) {
      const auto distance = distances_to(t, host);
      const auto goal = at(wiring.peer(host, 0).node);
      for (std::uint32_t node = t.hosts; node < t.nodes(); ++node) {
        const auto ports = routes.candidates(node, host);
        ASSERT_FALSE(ports.empty());
        for (const std::uint16_t port : ports) {
          const std::uint32_t next = wiring.peer(node, port).node;
          EXPECT_EQ(distance[next] + 1, distance[node]);
          if (t.is_host(next)) continue;
          for (std::size_t dimension = 0; dimension < 3; ++dimension) {
            if (at(node)[dimension] == goal[dimension]) continue;
            EXPECT_NE(at(next)[dimension], at(node)[dimension]);
            break;
          }
        }
      }
    }
  }
  EXPECT_EQ(
      compute_routes(built(fat_tree({})), {.kind = RoutingKind::dimension_ordered}).error().message,
      "dimension_ordered routing: the topology is no torus; take shortest or up_down");
}

TEST(Routing, DimensionOrderedTakesBothWaysWhereTheyAreEqual) {
  const Topology ring = built(torus({.size = {6}}));
  const Routes routes = routes_of(ring, RoutingKind::dimension_ordered);
  EXPECT_EQ(routes.candidates(ring.hosts, 2).size(), 1u);
  EXPECT_EQ(routes.candidates(ring.hosts, 3).size(), 2u);
}

TEST(Routing, DragonflyTakesOneGlobalLink) {
  for (const std::uint32_t groups : {0u, 4u, 2u}) {
    const Topology t = built(dragonfly({.groups = groups}));
    const Routes routes = routes_of(t, RoutingKind::dragonfly_minimal);
    const Wiring wiring(t);
    const auto group = [&](std::uint32_t node) { return (node - t.hosts) / 4; };
    for (std::uint32_t host = 0; host < t.hosts; ++host) {
      EXPECT_LE(longest_route(t, wiring, routes, host), 5u);  // host, local, global, local, host
      const std::uint32_t goal = group(wiring.peer(host, 0).node);
      for (std::uint32_t node = t.hosts; node < t.nodes(); ++node) {
        for (const std::uint16_t port : routes.candidates(node, host)) {
          const std::uint32_t next = wiring.peer(node, port).node;
          if (t.is_host(next)) continue;
          EXPECT_TRUE(group(next) == group(node) || group(next) == goal);
          if (group(node) == goal) {
            EXPECT_EQ(next, wiring.peer(host, 0).node);
          }
        }
      }
    }
  }
  EXPECT_FALSE(compute_routes(built(fat_tree({})), {.kind = RoutingKind::dragonfly_minimal}));
}

TEST(Routing, TwoHostsWithoutASwitchNeedNoRoutes) {
  const Topology t = built(from_csv("a,b,gbps,delay_ns\n0,1,100,1000\n", "t.csv"));
  for (const auto kind : {RoutingKind::shortest, RoutingKind::up_down, RoutingKind::fat_tree}) {
    EXPECT_EQ(routes_of(t, kind).leaves(), 0u);
  }
}

TEST(Routing, FailedLinksAreRoutedAround) {
  Topology t = built(fat_tree({.k = 4}));
  const std::uint32_t edge = t.hosts;
  // The first edge switch loses its uplink to the first aggregation switch, and host 15 loses its
  // only link.
  std::erase_if(t.links, [&](const Link& link) {
    return (link.a == edge && link.a_port == 2) || link.a == 15;
  });
  const auto refused = compute_routes(t, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "shortest routing: host 15 has no link; give it one to a switch");
  for (const auto kind : {RoutingKind::shortest, RoutingKind::up_down, RoutingKind::fat_tree}) {
    auto result = compute_routes(t, {.kind = kind, .partial = true});
    ASSERT_TRUE(result) << result.error().message;
    const Routes& routes = *result;
    const Wiring wiring(t);
    for (std::uint32_t host = 0; host < 15; ++host) longest_route(t, wiring, routes, host);
    EXPECT_EQ(routes.candidates(edge, 14)[0], 3u);
    EXPECT_TRUE(routes.candidates(edge, 15).empty());
    EXPECT_EQ(routes.port(edge, 15), Routes::no_port);
  }
}

TEST(Routing, APartThatIsCutOffIsAnErrorUnlessPartial) {
  Topology t = built(leaf_spine({.leaves = 3, .spines = 1}));
  std::erase_if(t.links, [&](const Link& link) { return link.a == t.hosts + 2; });
  const auto refused = compute_routes(t, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "shortest routing: leaf 2 has no route to leaf 0; add links, or take shortest or "
            "up_down");
  auto result = compute_routes(t, {.kind = RoutingKind::up_down, .partial = true});
  ASSERT_TRUE(result);
  EXPECT_TRUE(result->candidates(t.hosts, 5).empty());
  EXPECT_EQ(result->candidates(t.hosts, 2).size(), 1u);
}

TEST(Routing, LargeFatTreeIsSetUpQuicklyAndSmall) {
  const Topology t = built(fat_tree({.k = 32}));
  EXPECT_EQ(t.hosts, 8192u);
  EXPECT_EQ(t.switches, 1280u);
  EXPECT_EQ(t.links.size(), 24'576u);
  for (const auto kind : {RoutingKind::shortest, RoutingKind::up_down, RoutingKind::fat_tree}) {
    const auto before = std::chrono::steady_clock::now();
    const Routes routes = routes_of(t, kind);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - before;
    RecordProperty(std::string(to_string(kind)) + "_ms", std::to_string(seconds.count() * 1e3));
    EXPECT_LT(routes.bytes(), 5'000'000u);
    EXPECT_LT(seconds.count(), 5.0);  // generous: sanitizers and crowded machines
    EXPECT_EQ(routes.candidates(t.hosts, 8191).size(), kind == RoutingKind::fat_tree ? 1u : 16u);
  }
}

}  // namespace
}  // namespace tulle::fabric
