#include "fabric/path_lanes.h"

#include <gtest/gtest.h>

#include <utility>

#include "fabric/built_test.h"

namespace tulle::fabric {
namespace {

// Returns the port by which a switch is linked to another.
std::uint16_t port_to(const Topology& t, std::uint32_t from, std::uint32_t to) {
  for (const Link& link : t.links) {
    if (link.a == from && link.b == to) return link.a_port;
    if (link.b == from && link.a == to) return link.b_port;
  }
  ADD_FAILURE() << "no link from " << from << " to " << to;
  return 0;
}

// A ring of 6 switches with one host each. Switch i is node 6 + i.
TEST(PathLanes, ATorusServiceLevelSaysWhetherAPathCrossesTheWrapAroundLink) {
  const Topology t = built(torus({.size = {6}}));
  const Routes routes = routes_of(t, RoutingKind::dimension_ordered);
  const PathLanes lanes = PathLanes::torus(t);
  const auto level = [&](std::uint32_t from, std::uint32_t to, std::uint8_t qos_level = 0) {
    return lanes.service_level(routes, 6 + from, to, qos_level);
  };
  EXPECT_EQ(level(0, 2), 0);
  EXPECT_EQ(level(2, 0), 0);
  EXPECT_EQ(level(4, 0), 1);
  EXPECT_EQ(level(0, 4), 1);
  EXPECT_EQ(level(5, 0), 1);
  EXPECT_EQ(level(5, 0, 3), 7);
  EXPECT_EQ(level(1, 1), 0) << "the same switch";
  const port::SlToVl& at_5 = lanes.plan().switches[5];
  const std::uint16_t from_4 = port_to(t, 11, 10), to_0 = port_to(t, 11, 6), host = 0;
  EXPECT_EQ(at_5.lane(from_4, to_0, 1), 1);
  EXPECT_EQ(at_5.lane(host, to_0, 1), 1);
  EXPECT_EQ(at_5.lane(host, from_4, 0), 0);
  EXPECT_EQ(at_5.lane(from_4, to_0, 7), 7) << "QoS level 3 has lanes 6 and 7";
  EXPECT_EQ(at_5.lane(to_0, host, 1), 0) << "to hosts the first lane will do";
  EXPECT_EQ(at_5.lane(from_4, to_0, 8), port::vl15) << "QoS level 4 has none";
  EXPECT_EQ(lanes.plan().hosts[1], 0);
  EXPECT_EQ(lanes.plan().hosts[6], 6);
}

// There are two ways to the other side of the ring, and a host's paths take one each.
TEST(PathLanes, APathOfSeveralHasALevelOfItsOwn) {
  const Topology t = built(torus({.size = {4}}));
  const Routes routes = routes_of(t, RoutingKind::dimension_ordered);
  const PathLanes lanes = PathLanes::torus(t);
  EXPECT_EQ(lanes.service_level(routes, 4, 2, 0, 0) + lanes.service_level(routes, 4, 2, 0, 1), 1);
}

TEST(PathLanes, EachDimensionHasABitOfItsOwn) {
  const Topology t = built(torus({.size = {4, 3, 5}}));
  const Routes routes = routes_of(t, RoutingKind::dimension_ordered);
  const PathLanes lanes = PathLanes::torus(t);
  const auto number = [](std::uint32_t x, std::uint32_t y, std::uint32_t z) {
    return x + 4 * (y + 3 * z);
  };
  const auto level = [&](std::uint32_t from, std::uint32_t to) {
    return lanes.service_level(routes, 60 + from, to, 0);
  };
  EXPECT_EQ(level(number(3, 0, 0), number(0, 0, 0)), 1) << "x";
  EXPECT_EQ(level(number(0, 2, 0), number(0, 0, 0)), 0) << "three around need no second lane";
  EXPECT_EQ(level(number(0, 0, 4), number(0, 0, 1)), 2) << "z";
  EXPECT_EQ(level(number(3, 2, 4), number(0, 0, 0)), 3) << "both";
}

// There are 16 service levels and 8 lanes.
TEST(PathLanes, QosLevelsShareWhatThereIs) {
  EXPECT_EQ(PathLanes::torus(built(torus({.size = {8}}))).qos_levels_max(), 4u);
  EXPECT_EQ(PathLanes::torus(built(torus({.size = {4, 4}}))).qos_levels_max(), 4u);
  EXPECT_EQ(PathLanes::torus(built(torus({.size = {4, 4, 4}}))).qos_levels_max(), 2u);
  EXPECT_EQ(PathLanes::torus(built(torus({.size = {4, 4}}))).service_level_max(2), 7u);
  EXPECT_EQ(PathLanes::dragonfly(built(dragonfly({}))).qos_levels_max(), 4u);
  EXPECT_EQ(PathLanes::dragonfly(built(dragonfly({}))).service_level_max(4), 3u);
}

TEST(PathLanes, ADragonflysSecondLaneBeginsAfterTheGlobalLink) {
  const Topology t = built(dragonfly({}));
  const PathLanes lanes = PathLanes::dragonfly(t);
  const Routes routes = routes_of(t, RoutingKind::dragonfly_minimal);
  // Group 0 has routers 0 to 3, with two hosts each on ports 0 and 1.
  const std::uint32_t first = t.hosts;
  std::uint16_t global = 0;  // first global port of router 0
  for (const Link& link : t.links) {
    if (link.a == first && link.b >= first + 4) global = link.a_port;
  }
  ASSERT_NE(global, 0);
  const port::SlToVl& table = lanes.plan().switches[0];
  const std::uint16_t local = port_to(t, first, first + 1);
  EXPECT_EQ(table.lane(0, local, 0), 0);
  EXPECT_EQ(table.lane(0, global, 0), 0);
  EXPECT_EQ(table.lane(local, global, 0), 0);
  EXPECT_EQ(table.lane(global, local, 0), 1);
  EXPECT_EQ(table.lane(global, local, 2), 5);
  EXPECT_EQ(lanes.service_level(routes, first, t.hosts - 1, 2), 2) << "it says nothing of the path";
}

TEST(PathLanes, EachGlobalLinkLeadsToTheNextLane) {
  const Topology t = built(dragonfly({}));
  const PathLanes lanes = PathLanes::dragonfly_non_minimal(t);
  EXPECT_EQ(lanes.qos_levels_max(), 2u);
  EXPECT_EQ(lanes.plan().hosts[0], 0);
  EXPECT_EQ(lanes.plan().hosts[1], 3);
  EXPECT_EQ(lanes.plan().hosts[3], port::vl15);
  const std::uint32_t first = t.hosts;
  std::uint16_t global = 0;
  for (const Link& link : t.links) {
    if (link.a == first && link.b >= first + 4) global = link.a_port;
  }
  ASSERT_NE(global, 0);
  const port::SlToVl& table = lanes.plan().switches[0];
  const std::uint16_t local = port_to(t, first, first + 1);
  for (const std::uint8_t level : {std::uint8_t{0}, std::uint8_t{1}}) {
    const auto base = static_cast<std::uint8_t>(level * 3);
    const auto lane = [&](std::uint16_t in, std::uint16_t out, int in_lane) {
      return table.lane(in, out, level, static_cast<std::uint8_t>(base + in_lane)) - base;
    };
    EXPECT_EQ(lane(0, local, 0), 0);
    EXPECT_EQ(lane(local, global, 0), 0);
    EXPECT_EQ(lane(global, local, 0), 1);
    EXPECT_EQ(lane(local, global, 1), 1);
    EXPECT_EQ(lane(global, global, 0), 1);
    EXPECT_EQ(lane(global, local, 1), 2);
    EXPECT_EQ(lane(local, 0, 2), 2);
    EXPECT_EQ(table.lane(global, local, level, static_cast<std::uint8_t>(base + 2)), port::vl15)
        << "no path has a third";
  }
}

}  // namespace
}  // namespace tulle::fabric
