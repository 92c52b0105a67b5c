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
