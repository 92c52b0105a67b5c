#include "fabric/non_minimal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <variant>

#include "fabric/built_test.h"
#include "fabric/switch.h"

namespace tulle::fabric {
namespace {

using Choice = NonMinimalSettings::Choice;

TEST(GroupRoutes, LeadIntoTheGroupAfterOneLinkOrTwo) {
  for (const DragonflySettings& of : {DragonflySettings{}, DragonflySettings{.groups = 4},
                                      DragonflySettings{.routers_per_group = 3}}) {
    const Topology t = built(dragonfly(of));
    const Routes routes = routes_of(t, RoutingKind::dragonfly_minimal);
    const GroupRoutes groups(t, routes);
    const Wiring wiring(t);
    EXPECT_EQ(groups.groups(), std::get<DragonflyShape>(t.shape).groups);
    for (std::uint32_t node = t.hosts; node < t.nodes(); ++node) {
      for (std::uint32_t group = 0; group < groups.groups(); ++group) {
        const auto ports = groups.towards(node, group);
        EXPECT_EQ(ports.empty(), group == groups.group_of(node));
        for (const std::uint16_t port : ports) {
          const std::uint32_t next = wiring.peer(node, port).node;
          if (groups.group_of(next) == group) continue;
          EXPECT_EQ(groups.group_of(next), groups.group_of(node));
          for (const std::uint16_t onward : groups.towards(next, group)) {
            EXPECT_EQ(groups.group_of(wiring.peer(next, onward).node), group) << t.name(node);
          }
        }
      }
    }
  }
}

// Compares the hops with a walk along the ports.
TEST(GroupRoutes, CountHops) {
  const Topology t = built(dragonfly({}));
  const Routes routes = routes_of(t, RoutingKind::dragonfly_minimal);
  const GroupRoutes groups(t, routes);
  const Wiring wiring(t);
  std::set<std::uint32_t> seen;
  for (std::uint32_t node = t.hosts; node < t.nodes(); ++node) {
    for (const std::uint32_t host : {0u, 17u, t.hosts - 1}) {
      for (std::uint32_t via = 0; via < groups.groups(); ++via) {
        if (via == groups.group_of(node)) continue;
        std::uint32_t at = wiring.peer(node, groups.towards(node, via)[0]).node;
        std::uint32_t hops = 1;
        for (; groups.group_of(at) != via; ++hops) {
          at = wiring.peer(at, groups.towards(at, via)[0]).node;
        }
        for (; at != routes.leaf_node(routes.leaf_of(host)); ++hops) {
          at = wiring.peer(at, routes.candidates(at, host)[0]).node;
        }
        EXPECT_EQ(groups.hops(node, via, 0, host), hops);
        seen.insert(hops);
      }
    }
  }
  EXPECT_EQ(*seen.rbegin(), 5u) << "local, global, local, global, local";
}

// While links are down, routes may leave switches out. No packet passes these.
TEST(GroupRoutes, ASwitchWithoutRoutesHasNoHops) {
  Topology t = built(dragonfly({}));
  const std::uint32_t alone = t.hosts + 1;
  std::erase_if(t.links, [&](const Link& link) {
    return !t.is_host(link.a) && !t.is_host(link.b) && (link.a == alone || link.b == alone);
  });
  auto routes = compute_routes(t, {.kind = RoutingKind::dragonfly_minimal, .partial = true});
  ASSERT_TRUE(routes) << routes.error().message;
  const GroupRoutes groups(t, *routes);
  for (std::uint32_t host = 0; host < t.hosts; ++host) {
    EXPECT_EQ(groups.hops(alone, host), 0u);
    const std::uint32_t leaf = routes->leaf_node(routes->leaf_of(host));
    for (std::uint32_t node = t.hosts; node < t.nodes(); ++node) {
      const bool is_reached = leaf != alone && node != alone && node != leaf;
      EXPECT_EQ(groups.hops(node, host) > 0,
                is_reached && !routes->towards(node, routes->leaf_of(host)).empty());
    }
  }
}

// The first switch of group 0 in a dragonfly, with hosts 0 and 1. The test is its driver.
class Source {
 public:
  explicit Source(const NonMinimalSettings& settings, const DragonflySettings& of = {})
      : topology(built(dragonfly(of))),
        routes(routes_of(topology, RoutingKind::dragonfly_minimal)),
        routing(topology, routes, settings),
        node(topology.hosts),
        at(settings_, node, static_cast<std::uint16_t>(topology.ports[node]), 7, frames) {}

