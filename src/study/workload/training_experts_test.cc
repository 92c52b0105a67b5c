// Expert and sequence parallelism in a training step.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "study/workload/training.h"
#include "study/workload/training_costs.h"

namespace tulle::workload {
namespace {

// Mixtral 8x7B (Jiang et al. 2024, table 1).
TransformerModel mixtral() {
  TransformerModel model{32, 4'096, 14'336, 32, 8, 4'096};
  model.experts = 8;
  model.experts_of_token = 2;
  return model;
}

// Servers of eight GPUs, on which eight replicas share the experts.
TrainingSettings settings_of(std::uint32_t servers, std::uint32_t tensor, std::uint32_t pipeline) {
  TrainingSettings settings;
  settings.model = mixtral();
  settings.gpu = {1e15, 0.5};
  settings.servers.servers = servers;
  settings.servers.gpus = settings.servers.adapters = 8;
  settings.servers.scale_up_bits_per_second = 3'600'000'000'000;
  settings.tensor = tensor;
  settings.pipeline = pipeline;
  settings.expert = 8;
  settings.sequence = tensor > 1;
  settings.micro_batches = 2;
  return settings;
}

TaskGraph make(const TrainingSettings& settings) {
  auto graph = make_training_step(settings);
  EXPECT_TRUE(graph) << graph.error().message;
  EXPECT_TRUE(graph->check()) << graph->check().error().message;
  return std::move(*graph);
}

// Returns the bytes of a phase's messages for which a condition holds.
double bytes_in(const TaskGraph& graph, const std::string& phase,
                const std::function<bool(const Task&)>& counts) {
  double bytes = 0;
  for (TaskGraph::Index i = 0; i < graph.size(); ++i) {
    if (graph.phases()[graph[i].phase] != phase || !counts(graph[i])) continue;
    bytes += static_cast<double>(graph[i].bytes);
  }
  return bytes;
}

double seconds_in(const TaskGraph& graph, const std::string& phase,
                  const std::function<bool(std::uint32_t)>& counts) {
  double seconds = 0;
  for (TaskGraph::Index i = 0; i < graph.size(); ++i) {
    if (graph.phases()[graph[i].phase] == phase && counts(graph[i].rank)) {
      seconds += graph[i].duration.to_seconds();
    }
  }
  return seconds;
}

const auto any_task = [](const Task&) { return true; };
const auto any_rank = [](std::uint32_t) { return true; };

// The report has 46.7 billion weights, of which a token uses 12.9. The embeddings are 2 · 32,000 ·
// 4,096 of them, and not in layers.
TEST(TrainingExperts, MixtralHasItsWeightsAndOperations) {
  const double embeddings = 2.0 * 32'000 * 4'096;
  EXPECT_NEAR(mixtral().layer_weights() * 32 + embeddings, 46.7e9, 0.05e9);
  const double scores = 2.0 * 4'096 * 4'096 * 4'096;
  const double used = (mixtral().layer_operations() - scores) / 2 / 4'096 * 32 + embeddings;
  EXPECT_NEAR(used, 12.9e9, 0.05e9);
}

// Each of the sequence's tokens goes to two experts, of which seven of eight are elsewhere. There
// are four exchanges a layer in a micro-batch: two forward, and two backward.
TEST(TrainingExperts, DispatchAndCombineHaveTheBytesOfTheirTokens) {
  for (const std::uint32_t tensor : {1u, 2u}) {
    const auto settings = settings_of(2 * tensor, tensor, 2);
    const TaskGraph graph = make(settings);
    const double token = 4'096 * 2;
    const double once = 8 * 32 * 4'096 * 2 * token * 7 / 8;  // of eight replicas
    for (const char* phase : {"dispatch", "combine"}) {
      EXPECT_NEAR(bytes_in(graph, phase, any_task) / (once * 2 * 2), 1, 0.002)
          << phase << ", tensor " << tensor;
    }
    EXPECT_EQ(bytes_in(graph, "dispatch", any_task), bytes_in(graph, "combine", any_task));
  }
}

// With as many choices as experts, nothing is left to chance, and each pair has the same bytes.
TEST(TrainingExperts, TokensWithAllExpertsGoToAllReplicas) {
  auto settings = settings_of(1, 1, 1);
  settings.model.experts_of_token = 8;
  const TaskGraph graph = make(settings);
  for (std::uint32_t to = 1; to < 8; ++to) {
    EXPECT_EQ(bytes_in(graph, "dispatch",
                       [&](const Task& task) { return task.rank == 0 && task.peer == to; }),
              32.0 * 2 * 2 * 4'096 * 4'096 * 2);
  }
}

// Replicas that share experts are neighbours, so that they lie on as few servers as they can.
TEST(TrainingExperts, TokensStayInTheirGroup) {
  const TaskGraph graph = make(settings_of(8, 2, 2));  // groups of sixteen GPUs
  for (TaskGraph::Index i = 0; i < graph.size(); ++i) {
    if (graph.phases()[graph[i].phase] != "dispatch" || !graph[i].is_message()) continue;
    EXPECT_EQ(graph[i].rank / 16, graph[i].peer / 16);
    EXPECT_EQ(graph[i].rank % 2, graph[i].peer % 2) << "each place of a tensor group by itself";
  }
}

TEST(TrainingExperts, AllExpertsTogetherComputeForAllCopies) {
  const auto settings = settings_of(2, 1, 2);
  const TaskGraph graph = make(settings);
  const double whole = mixtral().layer_operations() * 32 * 2 * 8;  // of all replicas, forward
  EXPECT_NEAR(seconds_in(graph, "forward", any_rank), whole / 0.5e15, 1e-6);
  EXPECT_NEAR(seconds_in(graph, "backward", any_rank), 2 * whole / 0.5e15, 1e-6);
}

// An all-to-all has as many messages as pairs of its members. Each of them waits for one task, and
// each member waits once for what it sends and receives, so that the graph grows as its messages
// do.
TEST(TrainingExperts, TheGraphGrowsAsItsMessagesDo) {
  for (const std::uint32_t expert : {8u, 64u}) {
    auto settings = settings_of(expert / 8, 1, 1);
    settings.expert = settings.model.experts = expert;
    settings.model.experts_of_token = 8;
    settings.model.layers = 2;
    settings.micro_batches = 1;
    settings.buckets = 1;
    const TaskGraph graph = make(settings);
    std::size_t waits = 0;
    for (TaskGraph::Index i = 0; i < graph.size(); ++i) {
      if (graph.phases()[graph[i].phase] == "gradients") continue;
      waits += graph.waits_for(i).size();
      if (!graph[i].is_message()) continue;
      EXPECT_LE(graph.waits_for(i).size(), 1u) << "task " << i;
    }
    const std::size_t all_to_alls = 2 * 2 * 2;  // of each layer, forward and backward
    const std::size_t messages = std::size_t{expert} * (expert - 1);
    // A message waits for one task, and two members wait for the message.
    EXPECT_LE(waits, all_to_alls * (3 * messages + 4 * expert)) << expert << " replicas";
    EXPECT_GT(waits, all_to_alls * (3 * messages - expert)) << expert << " replicas";
  }
}

// With a skew of 1 the most popular of eight experts has 1 / H(8) = 37 % of first choices.
TEST(TrainingExperts, ASkewLoadsSomeExpertsMore) {
  const auto most = [](double skew) {
    auto settings = settings_of(1, 1, 1);
    settings.model.skew = skew;
    settings.model.layers = 1;
    settings.model.experts_of_token = 1;
    const TaskGraph graph = make(settings);
    double bytes = 0;
    for (std::uint32_t gpu = 0; gpu < 8; ++gpu) {
      bytes = std::max(
          bytes, bytes_in(graph, "dispatch", [&](const Task& task) { return task.peer == gpu; }));
    }
    return bytes / (2 * 2 * 7 * 4'096.0 * 4'096 * 2);
  };
  EXPECT_NEAR(most(0), 0.125, 0.01);
  EXPECT_NEAR(most(1), 1 / 2.7179, 0.01);
}

TEST(TrainingExperts, TheSeedDrawsTheExperts) {
  auto settings = settings_of(1, 1, 1);
  const auto sent = [&] {
    return bytes_in(make(settings), "dispatch",
                    [](const Task& task) { return task.rank == 0 && task.peer == 1; });
  };
  const double first = sent();
  EXPECT_EQ(sent(), first);
  settings.seed = 2;
  EXPECT_NE(sent(), first);
}

// A replica has an eighth of the experts' gradients, and sums them with the only other replica that
// has the same. All sixteen replicas sum the rest.
TEST(TrainingExperts, GradientsOfExpertsAreSummedAmongThoseThatHaveThem) {
  const TaskGraph graph = make(settings_of(2, 1, 1));
  const double experts = mixtral().expert_weights() * 32 * 2;
  const double rest = mixtral().attention_weights() * 32 * 2;
  const auto to = [&](std::uint32_t peer) {
    return bytes_in(graph, "gradients",
                    [&](const Task& task) { return task.rank == 3 && task.peer == peer; });
  };
  EXPECT_NEAR(to(4) / (2.0 * 15 / 16 * rest), 1, 1e-3);
  EXPECT_NEAR(to(11) / (2.0 / 2 * experts), 1, 1e-3);
  EXPECT_EQ(bytes_in(graph, "gradients", [](const Task& task) { return task.rank == 3; }),
            to(4) + to(11));
}

// An all-gather and a reduce-scatter take as long as an all-reduce. What comes besides is one
// all-gather in each block backward, during the product that it is for.
TEST(TrainingExperts, SequenceParallelismWaitsForWhatAProductDoesNotHide) {
  auto settings = settings_of(2, 4, 1);
  settings.model = {80, 8'192, 28'672, 64, 8, 8'192};  // Llama 3 70B
  settings.expert = 1;
  settings.sequence = false;
  const LayerCosts without = costs_of(settings);
  const double bytes = 8'192.0 * 8'192 * 2;
  EXPECT_NEAR(without.exchange_seconds, 2 * 2 * 3.0 / 4 * bytes / 450e9, 1e-9);
  EXPECT_EQ(without.backward_exchange_seconds, without.exchange_seconds);
  settings.sequence = true;
  EXPECT_EQ(costs_of(settings).exchange_seconds, without.exchange_seconds);
  EXPECT_EQ(costs_of(settings).backward_exchange_seconds, without.exchange_seconds) << "hidden";
  // The gather takes 224 us on the fast network, and 100 times as long on a slow one.
  settings.servers.scale_up_bits_per_second /= 100;
  const LayerCosts slow = costs_of(settings);
  const double gather = 3.0 / 4 * bytes / 4.5e9;
  const double rate = 0.5e15 * 4;
  const double attention = 2.0 * 8'192 * 8'192 * 8'192 * 1.25 / rate;
  const double network = 2.0 * 8'192 * 8'192 * 2 * 28'672 / rate;
  EXPECT_NEAR(slow.backward_exchange_seconds - slow.exchange_seconds,
              2 * gather - attention - network, 1e-9);
}

TEST(TrainingExperts, WhatDoesNotFitIsRefusedInOneLine) {
  const auto error = [](const std::function<void(TrainingSettings&)>& change) {
    auto settings = settings_of(4, 2, 2);
    change(settings);
    auto graph = make_training_step(settings);
    return graph ? std::string() : graph.error().message;
  };
  EXPECT_EQ(error([](auto&) {}), "");
  EXPECT_EQ(error([](auto& s) { s.model.experts = 0; }), "experts_of_token goes with experts");
  EXPECT_EQ(error([](auto& s) { s.model.experts = s.model.experts_of_token = 0; }),
            "expert goes with a model that has experts");
  EXPECT_EQ(error([](auto& s) { s.model.experts = 4'097; }), "4097 experts are more than 4096");
  EXPECT_EQ(error([](auto& s) { s.model.experts_of_token = 9; }),
            "experts_of_token must be 1 to 8, and not 9");
  EXPECT_EQ(error([](auto& s) { s.model.experts = 12; }),
            "12 experts cannot be dealt to 8 replicas (expert) evenly");
  EXPECT_EQ(error([](auto& s) { s.pipeline = 4; }),
            "4 replicas cannot be dealt into groups of 8 (expert) evenly");
  EXPECT_EQ(error([](auto& s) { s.sequence = false; }),
            "expert above 1 with tensor above 1 needs sequence = true");
  EXPECT_EQ(error([](auto& s) { s.model.sequence = 10'000'000; }).find("tokens choose "), 0u);
  EXPECT_EQ(error([](auto& s) { s.micro_batches = 1'000'000; }).find("this step has more than"),
            0u);
}

// No number of a stranger's file makes bytes or times overflow.
TEST(TrainingExperts, HugeNumbersAreRefused) {
  const auto error = [](const std::function<void(TrainingSettings&)>& change) {
    auto settings = settings_of(1, 1, 1);
    settings.expert = 1;
    settings.model.experts = settings.model.experts_of_token = 0;
    settings.gpu.operations_per_second = 1e21;
    change(settings);
    auto graph = make_training_step(settings);
    return graph ? std::string() : graph.error().message;
  };
  EXPECT_EQ(error([](auto&) {}), "");
  const auto huge = 10'000'000u;
  EXPECT_EQ(error([](auto& s) { s.model.sequence = s.model.hidden = huge; }).find("the activ"), 0u);
  EXPECT_EQ(error([](auto& s) { s.model.feed_forward = s.model.hidden = huge; }).find("the grad"),
            0u);
  EXPECT_EQ(error([](auto& s) { s.gpu.operations_per_second = 1e-9; }),
            "this step computes for more than 50 days");
}

}  // namespace
}  // namespace tulle::workload
