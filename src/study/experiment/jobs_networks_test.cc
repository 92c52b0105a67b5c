// Several jobs on rails that are networks of their own, and in planes.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "base/folder_test.h"
#include "study/experiment/jobs_test.h"

namespace tulle::experiment {
namespace {

// Servers of four GPUs, each with an adapter on a rail of its own, which has ports in two planes.
std::string rails_in_planes(int servers, int servers_of_leaf, const std::string& more = "") {
  return fmt::format(
      "[topology]\nkind = \"rail-only\"\nservers = {}\nrails = 4\nservers_per_group = {}\n"
      "spines = 1\nplanes = 2\nlink_rate = \"200Gbps\"\nlink_delay = \"100ns\"\n[fabric]\n"
      "kind = \"infiniband\"\n[traffic]\n{}servers = {{ gpus = 4, adapters = 4, "
      "scale_up_rate = \"3600Gbps\" }}\n",
      servers, servers_of_leaf, more);
}

std::uint64_t bytes_of(const report::Outcome& outcome, std::size_t job) {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < outcome.flows.size(); ++i) {
    if (outcome.kind_of[i] == job) bytes += outcome.flows[i].bytes;
  }
  return bytes;
}

// Each of eight GPUs sends an eighth of its bytes to each of the four GPUs of the other server.
// Three of these messages take a relay. One leaf of each rail and plane joins all servers.
TEST(JobsOnRailsInPlanes, ThoseThatShareNoLinkDoNotMeet) {
  for (const std::string plane : {"spray", "flow"}) {
    const std::string payload = fmt::format("payload = \"bytes\"\nplane = \"{}\"\n", plane);
    const auto outcome =
        compared(rails_in_planes(4, 4, payload) + job("a", "alltoall:4MiB", "servers = \"0, 2\"") +
                 job("b", "alltoall:8MiB", "servers = \"3, 1\""));
    EXPECT_EQ(count(outcome, "finished"), outcome.flows.size()) << plane;
    EXPECT_EQ(bytes_of(outcome, 0), 4u * (4u << 20)) << plane;
    EXPECT_EQ(bytes_of(outcome, 1), 4u * (8u << 20)) << plane;
    EXPECT_EQ(count(outcome, "bytes_verified"), 4u * (12u << 20)) << plane;
    for (const report::Flow& flow : outcome.flows) {
      EXPECT_EQ(flow.source % 4, flow.destination % 4) << "each message keeps to its rail";
    }
    for (const char* name : {"a", "b"}) {
      EXPECT_EQ(of_job(outcome, name, "job_slowdown"), 1) << plane << ", " << name;
    }
    const auto alone =
        outcome_of(rails_in_planes(2, 4,
                                   payload + "pattern = \"collective\"\ncollective = "
                                             "\"all-to-all\"\nbytes = \"4MiB\"\n"));
    EXPECT_EQ(of_job(outcome, "a", "job_us"), number(alone, "job_us")) << plane;
    EXPECT_EQ(of_job(outcome, "a", "flows"), number(alone, "flows")) << plane;
  }
}

// A leaf of two servers has one link to the spine in each rail and plane, and both jobs need it.
TEST(JobsOnRailsInPlanes, ThoseThatShareALinkTakeTwiceAsLong) {
  const auto outcome =
      compared(rails_in_planes(4, 2) + job("a", "alltoall:64MiB", "servers = \"0, 2\"") +
               job("b", "alltoall:64MiB", "servers = \"1, 3\""));
  for (const char* name : {"a", "b"}) {
    EXPECT_NEAR(of_job(outcome, name, "job_slowdown"), 2, 0.04) << name;
  }
}

// A ring's messages need no relay, and the tasks and flows of the second job begin behind those of
// the first one, which has relays and parts.
TEST(JobsOnRailsInPlanes, KindsOfJobsGoTogether) {
  Folder folder;
  folder.write("model.toml",
               "[model]\nlayers = 2\nhidden = 256\nfeed_forward = 512\nheads = 8\n"
               "key_value_heads = 8\nsequence = 256\nexperts = 8\nexperts_of_token = 2\n[gpu]\n"
               "operations_per_second = 1e14\nmemory_bytes_per_second = 1e12\n[serve]\n"
               "requests = 8\narrivals = \"fixed\"\nrate = 100\nprompt = 1000\noutput = 11\n"
               "tensor = 1\n");
  const std::string all =
      job("serve", "serve:model.toml", "servers = \"4, 1\"") +
      job("ring", "allreduce:4MiB", "servers = \"0, 5\"\nalgorithm = \"ring\"") +
      job("step", "step:model.toml", "servers = \"2-3, 6\"\ncheckpoint = { storage = 1 }");
  const auto outcome = compared(rails_in_planes(8, 8) + all, folder.path());
  for (const char* name : {"serve", "ring", "step"}) {
    EXPECT_EQ(of_job(outcome, name, "job_slowdown"), 1) << name;
  }
  const auto alone = [&](int servers, const std::string& traffic) {
    return outcome_of(rails_in_planes(servers, 8, traffic), folder.path());
  };
  const auto serving = alone(2, "pattern = \"serve\"\nserve = \"model.toml\"\n");
  for (const char* key : {"ttft_us.median", "ttft_us.p99", "tpot_us.p99", "cache_us.p99"}) {
    EXPECT_EQ(of_job(outcome, "serve", key), number(serving, key)) << key;
  }
  const auto ring = alone(2, "pattern = \"collective\"\nbytes = \"4MiB\"\nalgorithm = \"ring\"\n");
  EXPECT_EQ(of_job(outcome, "ring", "job_us"), number(ring, "job_us"));
  // The third job's draws are those of the scenario's seed and two.
  const auto step = outcome_of(rails_in_planes(3, 8,
                                               "pattern = \"step\"\nstep = \"model.toml\"\n"
                                               "checkpoint = { storage = 1 }\n"),
                               folder.path(), {"seed = 3"});
  for (const char* key : {"step_us", "checkpoint_us", "checkpoint_cost_us", "job_us"}) {
    EXPECT_EQ(of_job(outcome, "step", key), number(step, key)) << key;
  }
}

}  // namespace
}  // namespace tulle::experiment