  port::Frame& frame_to(std::uint32_t host) {
    port::Frame& frame = frames[frames.take()];
    frame.destination = host & 0xFF'FFFF;
    frame.via = 0;
    return frame;
  }
  std::uint16_t way(port::Frame& frame, bool from_host = true) {
    std::uint16_t chosen = 0;
    const auto ways = routing.ways(at, node, from_host, frame, chosen);
    EXPECT_FALSE(ways.empty());
    return ways[0];
  }
  void load(std::uint16_t port, std::uint16_t bytes) {
    const port::FrameRef ref = frames.take();
    frames[ref].buffer_bytes = bytes;
    ASSERT_EQ(at.receive(Time::zero(), 0, ref, port), port);
  }

 private:
  SwitchSettings settings_;

 public:
  port::FramePool frames;
  Topology topology;
  Routes routes;
  NonMinimalRouting routing;
  std::uint32_t node;
  Switch at;
};

TEST(NonMinimal, AnEmptyNetworkIsCrossedByMinimalPaths) {
  Source source({.choice = Choice::ugal, .candidates = 4});
  for (std::uint32_t host = 2; host < source.topology.hosts; ++host) {
    port::Frame& frame = source.frame_to(host);
    EXPECT_EQ(source.way(frame), source.routes.candidates(source.node, host)[0]);
    EXPECT_EQ(frame.via, 0u);
  }
}

// Compares a minimal path of three hops with detours of four and five, whose queues are empty.
TEST(NonMinimal, ABiasHasToStandInTheQueueBeforeADetour) {
  const std::uint32_t host = 71;  // in the last group
  for (const std::uint16_t bytes : {std::uint16_t{1'001}, std::uint16_t{1'002}}) {
    Source source({.choice = Choice::ugal, .candidates = 4, .bias_bytes = 3'003});
    const std::uint16_t minimal = source.routes.candidates(source.node, host)[0];
    const std::uint32_t hops = source.routing.groups().hops(source.node, host);
    ASSERT_EQ(hops, 3u);
    source.load(minimal, bytes);
    port::Frame& frame = source.frame_to(host);
    const bool makes_detour = std::uint32_t{bytes} * hops > 3'003;
    EXPECT_EQ(source.way(frame) != minimal, makes_detour);
    EXPECT_EQ(frame.via != 0, makes_detour);
  }
}

TEST(NonMinimal, QueuesCountByTheHopsBehindThem) {
  Source source({.choice = Choice::ugal, .candidates = 8});
  const std::uint32_t host = 71;
  const std::uint16_t minimal = source.routes.candidates(source.node, host)[0];
  // All other ports except one to a host are equally full. A detour is longer, and so worse.
  for (std::uint16_t port = 2; port < source.at.ports(); ++port) source.load(port, 4'000);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(source.way(source.frame_to(host)), minimal);
  // At three times the length, the minimal path's queue is worse than any detour.
  source.load(minimal, 8'000);
  for (int i = 0; i < 20; ++i) EXPECT_NE(source.way(source.frame_to(host)), minimal);
}

TEST(NonMinimal, ValiantGoesByWayOfEveryThirdGroup) {
  Source source({.choice = Choice::valiant});
  std::map<std::uint32_t, int> seen;
  for (int i = 0; i < 700; ++i) {
    port::Frame& frame = source.frame_to(40);  // in group 5
    const std::uint16_t port = source.way(frame);
    ++seen[frame.via];
    ASSERT_NE(frame.via, 0u);
    const auto ports = source.routing.groups().towards(source.node, frame.via - 1);
    EXPECT_EQ(std::ranges::count(ports, port), 1);
  }
  EXPECT_EQ(seen.size(), 7u);
  EXPECT_FALSE(seen.contains(1) || seen.contains(6)) << "its own and the destination's";
  for (const auto& [via, count] : seen) EXPECT_NEAR(count, 100, 40);
}

TEST(NonMinimal, WithinAGroupAndBetweenTwoThereIsNoThird) {
  Source source({.choice = Choice::valiant});
  port::Frame& near = source.frame_to(7);
  EXPECT_EQ(source.way(near), source.routes.candidates(source.node, 7)[0]);
  EXPECT_EQ(near.via, 0u);
  Source pair({.choice = Choice::valiant}, {.groups = 2});
  port::Frame& far = pair.frame_to(15);
  EXPECT_EQ(std::ranges::count(pair.routes.candidates(pair.node, 15), pair.way(far)), 1);
  EXPECT_EQ(far.via, 0u);
}

TEST(NonMinimal, AFrameGoesOnToItsGroupAndFromThereToItsHost) {
  Source source({.choice = Choice::ugal});
  const std::uint32_t host = 71;
  port::Frame& passing = source.frame_to(host);
  passing.via = 4;
  EXPECT_EQ(source.way(passing, false), source.routing.groups().towards(source.node, 3)[0]);
  EXPECT_EQ(passing.via, 4u);
  port::Frame& there = source.frame_to(host);
  there.via = 1;
  EXPECT_EQ(source.way(there, false), source.routes.candidates(source.node, host)[0]);
  EXPECT_EQ(there.via, 0u);
}

}  // namespace
}  // namespace tulle::fabric
