#include "study/workload/rails.h"

#include <gtest/gtest.h>

#include "study/workload/collectives.h"
#include "study/workload/flows.h"
#include "study/workload/task_player.h"

namespace tulle::workload {
namespace {

Servers servers_of(std::uint32_t servers, std::uint32_t gpus, std::uint32_t adapters) {
  Servers all;
  all.servers = servers;
  all.gpus = gpus;
  all.adapters = adapters;
  all.relays = true;
  return all;
}

Task message(std::uint32_t from, std::uint32_t to, std::uint64_t bytes) {
  Task task;
  task.rank = from;
  task.peer = to;
  task.bytes = bytes;
  return task;
}
Task computation(std::uint32_t rank) {
  Task task;
  task.kind = Task::Kind::computation;
  task.rank = rank;
  task.duration = Time::microseconds(1);
  return task;
}

RelayedGraph relayed(const TaskGraph& graph, const Servers& servers) {
  auto result = with_relays(graph, servers);
  EXPECT_TRUE(result) << result.error().message;
  EXPECT_TRUE(result->graph.check()) << result->graph.check().error().message;
  return std::move(*result);
}

// GPU 1 of server 0 sends to GPU 2 of server 1 by way of GPU 2 of server 0. Its own next task waits
// until the message has left it, and the peer's until it has come.
TEST(Rails, AMessageGoesByTheGpuOnItsPeersRail) {
  const Servers servers = servers_of(2, 4, 4);
  TaskGraph graph(8);
  const auto before = graph.add(computation(1));
  const auto sent = graph.add(message(1, 6, 1'000), {before});
  graph.add(computation(1), {sent});
  graph.add(computation(6), {sent});
  const auto [with, place] = relayed(graph, servers);
  ASSERT_EQ(with.size(), 5u);
  EXPECT_EQ(with[1].rank, 1u);
  EXPECT_EQ(with[1].peer, 2u);
  EXPECT_EQ(with[2].rank, 2u);
  EXPECT_EQ(with[2].peer, 6u);
  EXPECT_EQ(with[2].bytes, 1'000u);
  EXPECT_EQ(with.waits_for(1)[0], 0u);
  EXPECT_EQ(with.waits_for(2)[0], 1u);
  EXPECT_EQ(with.waits_for(3)[0], 1u);
  EXPECT_EQ(with.waits_for(4)[0], 2u);
  EXPECT_EQ(place, (std::vector<TaskGraph::Index>{0, 2, 3, 4}));
}

TEST(Rails, LongMessagesGoInPieces) {
  Servers servers = servers_of(2, 2, 2);
  servers.relay_bytes = 1'000;
  TaskGraph graph(4);
  const auto sent = graph.add(message(0, 3, 2'500));
  graph.add(computation(3), {sent});
  graph.add(computation(0), {sent});
  const auto [with, place] = relayed(graph, servers);
  std::uint64_t first = 0, second = 0;
  std::size_t joins = 0;
  for (TaskGraph::Index i = 0; i < with.size(); ++i) {
    if (with[i].is_message()) (with[i].peer == 3 ? second : first) += with[i].bytes;
    joins += !with[i].is_message() && with[i].duration == Time::zero();
  }
  EXPECT_EQ(first, 2'500u);
  EXPECT_EQ(second, 2'500u);
  EXPECT_EQ(joins, 2u) << "one at either end";
  EXPECT_EQ(with.size(), 3u * 2 + 2 + 2);
}

// The range of a step or a checkpoint has the relays of its own messages, and no others.
TEST(Rails, ARangeOfTasksTakesItsRelaysAlong) {
  Servers servers = servers_of(2, 2, 2);
  servers.relay_bytes = 1'000;
  TaskGraph graph(4);
  graph.add(message(0, 3, 2'500));  // three pieces on two ways, and a join at either end
  graph.add(computation(0));
  graph.add(message(0, 3, 500));  // one piece
  graph.add(message(0, 2, 500));  // no relay
  const TaskPlaces places{relayed(graph, servers).place};
  EXPECT_EQ(places.of(TaskRange{0, 1}), (TaskRange{0, 8}));
  EXPECT_EQ(places.of(TaskRange{1, 3}), (TaskRange{8, 11}));
  EXPECT_EQ(places.of(TaskRange{2, 4}), (TaskRange{9, 12}));
  EXPECT_EQ(places.of(TaskRange{4, 4}), (TaskRange{12, 12}));
  EXPECT_EQ(places.of(TaskGraph::Index{2}), 10u);
  EXPECT_EQ(TaskPlaces().of(TaskRange{1, 3}), (TaskRange{1, 3})) << "there are no relays";
}

// Two GPUs share an adapter, and are on one rail.
TEST(Rails, MessagesOnOneRailStayAsTheyAre) {
  const Servers servers = servers_of(2, 4, 2);
  TaskGraph graph(8);
  graph.add(message(0, 5, 1'000));  // by the first adapters of both servers
  graph.add(message(0, 3, 1'000));  // within the server
  EXPECT_EQ(relayed(graph, servers).graph.size(), 2u);
  graph.add(message(0, 6, 1'000));  // from the first adapter to the second one
  const auto [with, place] = relayed(graph, servers);
  ASSERT_EQ(with.size(), 4u);
  EXPECT_EQ(with[2].peer, 2u);
}

TEST(Rails, AnAllToAllCrossesNoRailsAndBringsAllBytes) {
  CollectiveSettings settings;
  settings.collective = Collective::all_to_all;
  settings.algorithm = Algorithm::direct;
  settings.bytes = 16u << 20;
  settings.servers = servers_of(4, 4, 4);
  auto graph = make_collective(settings);
  ASSERT_TRUE(graph);
  const auto [with, place] = relayed(*graph, settings.servers);
  std::uint64_t between_servers = 0, expected = 0;
  for (TaskGraph::Index i = 0; i < with.size(); ++i) {
    EXPECT_FALSE(crosses_rails(with[i], settings.servers));
    const bool is_far =
        with[i].is_message() && !settings.servers.is_scale_up(with[i].rank, with[i].peer);
    if (is_far) between_servers += with[i].bytes;
  }
  for (TaskGraph::Index i = 0; i < graph->size(); ++i) {
    const Task& task = (*graph)[i];
    const bool is_far = task.is_message() && !settings.servers.is_scale_up(task.rank, task.peer);
    if (is_far) expected += task.bytes;
  }
  EXPECT_EQ(between_servers, expected);
  EXPECT_GT(expected, 0u);
}

TEST(Rails, TooManyPiecesAreRefused) {
  Servers servers = servers_of(2, 2, 2);
  servers.relay_bytes = 1;
  TaskGraph graph(4);
  graph.add(message(0, 3, Task::bytes_max));
  auto result = with_relays(graph, servers);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message.find("with relays these are more than"), 0u);
}

TaskGraph two_messages(std::uint64_t bytes) {
  TaskGraph graph(2);
  graph.add(message(0, 1, bytes));
  graph.add(message(0, 1, bytes));
  return graph;
}

// The ports of an adapter are hosts in a row. The parts of a message differ by a byte at most.
TEST(Planes, AMessageIsSprayedOverAllPorts) {
  Servers servers = servers_of(2, 1, 1);
  servers.planes = 4;
  const TaskFlows flows = flows_of(two_messages(1'000'001), servers);
  ASSERT_EQ(flows.flows.size(), 8u);
  for (std::uint32_t i = 0; i < 8; ++i) {
    EXPECT_EQ(flows.task_of[i], i / 4);
    EXPECT_EQ(flows.flows[i].source, i % 4);
    EXPECT_EQ(flows.flows[i].destination, 4 + i % 4);
    EXPECT_EQ(flows.flows[i].bytes, 250'000 + (i % 4 == 0));
    EXPECT_EQ(flows.flows[i].connection, static_cast<std::int32_t>(i % 4));
  }
  EXPECT_EQ(flows_of(two_messages(8'192), servers).flows.size(), 4u) << "a part has a packet";
}

TEST(Planes, ConnectionsTakePlanesInTurn) {
  Servers servers = servers_of(4, 1, 1);
  servers.planes = 2;
  servers.sprays = false;
  TaskGraph graph(4);
  for (const std::uint32_t to : {1u, 2u, 3u, 2u}) graph.add(message(0, to, 1'000'000));
  const TaskFlows flows = flows_of(graph, servers);
  ASSERT_EQ(flows.flows.size(), 4u);
  const std::uint32_t plane[] = {0, 1, 0, 1};
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(flows.flows[i].source, plane[i]);
    EXPECT_EQ(flows.flows[i].destination % 2, plane[i]);
    EXPECT_EQ(flows.flows[i].bytes, 1'000'000u);
  }
  EXPECT_EQ(flows.flows[1].connection, flows.flows[3].connection);
}

TEST(Planes, FlowsThatWaitStayInTheirPlanes) {
  Flows flows = {{0, 1, 10'000}, {1, 2, 100'000}, {0, 2, 10'000}};
  flows[1].after = 0;
  Flows sprayed = flows;
  auto first = deal_over_planes(sprayed, 4, true);
  ASSERT_TRUE(first);
  // 10,000 bytes are three packets, and what waits for them has no more parts.
  EXPECT_EQ(*first, (std::vector<std::uint32_t>{0, 3, 6, 9}));
  for (std::uint32_t i = 3; i < 6; ++i) {
    EXPECT_EQ(sprayed[i].after, static_cast<std::int32_t>(i - 3));
    EXPECT_EQ(sprayed[i].source, sprayed[i - 3].destination);
  }
  Flows in_turn = flows;
  ASSERT_TRUE(deal_over_planes(in_turn, 4, false));
  ASSERT_EQ(in_turn.size(), 3u);
  EXPECT_EQ(in_turn[0].source, 0u);
  EXPECT_EQ(in_turn[1].source, in_turn[0].destination);
  EXPECT_EQ(in_turn[2].source, 1u) << "the second flow of host 0";
  EXPECT_FALSE(deal_over_planes(in_turn, 0, true));
}

}  // namespace
}  // namespace tulle::workload
