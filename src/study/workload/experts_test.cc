#include "study/workload/experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace tulle::workload {
namespace {

ExpertSettings settings_of(std::uint32_t servers, std::uint32_t gpus) {
  ExpertSettings settings;
  settings.servers.servers = servers;
  settings.servers.gpus = settings.servers.adapters = gpus;
  settings.tokens = 32;
  settings.overhead = Time::zero();
  return settings;
}

TaskGraph graph_of(const ExpertSettings& settings) {
  auto graph = make_experts(settings);
  EXPECT_TRUE(graph) << graph.error().message;
  EXPECT_TRUE(graph->check()) << graph->check().error().message;
  return std::move(*graph);
}

std::uint32_t phase_of(const TaskGraph& graph, std::string_view name) {
  return static_cast<std::uint32_t>(std::ranges::find(graph.phases(), name) -
                                    graph.phases().begin());
}

// Returns the bytes of a phase's messages by sender and receiver.
std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> bytes_of(const TaskGraph& graph,
                                                                          std::string_view name) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> bytes;
  for (TaskGraph::Index i = 0; i < graph.size(); ++i) {
    const Task& task = graph[i];
    if (!task.is_message() || task.phase != phase_of(graph, name)) continue;
    bytes[{task.rank, task.peer}] += task.bytes;
  }
  return bytes;
}

std::string error_of(const ExpertSettings& settings) {
  auto graph = make_experts(settings);
  return graph ? "" : graph.error().message;
}

