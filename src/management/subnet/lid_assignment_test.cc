#include "management/subnet/lid_assignment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>

namespace tulle::management::subnet {
namespace {

constexpr unsigned lmc_max = 7;  // IBTA 14.2.5.6: LMC has three bits

class LidAssignmentTest : public testing::Test {
 protected:
  void add(std::uint8_t type, std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) {
      GraphNode& node = graph.nodes.emplace_back();
      node.info.node_type = type;
      node.info.node_guid = node.info.port_guid = graph.nodes.size();
      node.ports.resize(1);
      node.end_port().is_known = true;
    }
  }
  // Every port has LIDs that are its own.
  void expect_own_lids() {
    std::set<std::uint32_t> taken;
    for (const GraphNode& node : graph.nodes) {
      const std::uint32_t count = 1u << node.lmc;
      ASSERT_NE(node.lid, 0);
      EXPECT_EQ(node.lid % count, 0u);
      EXPECT_LE(node.lid + count - 1, wire::unicast_lid_max);
      for (std::uint32_t i = 0; i < count; ++i) EXPECT_TRUE(taken.insert(node.lid + i).second);
    }
  }
  unsigned lmc_of_adapters() const {
    unsigned least = lmc_max;
    for (const GraphNode& node : graph.nodes) {
      if (!node.is_switch()) least = std::min<unsigned>(least, node.lmc);
    }
    return least;
  }

  Graph graph;
  LidAssignment lids;
};

// Of the 384 blocks of 128 LIDs, the switches have the first, as 0 is no LID, and two stay free.
TEST_F(LidAssignmentTest, AdaptersHaveAllTheirLidsWhileTheseSuffice) {
  add(wire::NodeInfo::switch_node, 127);
  add(wire::NodeInfo::channel_adapter, 381);
  EXPECT_EQ(lids.assign(graph, lmc_max), 0u);
  EXPECT_EQ(lmc_of_adapters(), lmc_max);
  expect_own_lids();
}

TEST_F(LidAssignmentTest, AdaptersHaveFewerLidsInASubnetOfManyPorts) {
  add(wire::NodeInfo::switch_node, 127);
  add(wire::NodeInfo::channel_adapter, 384);
  EXPECT_EQ(lids.assign(graph, lmc_max), 0u);
  EXPECT_EQ(lmc_of_adapters(), lmc_max - 1);
  expect_own_lids();
}

}  // namespace
}  // namespace tulle::management::subnet
