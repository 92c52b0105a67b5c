// Requests that meet nobody take the times of arithmetic.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "base/folder_test.h"
#include "study/experiment/outcome_test.h"

namespace tulle::experiment {
namespace {

constexpr double payload_rate = 400e9 / 8 * 4'096 / (4'096 + 28);

// One server decodes, and the others prefill. A token has 2 · 4 · 8 · 128 · 2 bytes = 16 KiB.
report::Outcome served(double rate, const std::string& more = "output = 11\n", int hosts = 2) {
  Folder folder;
  folder.write("model.toml",
               fmt::format("[model]\nlayers = 4\nhidden = 1024\nfeed_forward = 4096\nheads = 8\n"
                           "key_value_heads = 8\n[gpu]\noperations_per_second = 1e14\n"
                           "memory_bytes_per_second = 1e12\n[serve]\nrequests = 8\n"
                           "arrivals = \"fixed\"\nrate = {}\nprompt = 1000\n{}",
                           rate, more));
  return outcome_of(
      fmt::format("[topology]\nkind = \"single-switch\"\nhosts = {}\nlink_rate = \"400Gbps\"\n"
                  "link_delay = \"100ns\"\n[fabric]\nkind = \"infiniband\"\n"
                  "[traffic]\npattern = \"serve\"\nserve = \"model.toml\"\n",
                  hosts),
      folder.path());
}

constexpr double weights = 4 * (4.0 * 1'024 * 1'024 + 3.0 * 1'024 * 4'096);
constexpr double prefill_us = (2 * weights * 1'000 + 4 * 2.0 * 1'000 * 1'000 * 1'024) / 1e14 * 1e6;
constexpr double cache_us = 1'000 * 16'384 / payload_rate * 1e6;
constexpr double weights_us = weights * 2 / 1e12 * 1e6;
constexpr double reads_us = (1'000 + 5) * 16'384.0 / 1e12 * 1e6;

TEST(Serving, ARequestAloneTakesItsPartsTimes) {
  const auto outcome = served(100);
  EXPECT_NEAR(number(outcome, "cache_us.median") / cache_us, 1, 0.02);
  EXPECT_NEAR(number(outcome, "tpot_us.median"), weights_us + reads_us, 0.01);
  EXPECT_NEAR(number(outcome, "ttft_us.median"),
              prefill_us + number(outcome, "cache_us.median") + weights_us + reads_us, 0.01);
  EXPECT_NEAR(number(outcome, "ttft_us.p99"), number(outcome, "ttft_us.median"), 0.01);
  EXPECT_NEAR(number(outcome, "cache_share"),
              number(outcome, "cache_us.median") / number(outcome, "ttft_us.median"), 1e-6);
  EXPECT_EQ(find(outcome, "exposed_us"), nullptr) << "waiting for requests is no computation";
}

// All come at once: the last one waits for seven prefills. Caches are faster than prefills, so that
// none waits for another.
TEST(Serving, RequestsWaitForEachOther) {
  const auto outcome = served(1e9);
  EXPECT_NEAR(number(outcome, "ttft_us.p99") - 8 * prefill_us,
              number(served(100), "ttft_us.median") - prefill_us, weights_us + 8 * reads_us)
      << "it may have to wait for a round";
  EXPECT_GT(number(outcome, "ttft_us.p99"), 7.9 * prefill_us);
  EXPECT_NEAR(number(outcome, "cache_us.p99") / cache_us, 1, 0.02);
}

// Two prefill servers end at once, each time, and the decode server's link carries both caches.
TEST(Serving, CachesShareTheLinkOfADecodeServer) {
  const auto outcome = served(1e9, "output = 11\nprefill = 2\n", 3);
  EXPECT_NEAR(number(outcome, "cache_us.median") / (2 * cache_us), 1, 0.02);
}

// Decoding takes longer than all prefills, so that all requests are decoded at once if they may be.
TEST(Serving, ALargerBatchTakesLongerRounds) {
  const double alone = number(served(1e9, "output = 201\nbatch = 1\n"), "tpot_us.median");
  const double together = number(served(1e9, "output = 201\nbatch = 8\n"), "tpot_us.median");
  const double reads = (1'000 + 100) * 16'384.0 / 1e12 * 1e6;
  EXPECT_NEAR(alone, weights_us + reads, 0.01);
  EXPECT_GT(together, weights_us + 4 * reads);
  EXPECT_LT(together, weights_us + 8 * reads);
}

}  // namespace
}  // namespace tulle::experiment
