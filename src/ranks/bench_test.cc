#include "ranks/bench.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace tulle::ranks {
namespace {

std::string as_option(std::string_view member) {
  std::string option = "--" + std::string(member);
  std::replace(option.begin(), option.end(), '_', '-');
  return option;
}

std::string refused(const BenchOptions& options) {
  auto bench = make_bench(options, as_option);
  return bench ? "" : bench.error().message;
}

TEST(BenchTest, BytesAreRoundedUpToEqualParts) {
  BenchOptions options;
  options.collective = "allreduce:1000001B";
  options.ranks = 3;
  auto bench = make_bench(options, as_option);
  ASSERT_TRUE(bench) << bench.error().message;
  EXPECT_GE(bench->settings.bytes, 1'000'001u);
  EXPECT_EQ(bench->settings.bytes % (3 * sizeof(float)), 0u);
  EXPECT_EQ(bench->plan.buffer_bytes, bench->settings.bytes);
  const std::uint64_t number = bench->number;
  options.iterations = 21;
  EXPECT_NE(make_bench(options, as_option)->number, number);
}

TEST(BenchTest, WhatIsWrongIsSpeltAsTheCallerDoes) {
  BenchOptions options;
  options.collective = "allreduse:1MiB";
  EXPECT_NE(refused(options).find("no collective \"allreduse\"; did you mean allreduce?"),
            std::string::npos);
  options.collective = "allreduce:1MiB";
  options.per_server = 3;
  EXPECT_EQ(refused(options), "--per-server: 4 ranks do not fill servers of 3");
  options.per_server = 0;
  options.chunk = "3B";
  EXPECT_EQ(refused(options), "--chunk: must be a multiple of 4 B");
  options.chunk = "4B";
  options.ranks = 1;
  EXPECT_EQ(refused(options), "--ranks: must be 2 to 64");
}

TEST(BenchTest, WhatAnAlgorithmDoesNotUseIsRefused) {
  struct Row {
    const char* collective;
    const char* algorithm;
    bool has_servers, has_channels, has_chunks;
  };
  for (const Row& row :
       {Row{"allreduce:1MiB", "ring", true, true, false},
        Row{"allreduce:1MiB", "tree", true, true, true},
        Row{"allreduce:1MiB", "hierarchical", true, false, false},
        Row{"allreduce:1MiB", "halving-doubling", false, false, false},
        Row{"allreduce:1MiB", "direct", false, false, false},
        Row{"allreduce:1KiB", "", true, true, false}, Row{"broadcast:1MiB", "", true, true, true},
        Row{"alltoall:1MiB", "", false, false, false}}) {
    const auto refusal = [&](const auto& change) {
      BenchOptions options;
      options.collective = row.collective;
      options.algorithm = row.algorithm;
      change(options);
      return refused(options);
    };
    const auto expect = [&](bool is_used, const std::string& refusal, const char* option) {
      EXPECT_EQ(refusal.starts_with(std::string(option) + " has no effect on "), !is_used)
          << row.collective << " " << row.algorithm << ": " << refusal;
      EXPECT_EQ(refusal.empty(), is_used) << refusal;
    };
    expect(row.has_servers, refusal([](BenchOptions& o) { o.per_server = 4; }), "--per-server");
    expect(row.has_channels, refusal([](BenchOptions& o) { o.channels = 1; }), "--channels");
    expect(row.has_chunks, refusal([](BenchOptions& o) { o.chunk = "4KB"; }), "--chunk");
    expect(true, refusal([](BenchOptions&) {}), "");
  }
}

TEST(BenchTest, TimesAreMedians) {
  BenchOptions options;
  options.collective = "allreduce:4000000B";
  auto bench = make_bench(options, as_option);
  ASSERT_TRUE(bench);
  const Times times{{0.004, 0.001, 0.002}, {0.001, 0.003, 0.002}, 0};
  EXPECT_NE(bench_json(*bench, times).find("\"time_us\": 2000.0"), std::string::npos);
  EXPECT_NE(bench_json(*bench, times).find("\"time_us_max\": 4000.0"), std::string::npos);
  const std::string text = bench_text(*bench, times);
  EXPECT_NE(text.find("      4000000      1000000   float     2000.0     2.00     3.00       0\n"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace tulle::ranks
