// A checkpoint takes its bytes over the narrowest rate, and costs a step that much unless they
// overlap.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "base/folder_test.h"
#include "study/experiment/outcome_test.h"

namespace tulle::experiment {
namespace {

// A frame of InfiniBand has 28 bytes besides its payload.
constexpr double payload_rate = 400e9 / 8 * 4'096 / (4'096 + 28);  // bytes a second
constexpr double weights = 4.0 * 512 * 512 + 3.0 * 512 * 2'048;
constexpr double bytes = weights * 14;

// Servers of one GPU and one adapter at one switch, of which the last `storage` ones store.
report::Outcome trained(int gpus, int storage, const std::string& checkpoint,
                        const std::string& servers = "", const std::string& more = "") {
  Folder folder;
  folder.write("m.toml",
               "[model]\nlayers = 1\nhidden = 512\nfeed_forward = 2048\nheads = 8\n"
               "key_value_heads = 8\nsequence = 512\n[gpu]\noperations_per_second = 1e14\n"
               "[parallel]\nmicro_batches = 4\n");
  return outcome_of(
      fmt::format("[topology]\nkind = \"single-switch\"\nhosts = {}\nlink_rate = \"400Gbps\"\n"
                  "link_delay = \"100ns\"\n[fabric]\nkind = \"infiniband\"\n[traffic]\n"
                  "pattern = \"step\"\nstep = \"m.toml\"\nservers = {{ {} }}\n"
                  "checkpoint = {{ storage = {}{} }}\n{}",
                  gpus + storage, servers, storage, checkpoint, more),
      folder.path());
}

TEST(Checkpoint, TakesItsBytesOverTheLinkOfOneStorageServer) {
  const auto outcome = trained(2, 1, "");
  EXPECT_NEAR(number(outcome, "checkpoint_us") * 1e-6 * payload_rate / bytes, 1, 0.01);
  EXPECT_NEAR(number(outcome, "checkpoint_gbytes"), payload_rate * 1e-9, 0.5);
}

TEST(Checkpoint, TakesItsBytesOverTheLinksOfTheGpus) {
  const auto two = trained(2, 2, "");
  EXPECT_NEAR(number(two, "checkpoint_us") * 1e-6 * 2 * payload_rate / bytes, 1, 0.01);
  const auto one = trained(1, 2, "");
  EXPECT_NEAR(number(one, "checkpoint_us") * 1e-6 * payload_rate / bytes, 1, 0.01);
}

TEST(Checkpoint, TakesItsBytesOverTheDrives) {
  const auto outcome = trained(2, 2, ", drive_rate = \"80Gbps\"");
  EXPECT_NEAR(number(outcome, "checkpoint_us") * 1e-6 * 20e9 / bytes, 1, 0.01);
  EXPECT_NEAR(number(outcome, "checkpoint_gbytes"), 20, 0.2);
}

// A GPU with one command under way waits for a round trip, and the drives, after each piece.
TEST(Checkpoint, OneCommandAtATimeWaitsForEachAnswer) {
  const auto deep = trained(1, 1, ", drive_rate = \"400Gbps\"");
  const auto one = trained(1, 1, ", drive_rate = \"400Gbps\", depth = 1");
  const double pieces = bytes / (128 << 10);
  const double least_us = 131'072 / payload_rate * 1e6 + 131'072 / 50e9 * 1e6;
  EXPECT_GT(number(one, "checkpoint_us"), pieces * least_us);
  EXPECT_LT(number(one, "checkpoint_us"), pieces * (least_us + 3)) << "four messages of 0.4 us";
  EXPECT_NEAR(number(deep, "checkpoint_us") * 1e-6 * payload_rate / bytes, 1, 0.02);
}

TEST(Checkpoint, CostsAStepItsTimeUnlessTheyOverlap) {
  const auto waits = trained(2, 1, "");
  EXPECT_NEAR(number(waits, "checkpoint_cost_us") / number(waits, "checkpoint_us"), 1, 0.001);
  EXPECT_NEAR(number(waits, "job_us"),
              2 * number(waits, "step_us") + number(waits, "checkpoint_cost_us"), 0.3)
      << "the job ends with the last acknowledgement";
  const auto overlaps = trained(2, 1, ", overlaps = true");
  EXPECT_EQ(number(overlaps, "step_us"), number(waits, "step_us"));
  EXPECT_LT(number(overlaps, "checkpoint_cost_us"), number(waits, "checkpoint_cost_us") / 2);
  EXPECT_GT(number(overlaps, "checkpoint_cost_us"), 0) << "gradients meet it on the links";
  // One GPU sends no gradients.
  const auto alone = trained(1, 1, ", overlaps = true");
  EXPECT_EQ(number(alone, "checkpoint_cost_us"), 0);
  EXPECT_NEAR(number(alone, "checkpoint_us") * 1e-6 * payload_rate / bytes, 1, 0.01);
}

// The next checkpoint waits for the last one, and the steps behind them do not.
TEST(Checkpoint, EveryFewSteps) {
  const auto outcome = trained(2, 1, ", every = 2", "", "steps = 7\n");
  EXPECT_NEAR(number(outcome, "job_us"),
              7 * number(outcome, "step_us") + 3 * number(outcome, "checkpoint_cost_us"), 0.3);
  EXPECT_NEAR(number(outcome, "checkpoint_cost_us") / number(outcome, "checkpoint_us"), 1, 0.001);
  const auto busy = trained(1, 1, ", overlaps = true, drive_rate = \"8Gbps\"", "", "steps = 4\n");
  EXPECT_NEAR((number(busy, "job_us") - number(busy, "step_us")) / (3 * bytes * 1e-3), 1, 0.01);
}

// Messages of GPUs are late by what their servers' profile says, and a host's are not.
TEST(Checkpoint, TheDelayOfGpusIsNotThatOfHosts) {
  const auto late = trained(1, 1, ", depth = 1", "message_delay = \"50us\"");
  EXPECT_EQ(number(late, "checkpoint_us"), number(trained(1, 1, ", depth = 1"), "checkpoint_us"));
}

TEST(Checkpoint, StepsWithoutCheckpoints) {
  Folder folder;
  const auto outcome = trained(2, 1, ", every = 3", "", "steps = 4\n");
  EXPECT_GT(number(outcome, "step_us"), 0);
  const auto one = trained(2, 1, "");
  EXPECT_EQ(number(outcome, "step_us"), number(one, "step_us"));
}

}  // namespace
}  // namespace tulle::experiment
