#include "study/workload/training.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace tulle::workload {
namespace {

// Llama 3 70B: 80 layers, 8 key-value heads of 64 (Grattafiori et al. 2024, table 3).
TransformerModel llama_70b() { return {80, 8'192, 28'672, 64, 8, 8'192}; }

TrainingSettings settings_of(std::uint32_t servers, std::uint32_t tensor, std::uint32_t pipeline,
                             std::uint32_t micro_batches) {
  TrainingSettings settings;
  settings.model = llama_70b();
  settings.gpu = {1e15, 0.5};
  settings.servers.servers = servers;
  settings.servers.gpus = settings.servers.adapters = 8;
  settings.servers.scale_up_bits_per_second = 3'600'000'000'000;
  settings.tensor = tensor;
  settings.pipeline = pipeline;
  settings.micro_batches = micro_batches;
  return settings;
}

TaskGraph make(const TrainingSettings& settings) {
  auto graph = make_training_step(settings);
  EXPECT_TRUE(graph) << graph.error().message;
  EXPECT_TRUE(graph->check());
  return std::move(*graph);
}

double seconds_in(const TaskGraph& graph, std::uint32_t rank, const std::string& phase) {
  double seconds = 0;
  for (TaskGraph::Index i = 0; i < graph.size(); ++i) {
    if (graph[i].rank == rank && graph.phases()[graph[i].phase] == phase) {
      seconds += graph[i].duration.to_seconds();
    }
  }
  return seconds;
}

// The model has 70.6 billion weights, of which the embeddings (twice 1.05) are not in layers.
TEST(Training, AModelHasItsWeightsAndOperations) {
  EXPECT_NEAR(llama_70b().layer_weights() * 80, 68.45e9, 0.01e9);
  const double tokens = 8'192;
  const double attention = 2 * tokens * tokens * 8'192;
  EXPECT_DOUBLE_EQ(llama_70b().layer_operations(),
                   2 * llama_70b().layer_weights() * tokens + attention);
}

TEST(Training, EachRankComputesItsShare) {
  const auto settings = settings_of(8, 8, 4, 16);
  const TaskGraph graph = make(settings);
  const double whole = llama_70b().layer_operations() * 80 * 16;  // forward, of a replica
  for (const std::uint32_t rank : {0u, 9u, 31u, 63u}) {
    EXPECT_NEAR(seconds_in(graph, rank, "forward"), whole / 32 / 0.5e15, 1e-6) << rank;
    EXPECT_NEAR(seconds_in(graph, rank, "backward"), 2 * whole / 32 / 0.5e15, 1e-6) << rank;
  }
}

// One forward, one backward: a pipeline of P stages takes M + P - 1 times as long as one of its M
// micro-batches (Narayanan et al. 2021, section 2.2.1).
TEST(Training, ThePipelinesBubbleIsThatOfThePaper) {
  for (const auto& [pipeline, batches] :
       {std::pair{1u, 4u}, {2u, 1u}, {4u, 16u}, {8u, 8u}, {4u, 2u}}) {
    const auto settings = settings_of(8, 8, pipeline, batches);
    const double pass = llama_70b().layer_operations() * 80 / pipeline / 8 / 0.5e15;
    EXPECT_NEAR(time_without_communication(make(settings)).to_seconds(),
                (batches + pipeline - 1) * 3 * pass, 1e-6)
        << pipeline << " stages, " << batches << " micro-batches";
  }
}

TEST(Training, GradientsAreSummedAmongReplicas) {
  const auto settings = settings_of(8, 8, 2, 2);  // 4 replicas
  const TaskGraph graph = make(settings);
  double bytes = 0;
  for (TaskGraph::Index i = 0; i < graph.size(); ++i) {
    if (graph[i].rank == 5 && graph.phases()[graph[i].phase] == "gradients") {
      bytes += static_cast<double>(graph[i].bytes);
      EXPECT_EQ(settings.servers.gpu_of(graph[i].peer), 5u) << "the ring stays on its rail";
    }
  }
  const double gradients = llama_70b().layer_weights() * 80 / 2 / 8 * 2;
  EXPECT_NEAR(bytes / (2 * 3.0 / 4 * gradients), 1, 1e-3);
}

// Parts of the gradients travel while the rest is computed.
TEST(Training, GradientsLeaveBeforeTheLastPassHasEnded) {
  auto settings = settings_of(2, 8, 1, 1);
  settings.model.layers = 8;  // so that each part is one message
  const TaskGraph graph = make(settings);
  std::size_t early = 0;
  TaskGraph::Index last_pass = 0;
  for (TaskGraph::Index i = 0; i < graph.size(); ++i) {
    if (graph[i].rank == 0 && !graph[i].is_message()) last_pass = i;
  }
  for (TaskGraph::Index i = 0; i < graph.size(); ++i) {
    const auto waits = graph.waits_for(i);
    if (graph[i].rank != 0 || !graph[i].is_message() || waits.empty()) continue;
    early += waits[0] < last_pass && !graph[waits[0]].is_message() ? 1 : 0;
  }
  EXPECT_EQ(early, 3u) << "of four parts, one has to wait for the end";
}

TEST(Training, WhatDoesNotFitIsRefusedInOneLine) {
  const auto error = [](const std::function<void(TrainingSettings&)>& change) {
    auto settings = settings_of(8, 8, 4, 4);
    change(settings);
    auto graph = make_training_step(settings);
    return graph ? std::string() : graph.error().message;
  };
  EXPECT_EQ(error([](auto& s) { s.model.hidden = 0; }), "hidden must be 1 or more");
  EXPECT_EQ(error([](auto& s) { s.pipeline = 3; }),
            "80 layers cannot be dealt to 3 pipeline stages evenly");
  EXPECT_EQ(error([](auto& s) { s.tensor = 16; }),
            "a tensor group of 16 does not fit into servers of 8 GPUs");
  EXPECT_EQ(error([](auto& s) { s.pipeline = 5; }),
            "replicas of 40 GPUs (tensor 8 times pipeline 5) do not fill 64 GPUs");
  EXPECT_EQ(error([](auto& s) { s.model.key_value_heads = 7; }),
            "7 key_value_heads do not divide 64 heads");
  EXPECT_EQ(error([](auto& s) { s.gpu.efficiency = 0; }),
            "a GPU needs its operations a second, and an efficiency above 0 and at most 1");
}

}  // namespace
}  // namespace tulle::workload
