#include "study/workload/serving.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>

namespace tulle::workload {
namespace {

// Llama 3 70B on servers of eight, one of which prefills.
ServingSettings settings_of(std::uint32_t servers) {
  ServingSettings settings;
  settings.model = {80, 8'192, 28'672, 64, 8};
  settings.gpu = {1e15, 0.5, 3e12};
  settings.servers.servers = servers;
  settings.servers.gpus = settings.servers.adapters = 8;
  settings.servers.scale_up_bits_per_second = 3'600'000'000'000;
  settings.requests = 12;
  settings.rate = 10;
  settings.prompt = 2'048;
  settings.output = 32;
  return settings;
}

Serving make(const ServingSettings& settings) {
  auto serving = make_serving(settings);
  EXPECT_TRUE(serving) << serving.error().message;
  EXPECT_TRUE(serving->graph.check()) << serving->graph.check().error().message;
  return std::move(*serving);
}

// 80 layers have 8 keys and 8 values of 128 numbers of 2 bytes: 320 KiB for a token.
TEST(Serving, ACacheHasTheBytesOfItsKeysAndValues) {
  const ServingSettings settings = settings_of(2);
  EXPECT_EQ(settings.cache_bytes_of_token(), 320u << 10);
  const Serving serving = make(settings);
  std::uint64_t bytes = 0, between = 0;
  for (TaskGraph::Index i = 0; i < serving.graph.size(); ++i) {
    const Task& task = serving.graph[i];
    if (!task.is_message() || settings.servers.is_scale_up(task.rank, task.peer)) continue;
    bytes += task.bytes;
    ++between;
    EXPECT_EQ(task.rank + 8, task.peer) << "GPUs of the same number";
  }
  EXPECT_EQ(between, 12u * 8);
  EXPECT_EQ(bytes, 12ull * 2'048 * (320u << 10));
}

// 2 operations for each weight and token, and the scores.
TEST(Serving, PrefillComputesThePrompt) {
  ServingSettings settings = settings_of(2);
  settings.servers.scale_up_latency = Time::microseconds(2);
  const Serving serving = make(settings);
  const double weights = settings.model.layer_weights();
  const double operations = 80 * (2 * weights * 2'048 + 2.0 * 2'048 * 2'048 * 8'192);
  const double summed = 80 * 2 * (2.0 * 7 / 8 * 2'048 * 8'192 * 2 / 450e9 + 14 * 2e-6);
  EXPECT_NEAR(serving.graph[serving.requests[3].prefill].duration.to_seconds(),
              operations / 8 / 0.5e15 + summed, 1e-9);
}

// A round reads all weights once, and the keys and values of each request.
TEST(Serving, DecodeReadsItsMemory) {
  ServingSettings settings = settings_of(2);
  settings.servers.scale_up_latency = Time::microseconds(2);
  const Serving serving = make(settings);
  const double rate = 8 * 3e12;
  EXPECT_NEAR(serving.batches.round.to_seconds(),
              settings.model.layer_weights() * 80 * 2 / rate + 80 * 2 * 2 * 2e-6, 1e-9);
  const Task& decode = serving.graph[serving.requests[0].decode];
  EXPECT_EQ(decode.rounds, 32u);
  const double summed = 80 * 2 * 2.0 * 7 / 8 * 8'192 * 2 / 450e9;
  EXPECT_NEAR(decode.duration.to_seconds(), (2'048 + 15.5) * (320 << 10) / rate + summed, 1e-9);
}

TEST(Serving, RequestsArriveAtTheirRate) {
  ServingSettings settings = settings_of(2);
  settings.is_poisson = false;
  const Serving even = make(settings);
  for (unsigned i = 0; i < 12; ++i) {
    EXPECT_NEAR(even.requests[i].arrival.to_seconds(), 0.1 * i, 1e-9);
  }
  settings.is_poisson = true;
  settings.requests = 10'000;
  const Serving random = make(settings);
  EXPECT_NEAR(random.requests.back().arrival.to_seconds() / 1'000, 1, 0.03);
  settings.seed = 2;
  EXPECT_NE(make(settings).requests.back().arrival, random.requests.back().arrival);
}

TEST(Serving, PrefillTakesTurnsAndDecodeIsDrawn) {
  ServingSettings settings = settings_of(4);
  settings.tensor = 4;  // two groups prefill, and six decode
  settings.requests = 600;
  const Serving serving = make(settings);
  std::map<std::uint32_t, int> times;
  for (std::size_t i = 0; i < 600; ++i) {
    EXPECT_EQ(serving.graph[serving.requests[i].prefill].rank, i % 2 * 4);
    ++times[serving.graph[serving.requests[i].decode].rank];
  }
  EXPECT_EQ(times.size(), 6u);
  for (const auto& [rank, count] : times) {
    EXPECT_TRUE(rank >= 8 && rank % 4 == 0) << rank;
    EXPECT_NEAR(count, 100, 40) << rank;
  }
}

TEST(Serving, WhatDoesNotFitIsRefusedInOneLine) {
  const auto error = [](const std::function<void(ServingSettings&)>& change) {
    auto settings = settings_of(2);
    change(settings);
    auto serving = make_serving(settings);
    return serving ? std::string() : serving.error().message;
  };
  EXPECT_EQ(error([](auto&) {}), "");
  EXPECT_EQ(error([](auto& s) { s.prompt = 0; }),
            "[serve] needs requests, rate, prompt and output above 0");
  EXPECT_EQ(error([](auto& s) { s.rate = 0; }).find("[serve] needs "), 0u);
  EXPECT_EQ(error([](auto& s) { s.batch = 0; }), "batch must be 1 or more");
  EXPECT_EQ(error([](auto& s) { s.prefill = 2; }),
            "prefill on 2 servers leaves none of 2 to decode");
  EXPECT_EQ(error([](auto& s) { s.tensor = 3; }),
            "a tensor group of 3 does not fit into servers of 8 GPUs");
  EXPECT_EQ(error([](auto& s) { s.model.key_value_heads = 4; }),
            "4 key_value_heads cannot be dealt to a tensor group of 8 evenly");
  EXPECT_EQ(error([](auto& s) { s.model.hidden = 8'200; }), "64 heads do not divide hidden, 8200");
  EXPECT_EQ(error([](auto& s) { s.model.key_value_heads = 24; }),
            "24 key_value_heads do not divide 64 heads");
  EXPECT_EQ(error([](auto& s) { s.gpu.memory_bytes_per_second = 0; }).find("a GPU needs "), 0u);
  EXPECT_EQ(error([](auto& s) { s.requests = s.output = 1'000'000; }).find("these requests have"),
            0u);
  EXPECT_EQ(error([](auto& s) { s.prompt = s.model.layers = 10'000'000; }),
            "the keys and values of a prompt are more than 16 TiB");
  EXPECT_EQ(error([](auto& s) { s.rate = 1e-6; }), "these requests may take more than 50 days");
}

}  // namespace
}  // namespace tulle::workload
