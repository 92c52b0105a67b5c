// Collectives on a network without contention take the times of textbooks.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "base/folder_test.h"
#include "study/experiment/outcome_test.h"

namespace tulle::experiment {
namespace {

constexpr double link_rate = 400e9;       // bits a second
constexpr double scale_up_rate = 3.6e12;  // bits a second
// A frame has 4,096 bytes of payload and 82 of headers, gaps and checks.
constexpr double payload_rate = link_rate / 8 * 4096 / 4178;  // bytes a second

// Returns the time of a collective in seconds.
double time_of(const std::string& collective, const std::string& algorithm, std::uint64_t bytes,
               std::uint32_t servers, std::uint32_t gpus) {
  const auto outcome = outcome_of(fmt::format(
      "[topology]\nkind = \"single-switch\"\nhosts = {}\nlink_rate = \"400Gbps\"\n"
      "link_delay = \"100ns\"\n[traffic]\npattern = \"collective\"\ncollective = \"{}\"\n"
      "algorithm = \"{}\"\nbytes = \"{}B\"\nservers = {{ gpus = {}, adapters = {}, "
      "scale_up_rate = \"3600Gbps\", scale_up_latency = \"1us\" }}\n"
      "[fabric]\nkind = \"infiniband\"\n",
      servers * gpus, collective, algorithm, bytes, gpus, gpus));
  return number(outcome, "job_us") * 1e-6;
}

struct Steps {
  double steps = 0;  // one after the other
  double bytes = 0;  // that each adapter sends in all
};
// Returns the steps and bytes of textbooks, for servers of one GPU.
Steps textbook(const std::string& collective, const std::string& algorithm, double bytes,
               double ranks) {
  const double halves = collective == "all-reduce" ? 2 : 1;
  const double share = bytes * (ranks - 1) / ranks;
  if (algorithm == "ring") return {halves * (ranks - 1), halves * share};
  if (algorithm == "halving-doubling") return {halves * std::log2(ranks), halves * share};
  return {halves, halves * share};  // direct
}

struct Case {
  const char* collective;
  const char* algorithm;
};
class Textbook : public testing::TestWithParam<Case> {};

TEST_P(Textbook, TimesAreWithinAPerCent) {
  const std::string collective = GetParam().collective;
  const std::string algorithm = GetParam().algorithm;
  constexpr std::uint32_t ranks = 8;
  constexpr std::uint64_t bytes = 64 << 20;
  const Steps steps = textbook(collective, algorithm, bytes, ranks);
  const double latency = time_of(collective, algorithm, ranks, ranks, 1) / steps.steps;
  const double expected = steps.steps * latency + steps.bytes / payload_rate;
  EXPECT_NEAR(time_of(collective, algorithm, bytes, ranks, 1) / expected, 1, 0.01);
}

INSTANTIATE_TEST_SUITE_P(
    Collectives, Textbook,
    testing::Values(Case{"all-reduce", "ring"}, Case{"reduce-scatter", "ring"},
                    Case{"all-gather", "ring"}, Case{"all-reduce", "halving-doubling"},
                    Case{"reduce-scatter", "halving-doubling"},
                    Case{"all-gather", "halving-doubling"}, Case{"all-to-all", "direct"},
                    Case{"all-reduce", "direct"}),
    [](const auto& info) {
      std::string name = fmt::format("{}_by_{}", info.param.collective, info.param.algorithm);
      std::ranges::replace(name, '-', '_');
      return name;
    });

// The GPUs of a server share by its own network, and each adapter has an eighth of the ring.
TEST(Collectives, AHierarchyTakesTheTimesOfItsTwoNetworks) {
  constexpr std::uint64_t bytes = 256 << 20;
  constexpr double servers = 4, gpus = 8;
  const double latency = time_of("all-reduce", "hierarchical", 8 * 32, 4, 8);
  const double inside = 2 * bytes * (gpus - 1) / gpus / (scale_up_rate / 8);
  const double between = 2 * (bytes / gpus) * (servers - 1) / servers / payload_rate;
  EXPECT_NEAR(time_of("all-reduce", "hierarchical", bytes, 4, 8) / (latency + inside + between), 1,
              0.01);
}

// Returns the time of a ring among four GPUs of one server, in seconds, by a protocol of NCCL.
double ring_by(const std::string& protocol, std::uint64_t bytes, std::uint32_t servers = 1) {
  const std::uint32_t gpus = 4 / servers;
  const report::Outcome outcome = outcome_of(fmt::format(
      "[topology]\nkind = \"single-switch\"\nhosts = 4\nlink_rate = \"400Gbps\"\n"
      "link_delay = \"100ns\"\n[traffic]\npattern = \"collective\"\nalgorithm = \"ring\"\n"
      "channels = 1\nprotocol = \"{}\"\nbytes = \"{}B\"\nservers = {{ gpus = {}, adapters = {}, "
      "scale_up_rate = \"3600Gbps\", scale_up_latency = \"3us\", message_delay = \"10us\", "
      "ll_latency = \"1us\", ll_message_delay = \"2us\", ll128_latency = \"2us\", "
      "ll128_message_delay = \"4us\" }}\n",
      protocol, bytes, gpus, gpus));
  EXPECT_EQ(outcome.method.value().algorithm, "ring");
  if (protocol != "automatic") {
    EXPECT_EQ(outcome.method.value().protocol, protocol);
  }
  return number(outcome, "job_us") * 1e-6;
}

TEST(Collectives, AProtocolHasItsLatencyAndItsBytes) {
  constexpr double steps = 6, share = 1.5;  // of a ring of four
  constexpr std::uint64_t large = 1 << 30, small = 480;
  const double least = large * share / (scale_up_rate / 8);
  EXPECT_NEAR(ring_by("simple", large) / (steps * 3e-6 + least), 1, 0.001);
  EXPECT_NEAR(ring_by("ll", large) / (steps * 1e-6 + 2 * least), 1, 0.001);
  EXPECT_NEAR(ring_by("ll128", large) / (steps * 2e-6 + least * 16 / 15), 1, 0.001);
  EXPECT_NEAR(ring_by("simple", small) - ring_by("ll", small), steps * 2e-6, 1e-8);
  // Between servers of one GPU each step is a message of the network.
  EXPECT_NEAR(ring_by("simple", small, 4) - ring_by("ll", small, 4), steps * 8e-6, 1e-7);
  EXPECT_NEAR(ring_by("simple", small, 4) - ring_by("ll128", small, 4), steps * 6e-6, 1e-7);
}

TEST(Collectives, TheUsualProtocolIsTheFastest) {
  for (const std::uint32_t servers : {1u, 4u}) {
    for (const std::uint64_t bytes : {4'096u, 1u << 20, 4u << 20, 256u << 20}) {
      const double simple = ring_by("simple", bytes, servers);
      const double ll = ring_by("ll", bytes, servers), ll128 = ring_by("ll128", bytes, servers);
      EXPECT_EQ(ring_by("automatic", bytes, servers), std::min({simple, ll, ll128}))
          << servers << " servers, " << bytes << " bytes: " << simple << ' ' << ll << ' ' << ll128;
    }
  }
  EXPECT_LT(ring_by("ll", 4'096), ring_by("ll128", 4'096));
  EXPECT_LT(ring_by("simple", 256u << 20), ring_by("ll128", 256u << 20));
}

// Returns the time of an all-reduce among servers of one GPU, in seconds.
double reduced_in_network(const std::string& topology, std::uint64_t bytes,
                          const std::string& algorithm = "in-network") {
  const auto outcome = outcome_of(
      fmt::format("[topology]\n{}\nlink_rate = \"400Gbps\"\nlink_delay = \"100ns\"\n[traffic]\n"
                  "pattern = \"collective\"\nalgorithm = \"{}\"\nbytes = \"{}B\"\n"
                  "[fabric]\nkind = \"infiniband\"\naggregation = true\n",
                  topology, algorithm, bytes));
  return number(outcome, "job_us") * 1e-6;
}

// Each adapter sends the buffer once while it receives the result: half of what a ring sends. The
// first chunk takes its time once more for each node that it goes through.
TEST(Collectives, SwitchesReduceInTheTimeOfOneBuffer) {
  constexpr std::uint64_t bytes = 64 << 20;
  struct Network {
    const char* topology;
    double stages;  // messages one behind the other
  };
  for (const auto& [topology, stages] :
       {Network{"kind = \"single-switch\"\nhosts = 8", 2},
        Network{"kind = \"leaf-spine\"\nleaves = 4\nspines = 4\nhosts_per_leaf = 4", 4}}) {
    const double latency = reduced_in_network(topology, 64);
    const double expected = latency + (bytes + (stages - 1) * (bytes / 256.0)) / payload_rate;
    EXPECT_NEAR(reduced_in_network(topology, bytes) / expected, 1, 0.01) << topology;
    EXPECT_GT(reduced_in_network(topology, bytes, "ring"), 1.7 * expected) << topology;
  }
}

// A GPU sends an eighth more than its buffer to the switch, and stores wait behind what was asked
// for before (docs/decisions/031).
TEST(Collectives, AServersSwitchReduces) {
  constexpr double bytes = 1 << 30;
  const auto time_by = [](const char* algorithm) {
    const auto outcome = outcome_of(fmt::format(
        "[topology]\nkind = \"single-switch\"\nhosts = 1\nlink_rate = \"400Gbps\"\n[traffic]\n"
        "pattern = \"collective\"\nalgorithm = \"{}\"\nbytes = \"1GiB\"\nservers = {{ gpus = 8, "
        "adapters = 1, scale_up_reduce_rate = \"2448Gbps\", "
        "scale_up_reduce_latency = \"6.25us\" }}\n",
        algorithm));
    return number(outcome, "job_us") * 1e-6;
  };
  const double of_ports = 1.125 * bytes / 306e9;
  EXPECT_GT(time_by("nvls"), of_ports);
  EXPECT_LT(time_by("nvls"), 1.05 * of_ports);
  EXPECT_EQ(time_by("nvls"), time_by("in-network")) << "within one server they are the same";
}

TEST(Collectives, AFabricWithoutSwitchesThatReduceIsRefused) {
  auto scenario = scenario::Scenario::parse(
      "[topology]\nkind = \"single-switch\"\nhosts = 4\n[traffic]\npattern = \"collective\"\n"
      "algorithm = \"in-network\"\n",
      "s.toml", "", {});
  ASSERT_TRUE(scenario);
  auto setup = scenario->build(0);
  ASSERT_FALSE(setup);
  EXPECT_NE(setup.error().message.find("needs switches that reduce"), std::string::npos)
      << setup.error().message;
}

// Returns the time of an all-reduce of 4 GPUs in a server with 80 Gb/s, in seconds.
double time_in_server(const std::string& algorithm, std::uint64_t bytes, const std::string& keys) {
  const auto outcome = outcome_of(
      fmt::format("[topology]\nkind = \"single-switch\"\nhosts = 1\nlink_rate = \"400Gbps\"\n"
                  "[traffic]\npattern = \"collective\"\nalgorithm = \"{}\"\nbytes = \"{}B\"\n"
                  "servers = {{ gpus = 4, adapters = 1, scale_up_rate = \"80Gbps\", "
                  "scale_up_latency = \"1us\"{} }}\n",
                  algorithm, bytes, keys));
  return number(outcome, "job_us") * 1e-6;
}

// A ring sends 6 quarters of the buffer by each rank, and adds 3 of them after they came.
TEST(Collectives, SumsTakeTheirTime) {
  constexpr double quarter = (64 << 20) / 4.0;
  constexpr double sent = 6 * quarter / 10e9;
  EXPECT_NEAR(time_in_server("ring", 64 << 20, "") / sent, 1, 0.01);
  EXPECT_NEAR(
      time_in_server("ring", 64 << 20, ", reduce_rate = \"40Gbps\"") / (sent + 3 * quarter / 5e9),
      1, 0.01);
}

// A ring is as slow as its channel. Two rings have the port's rate between them, and neither waits
// for the other. Each rank sends directly to three others at once: the port limits three channels
// of half its rate, and not three of a quarter of it.
TEST(Collectives, AChannelHasARate) {
  constexpr double sent = 6 * (64 << 20) / 4.0 / 10e9;
  const std::string slow = ", channel_rate = \"40Gbps\"";
  EXPECT_NEAR(time_in_server("ring", 64 << 20, slow) / (2 * sent), 1, 0.01);
  for (const int channels : {2, 4}) {
    const auto keys = fmt::format("{} }}\nchannels = {} #", slow, channels);
    EXPECT_NEAR(time_in_server("ring", 64 << 20, keys) / sent, 1, 0.01) << channels;
  }
  EXPECT_NEAR(time_in_server("ring", 64 << 20, ", channel_rate = \"160Gbps\"") / sent, 1, 0.01);
  const double direct = time_in_server("direct", 64 << 20, "");
  EXPECT_NEAR(time_in_server("direct", 64 << 20, slow) / direct, 1, 0.01);
  const double slower = time_in_server("direct", 64 << 20, ", channel_rate = \"20Gbps\"");
  EXPECT_NEAR(slower / direct, 4.0 / 3, 0.01);
}

// All ranks have work all the time, so that the cores share what the ranks have to do. With as many
// cores as ranks, each has one.
TEST(Collectives, RanksShareTheCoresOfAServer) {
  constexpr double quarter = (64 << 20) / 4.0;
  constexpr double work = 4 * (6 * quarter / 10e9 + 3 * quarter / 5e9);
  for (const int cores : {1, 2, 4}) {
    for (const char* algorithm : {"ring", "direct"}) {
      const auto keys = fmt::format(", reduce_rate = \"40Gbps\", cores = {}", cores);
      EXPECT_NEAR(time_in_server(algorithm, 64 << 20, keys) / (work / cores), 1, 0.02)
          << algorithm << ", " << cores;
    }
  }
}

// A ring of small messages takes six steps, in each of which a core sends two and takes two.
TEST(Collectives, MessagesTakeTimeOfTheCores) {
  const double time = time_in_server("ring", 64, ", cores = 2, message_work = \"10us\"");
  EXPECT_NEAR(time, 6 * 40e-6, 10e-6);
}

// Within one server no adapter is needed. The latency of a step is hidden behind other channels.
TEST(Collectives, AServerAloneUsesItsOwnNetwork) {
  constexpr std::uint64_t bytes = 256 << 20;
  const double time = time_of("all-reduce", "ring", bytes, 1, 8);
  EXPECT_NEAR(time / (2.0 * bytes * 7 / 8 / (scale_up_rate / 8)), 1, 0.01);
}

// A binary tree in chunks moves each byte twice through each adapter that is not a leaf, at once in
// both directions.
TEST(Collectives, TreesNearTheRateOfTheLinks) {
  constexpr std::uint64_t bytes = 64 << 20;
  const double time = time_of("all-reduce", "tree", bytes, 8, 1);
  EXPECT_GT(time, 2.0 * bytes / 2 / payload_rate);
  EXPECT_LT(time, 1.6 * 2 * bytes / payload_rate);
}

// The bandwidths are nccl-tests': bytes over time, and that times 2 (n - 1) / n.
TEST(Collectives, BandwidthsFollowFromTheTime) {
  const auto outcome = outcome_of(
      "[topology]\nkind = \"single-switch\"\nhosts = 4\nlink_rate = \"400Gbps\"\n[traffic]\n"
      "pattern = \"collective\"\nbytes = \"1MB\"\nalgorithm = \"ring\"\n");
  const double seconds = number(outcome, "job_us") * 1e-6;
  EXPECT_NEAR(number(outcome, "algbw_gbytes"), 1e-3 / seconds, 1e-6);
  EXPECT_NEAR(number(outcome, "busbw_gbytes"), 1.5 * 1e-3 / seconds, 1e-6);
  EXPECT_EQ(count(outcome, "tasks"), 24u);
  EXPECT_EQ(find(outcome, "exposed_us"), nullptr) << "nothing is computed";
}

// If there is one micro-batch, only one of two stages computes at a time; messages go between.
TEST(TrainingStep, WhatIsExposedIsTheTimeOfMessages) {
  Folder folder;
  folder.write("step.toml",
               "[model]\nlayers = 2\nhidden = 1024\nfeed_forward = 4096\nheads = 8\n"
               "key_value_heads = 8\nsequence = 1024\n[gpu]\noperations_per_second = 1e15\n"
               "[parallel]\npipeline = 2\n");
  const auto outcome = outcome_of(
      "[topology]\nkind = \"single-switch\"\nhosts = 2\nlink_rate = \"400Gbps\"\n"
      "link_delay = \"100ns\"\n[traffic]\npattern = \"step\"\nstep = \"step.toml\"\n",
      folder.path());
  const double weights = 4.0 * 1024 * 1024 + 3.0 * 1024 * 4096;
  const double layer_us = (2 * weights * 1024 + 2.0 * 1024 * 1024 * 1024) / 1e15 * 1e6;
  const double message_us = 2 * 1024.0 * 1024 / payload_rate * 1e6;  // activations, then gradients
  EXPECT_NEAR(number(outcome, "job_us") - number(outcome, "exposed_us"), 2 * 3 * layer_us, 0.01);
  EXPECT_NEAR(number(outcome, "exposed_us") / (2 * message_us), 1, 0.05);
  EXPECT_NEAR(number(outcome, "exposed_share"),
              number(outcome, "exposed_us") / number(outcome, "job_us"), 1e-6);
}

TEST(TrainingStep, AWrongFileIsNamed) {
  Folder folder;
  folder.write("step.toml", "[model]\nlayers = 2\nwidth = 3\n");
  auto scenario = scenario::Scenario::parse(
      "[topology]\nkind = \"single-switch\"\nhosts = 2\n[traffic]\npattern = \"step\"\n"
      "step = \"step.toml\"\n",
      "s.toml", folder.path(), {});
  ASSERT_TRUE(scenario);
  auto setup = scenario->build(0);
  ASSERT_FALSE(setup);
  EXPECT_NE(setup.error().message.find("step.toml:3: model.width"), std::string::npos)
      << setup.error().message;
}

TEST(Collectives, TheFirstMessageThatFailsIsReported) {
  const auto outcome = outcome_of(
      "stop_at = \"1s\"\n[topology]\nkind = \"single-switch\"\nhosts = 2\nlink_rate = \"400Gbps\"\n"
      "link_delay = \"100ns\"\n[traffic]\npattern = \"collective\"\nbytes = \"1MiB\"\n"
      "[host]\ntimeout = 1\nretry_count = 1\n[[fault]]\nkind = \"link-down\"\nlink = [\"host 0\", "
      "\"switch 0\"]\nat = \"1us\"\n");
  EXPECT_NE(report::unfinished(outcome), "");
  EXPECT_EQ(find(outcome, "job_us"), nullptr);
}

}  // namespace
}  // namespace tulle::experiment