// Each token has 8 experts among those of 8 GPUs, so that an eighth of its copies stay.
TEST(Experts, EachCopyIsOneMessageUnlessItStays) {
  ExpertSettings settings = settings_of(2, 4);
  settings.operation = ExpertOperation::dispatch;
  const TaskGraph graph = graph_of(settings);
  const double copies = 8 * 32 * 8;
  EXPECT_NEAR(static_cast<double>(graph.size()) / (copies * 7 / 8), 1, 0.05);
  for (TaskGraph::Index i = 0; i < graph.size(); ++i) EXPECT_EQ(graph[i].bytes, 7'408u);
}

TEST(Experts, OutputsGoTheWayBack) {
  for (const ExpertRoute route : {ExpertRoute::direct, ExpertRoute::by_server}) {
    ExpertSettings settings = settings_of(4, 2);
    settings.route = route;
    const TaskGraph graph = graph_of(settings);
    const auto there = bytes_of(graph, "dispatch");
    const auto back = bytes_of(graph, "combine");
    ASSERT_EQ(there.size(), back.size());
    for (const auto& [ends, bytes] : there) {
      const auto found = back.find({ends.second, ends.first});
      ASSERT_NE(found, back.end());
      EXPECT_EQ(found->second * 7'408, bytes * 14'336);
    }
  }
}

// Between servers, GPUs of one number talk alone, and each token crosses at most once to a server.
TEST(Experts, ByServerATokenCrossesOnceToEachServer) {
  ExpertSettings settings = settings_of(4, 4);
  settings.route = ExpertRoute::by_server;
  settings.operation = ExpertOperation::dispatch;
  settings.servers_of_token = 2;
  settings.experts = 64;
  std::uint64_t crossing = 0;
  for (const auto& [ends, bytes] : bytes_of(graph_of(settings), "dispatch")) {
    if (settings.servers.is_scale_up(ends.first, ends.second)) continue;
    EXPECT_EQ(ends.first % 4, ends.second % 4);
    EXPECT_LE(bytes, settings.tokens * settings.dispatch_bytes);
    crossing += bytes;
  }
  // A token has experts on 2 of 4 servers, of which 1.5 are others on average.
  EXPECT_NEAR(static_cast<double>(crossing) /
                  (1.5 * 16 * settings.tokens * static_cast<double>(settings.dispatch_bytes)),
              1, 0.1);
}

TEST(Experts, AGpuComputesForAllTokensThatItGot) {
  ExpertSettings settings = settings_of(2, 2);
  settings.token_time = Time::nanoseconds(10);
  settings.attention_time = Time::microseconds(3);
  const TaskGraph graph = graph_of(settings);
  Time experts, attention;
  for (TaskGraph::Index i = 0; i < graph.size(); ++i) {
    if (graph[i].phase == phase_of(graph, "experts")) experts += graph[i].duration;
    if (graph[i].phase == phase_of(graph, "attention")) attention += graph[i].duration;
  }
  EXPECT_EQ(experts, Time::nanoseconds(10 * 4 * 32 * 8));
  EXPECT_EQ(attention, Time::microseconds(4 * 3));
}

// The time without communication is that of one GPU's computations, layer after layer.
TEST(Experts, LayersFollowEachOtherAndMicroBatchesDoNot) {
  ExpertSettings settings = settings_of(2, 2);
  settings.attention_time = Time::microseconds(3);
  settings.layers = 5;
  EXPECT_EQ(time_without_communication(graph_of(settings)), Time::microseconds(15));
  settings.micro_batches = 2;
  const TaskGraph graph = graph_of(settings);
  EXPECT_EQ(time_without_communication(graph), Time::microseconds(30));
  // The second micro-batch waits for nothing of the first one.
  std::size_t begins = 0;
  for (TaskGraph::Index i = 0; i < graph.size(); ++i) {
    if (graph.waits_for(i).empty()) ++begins;
  }
  EXPECT_EQ(begins, 2u * 4);
}

TEST(Experts, GroupsKeepToThemselves) {
  ExpertSettings settings = settings_of(4, 2);
  settings.group = 4;
  for (const auto& [ends, bytes] : bytes_of(graph_of(settings), "dispatch")) {
    EXPECT_EQ(ends.first / 4, ends.second / 4);
  }
}

// With a skew of 1 and 8 experts, the most popular one has 37 % of the tokens (1 / H(8)).
TEST(Experts, SkewMakesExpertsPopular) {
  ExpertSettings settings = settings_of(8, 1);
  settings.operation = ExpertOperation::dispatch;
  settings.experts = 8;
  settings.experts_of_token = 1;
  settings.tokens = 2'000;
  const auto most = [&](double skew) {
    settings.skew = skew;
    std::vector<double> received(8);
    for (const auto& [ends, bytes] : bytes_of(graph_of(settings), "dispatch")) {
      received[ends.second] +=
          static_cast<double>(bytes) / static_cast<double>(settings.dispatch_bytes);
    }
    return *std::ranges::max_element(received) / (7 * 2'000);
  };
  EXPECT_NEAR(most(0), 0.125, 0.01);
  EXPECT_NEAR(most(1), 1 / 2.7179, 0.02);
}

TEST(Experts, TheSeedDrawsTheExperts) {
  ExpertSettings settings = settings_of(4, 1);
  const auto first = bytes_of(graph_of(settings), "dispatch");
  EXPECT_EQ(bytes_of(graph_of(settings), "dispatch"), first);
  settings.seed = 2;
  EXPECT_NE(bytes_of(graph_of(settings), "dispatch"), first);
}

// A token may take all experts there are, also if some are hardly ever drawn.
TEST(Experts, RareExpertsAreFound) {
  ExpertSettings settings = settings_of(4, 1);
  settings.experts = 8;
  settings.skew = 10;
  settings.tokens = 4;
  settings.operation = ExpertOperation::dispatch;
  EXPECT_EQ(graph_of(settings).size(), 4u * 4 * 6);
}

TEST(Experts, WhatCannotBeIsNamed) {
  ExpertSettings settings = settings_of(2, 4);
  settings.experts = 12;
  EXPECT_NE(error_of(settings).find("12 experts cannot be dealt to the 8 GPUs"), std::string::npos);
  settings = settings_of(2, 4);
  settings.group = 3;
  EXPECT_NE(error_of(settings).find("8 GPUs cannot be dealt into groups of 3"), std::string::npos);
  settings = settings_of(3, 4);
  settings.group = 6;
  EXPECT_NE(error_of(settings).find("whole servers"), std::string::npos);
  settings = settings_of(2, 4);
  settings.experts_of_token = 300;
  EXPECT_NE(error_of(settings).find("1 to 256 experts"), std::string::npos);
  settings.experts_of_token = 8;
  settings.servers_of_token = 1;
  settings.experts = 8;
  EXPECT_NE(error_of(settings).find("1 to 4 experts"), std::string::npos);
  settings = settings_of(1, 1);
  EXPECT_NE(error_of(settings).find("at least 2"), std::string::npos);
  settings = settings_of(2, 4);
  settings.tokens = 10'000'000;
  EXPECT_NE(error_of(settings).find("take fewer tokens"), std::string::npos);
}

}  // namespace
}  // namespace tulle::workload
