// A training step with expert parallelism takes the time of its all-to-alls.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "base/folder_test.h"
#include "study/experiment/outcome_test.h"

namespace tulle::experiment {
namespace {

// Four servers of one GPU, which share the experts of one layer and compute in no time.
report::Outcome step(const std::string& model) {
  Folder folder;
  folder.write("step.toml",
               fmt::format("[model]\nlayers = 1\nhidden = 4096\nfeed_forward = 1\nheads = 1\n"
                           "key_value_heads = 1\nsequence = 1024\nexperts = 4\n{}"
                           "[gpu]\noperations_per_second = 1e21\n[parallel]\nexpert = 4\n"
                           "gradient_bytes = 1\nbuckets = 1\n",
                           model));
  return outcome_of(
      "[topology]\nkind = \"single-switch\"\nhosts = 4\nlink_rate = \"400Gbps\"\n"
      "link_delay = \"100ns\"\n[fabric]\nkind = \"infiniband\"\n"
      "[traffic]\npattern = \"step\"\nstep = \"step.toml\"\n",
      folder.path());
}

// An adapter sends to three others what 1,024 tokens have. The step does that four times, and then
// sums the gradients of the attention, 4 · 4,096² bytes, in a ring.
TEST(TrainingExperts, AllToAllsTakeTheTextbooksTime) {
  const double payload_rate = 400e9 / 8 * 4'096 / (4'096 + 28);
  const double tokens_us = 3.0 * 1'024 * 4'096 * 2 / payload_rate * 1e6;
  const double ring_us = 2.0 * 3 / 4 * 4 * 4'096 * 4'096 / payload_rate * 1e6;
  EXPECT_NEAR(number(step("experts_of_token = 4\n"), "job_us") / (4 * tokens_us + ring_us), 1,
              0.02);
}

// The adapter of a popular expert receives more than others, and all wait for it.
TEST(TrainingExperts, APopularExpertMakesTheStepLonger) {
  const double even = number(step("experts_of_token = 1\n"), "job_us");
  const double skewed = number(step("experts_of_token = 1\nskew = 3\n"), "job_us");
  EXPECT_GT(skewed, 1.2 * even);
}

}  // namespace
}  // namespace tulle::experiment
