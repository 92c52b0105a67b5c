#include "management/subnet/polled_manager.h"

#include <gtest/gtest.h>

#include <cstring>

namespace tulle::management::subnet {
namespace {

using State = wire::ManagerState;

// The manager's node, and another one's at the end of a link from port 3.
Graph two_nodes() {
  Graph graph;
  graph.nodes.resize(2);
  graph.nodes[0].info.node_type = wire::NodeInfo::switch_node;
  graph.nodes[0].ports.resize(4);
  graph.nodes[0].ports[3].peer = 1;
  graph.nodes[1].ports.resize(1);
  graph.nodes[1].ports[0].info.lid = 17;
  graph.nodes[1].route = Route{}.by(3);
  return graph;
}

wire::SmInfo info_of(std::uint64_t guid, State state) {
  wire::SmInfo info;
  info.guid = guid;
  info.priority_and_state = wire::halves(0, static_cast<unsigned>(state));
  return info;
}

Reply reply_of(const wire::SmInfo& info) {
  Reply reply;
  reply.has_come = true;
  std::memcpy(reply.data.data(), &info, sizeof info);
  return reply;
}

class PolledManagerTest : public testing::Test {
 protected:
  PolledManagerTest() { polled.choose(graph, {1, info_of(5, State::master)}, true); }
  bool receive(const Reply& reply, bool has_precedence = true) {
    return polled.receive(reply, [&](const OtherManager&) { return has_precedence; });
  }

  Graph graph = two_nodes();
  PolledManager polled;
};

TEST_F(PolledManagerTest, IsAskedByItsRoute) {
  EXPECT_EQ(polled.poll().attribute, wire::attribute_sm_info);
  EXPECT_EQ(polled.poll().route.hops, 1);
  EXPECT_EQ(polled.route().ports[1], 3);
}

TEST_F(PolledManagerTest, AMasterIsWaitedFor) {
  for (int i = 0; i < 3 * PolledManager::polls_max; ++i) {
    EXPECT_TRUE(receive(reply_of(info_of(5, State::master)), false));
  }
  EXPECT_FALSE(receive(reply_of(info_of(6, State::master)))) << "another one has its place";
  EXPECT_FALSE(receive(Reply{}));
  EXPECT_FALSE(receive(reply_of(info_of(5, State::not_active))));
  EXPECT_FALSE(polled.is_passed_over(5));
}

TEST_F(PolledManagerTest, OneThatNeverBecomesMasterIsPassedOver) {
  const Reply standby = reply_of(info_of(5, State::standby));
  EXPECT_FALSE(receive(standby, false)) << "without precedence, it need not be waited for";
  EXPECT_FALSE(polled.is_passed_over(5));
  for (int i = 0; i + 1 < PolledManager::polls_max; ++i) EXPECT_TRUE(receive(standby));
  EXPECT_FALSE(receive(standby));
  EXPECT_TRUE(polled.is_passed_over(5));
  EXPECT_TRUE(receive(reply_of(info_of(5, State::master))));
  EXPECT_FALSE(polled.is_passed_over(5)) << "it has become master after all";
}

TEST_F(PolledManagerTest, OnlyTheMasterHasSentItsDatagrams) {
  Packet packet{};
  packet.source = Lid(17);
  EXPECT_TRUE(polled.has_sent(graph, packet));
  packet.source = Lid(18);
  EXPECT_FALSE(polled.has_sent(graph, packet));
  EXPECT_FALSE(polled.has_sent(Graph{}, packet)) << "the graph has no such node any more";
  packet.source = Lid(17);
  receive(reply_of(info_of(5, State::standby)));
  EXPECT_FALSE(polled.has_sent(graph, packet)) << "it is no master";
}

}  // namespace
}  // namespace tulle::management::subnet
