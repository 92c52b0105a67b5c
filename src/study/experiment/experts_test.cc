// Dispatch and combine take the times that DeepEP publishes (docs/fidelity.md).

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "study/experiment/outcome_test.h"

namespace tulle::experiment {
namespace {

// Returns the time in microseconds on servers with eight H800 GPUs and adapters of 400 Gb/s.
double time_of(const std::string& operation, std::uint32_t gpus) {
  const auto outcome = outcome_of(fmt::format(
      "[topology]\nkind = \"rail-optimised\"\nservers = {0}\nrails = 8\nservers_per_group = {0}\n"
      "spines = {0}\nlink_rate = \"400Gbps\"\nlink_delay = \"100ns\"\n"
      "[traffic]\npattern = \"experts\"\noperation = \"{1}\"\n"
      "servers = {{ gpus = 8, adapters = 8, scale_up_rate = \"1280Gbps\", "
      "scale_up_latency = \"3.4us\" }}\n"
      "[fabric]\nkind = \"infiniband\"\n",
      gpus / 8, operation));
  return number(outcome, "job_us");
}

struct Published {
  const char* operation;
  std::uint32_t gpus;
  double us;  // DeepEP, docs/legacy.md, "Low-latency kernels with pure RDMA"
};
class DeepEp : public testing::TestWithParam<Published> {};

// The overhead was calibrated with dispatch on 8 and 16 GPUs. The rest is foretold. Figures for 128
// and 256 GPUs, which take longer, are in docs/fidelity.md.
TEST_P(DeepEp, TimesAreWithinTenPerCent) {
  EXPECT_NEAR(time_of(GetParam().operation, GetParam().gpus) / GetParam().us, 1, 0.1);
}

INSTANTIATE_TEST_SUITE_P(
    Experts, DeepEp,
    testing::Values(Published{"dispatch", 8, 77}, Published{"dispatch", 16, 118},
                    Published{"dispatch", 32, 155}, Published{"dispatch", 64, 173},
                    Published{"combine", 8, 114}, Published{"combine", 16, 195},
                    Published{"combine", 32, 273}, Published{"combine", 64, 314}),
    [](const auto& info) { return fmt::format("{}On{}", info.param.operation, info.param.gpus); });

// Messages of one micro-batch go while another one is computed, so that less is exposed.
TEST(Experts, MicroBatchesHideMessages) {
  const auto exposed_share = [](std::uint32_t batches) {
    const auto outcome = outcome_of(fmt::format(
        "[topology]\nkind = \"single-switch\"\nhosts = 8\nlink_rate = \"400Gbps\"\n"
        "link_delay = \"100ns\"\n[traffic]\npattern = \"experts\"\nlayers = 4\n"
        "tokens = {}\nmicro_batches = {}\noverhead = \"0ns\"\nattention_time = \"{}us\"\n"
        "token_time = \"100ns\"\n[fabric]\nkind = \"infiniband\"\n",
        128 / batches, batches, 400 / batches));
    return number(outcome, "exposed_share");
  };
  EXPECT_GT(exposed_share(1), 0.4);
  EXPECT_LT(exposed_share(2), 0.7 * exposed_share(1));
}

}  // namespace
}  // namespace tulle::experiment
