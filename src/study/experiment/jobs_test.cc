// Several jobs on one network: what one sees of the other.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "base/folder_test.h"
#include "study/experiment/jobs_test.h"
#include "study/report/results.h"

namespace tulle::experiment {
namespace {

std::string switch_of(int hosts) {
  return fmt::format(
      "[topology]\nkind = \"single-switch\"\nhosts = {}\nlink_rate = \"400Gbps\"\n"
      "link_delay = \"100ns\"\n[fabric]\nkind = \"infiniband\"\n",
      hosts);
}

// Two leaves of four hosts share one link between them.
constexpr char one_spine[] =
    "[topology]\nkind = \"leaf-spine\"\nleaves = 2\nspines = 1\nhosts_per_leaf = 4\n"
    "link_rate = \"400Gbps\"\nlink_delay = \"100ns\"\n[fabric]\nkind = \"infiniband\"\n";

TEST(Jobs, OneOfThemIsTheJobOfTraffic) {
  const auto one = outcome_of(one_spine + job("a", "allreduce:4MiB", "gpus = 8"));
  const auto same = outcome_of(std::string(one_spine) +
                               "[traffic]\npattern = \"collective\"\nbytes = \"4MiB\"\n");
  EXPECT_EQ(report::sheet_csv(one.links), report::sheet_csv(same.links));
  for (const report::Measured& figure : same.figures) {
    EXPECT_EQ(number(one, figure.figure->key), report::rounded(figure.value)) << figure.figure->key;
  }
  EXPECT_EQ(of_job(one, "a", "job_us"), number(same, "job_us"));
  EXPECT_EQ(of_job(one, "a", "busbw_gbytes"), number(same, "busbw_gbytes"));
}

// A switch that never blocks keeps jobs on their own servers apart.
TEST(Jobs, ThoseThatShareNoLinkDoNotMeet) {
  const auto outcome = compared(switch_of(8) + job("a", "allreduce:4MiB", "gpus = 4") +
                                job("b", "alltoall:1MiB", "gpus = 4"));
  for (const char* name : {"a", "b"}) {
    EXPECT_EQ(of_job(outcome, name, "job_slowdown"), 1) << name;
    EXPECT_EQ(of_job(outcome, name, "alone_us"), of_job(outcome, name, "job_us")) << name;
  }
  const auto alone =
      outcome_of(switch_of(4) + "[traffic]\npattern = \"collective\"\nbytes = \"4MiB\"\n");
  EXPECT_EQ(of_job(outcome, "a", "job_us"), number(alone, "job_us"));
  EXPECT_EQ(number(outcome, "job_us"),
            std::max(of_job(outcome, "a", "job_us"), of_job(outcome, "b", "job_us")));
  EXPECT_EQ(number(outcome, "tasks"),
            of_job(outcome, "a", "tasks") + of_job(outcome, "b", "tasks"));
  EXPECT_EQ(find(outcome, "busbw_gbytes"), nullptr) << "there is none of two jobs together";
}

// Each job sends through the one link between the leaves, which carries both at half the rate. A
// per cent of the time alone is latency, which does not double.
TEST(Jobs, ThoseThatShareALinkTakeTwiceAsLong) {
  const auto outcome = compared(one_spine + job("a", "alltoall:16MiB", "servers = \"0, 4\"") +
                                job("b", "alltoall:16MiB", "servers = \"1, 5\""));
  for (const char* name : {"a", "b"}) {
    EXPECT_NEAR(of_job(outcome, name, "job_slowdown"), 2, 0.02) << name;
    EXPECT_NEAR(of_job(outcome, name, "job_us") / of_job(outcome, name, "alone_us"),
                of_job(outcome, name, "job_slowdown"), 1e-6);
  }
}

TEST(Jobs, OneThatArrivesLaterMeetsNobody) {
  const auto outcome =
      compared(one_spine + job("a", "alltoall:16MiB", "servers = \"0, 4\"") +
               job("b", "alltoall:16MiB", "servers = \"1, 5\"\narrival = \"5ms\""));
  EXPECT_EQ(of_job(outcome, "a", "job_slowdown"), 1);
  EXPECT_EQ(of_job(outcome, "b", "job_slowdown"), 1);
  EXPECT_NEAR(number(outcome, "job_us"), 5'000 + of_job(outcome, "b", "job_us"), 1e-6);
}

// Half of the first job's bytes meet those of the second one.
TEST(Jobs, OneThatArrivesInTheMiddleCostsHalfAsMuch) {
  const double alone =
      of_job(compared(one_spine + job("a", "alltoall:16MiB", "servers = \"0, 4\"")), "a", "job_us");
  const auto outcome =
      compared(one_spine + job("a", "alltoall:16MiB", "servers = \"0, 4\"") +
               job("b", "alltoall:16MiB",
                   fmt::format("servers = \"1, 5\"\narrival = \"{:.0f}ns\"", alone * 500)));
  EXPECT_NEAR(of_job(outcome, "a", "job_slowdown"), 1.5, 0.02);
  EXPECT_NEAR(of_job(outcome, "b", "job_slowdown"), 1.5, 0.02);
}

constexpr char model[] =
    "[model]\nlayers = 4\nhidden = 1024\nfeed_forward = 4096\nheads = 8\nkey_value_heads = 8\n"
    "sequence = 512\n[gpu]\noperations_per_second = 1e14\nmemory_bytes_per_second = 1e12\n"
    "[serve]\nrequests = 8\narrivals = \"fixed\"\nrate = 100\nprompt = 1000\noutput = 11\n";

// The batches of a model that is served, and the delays of messages, are each job's own.
TEST(Jobs, EachHasDelaysAndBatchesOfItsOwn) {
  Folder folder;
  folder.write("model.toml", model);
  const std::string servers = "[traffic]\nservers = { message_delay = \"20us\" }\n";
  const auto outcome = compared(
      switch_of(8) + servers + job("serve", "serve:model.toml", "gpus = 2\narrival = \"3ms\"") +
          job("step", "step:model.toml", "gpus = 2") +
          job("moe", "moe:dispatch", "gpus = 2\nmessage_delay = \"1us\"") +
          job("sum", "allreduce:1MiB", "gpus = 2"),
      folder.path());
  const auto alone = [&](const std::string& traffic) {
    return outcome_of(switch_of(2) + servers + traffic, folder.path());
  };
  const auto serving = alone("pattern = \"serve\"\nserve = \"model.toml\"\n");
  for (const char* key : {"ttft_us.median", "ttft_us.p99", "tpot_us.p99", "job_us"}) {
    EXPECT_EQ(of_job(outcome, "serve", key), number(serving, key)) << key;
  }
  const auto step = alone("pattern = \"step\"\nstep = \"model.toml\"\n");
  EXPECT_EQ(of_job(outcome, "step", "job_us"), number(step, "job_us"));
  EXPECT_EQ(of_job(outcome, "step", "exposed_us"), number(step, "exposed_us"));
  // The seed of the third job is the scenario's and two.
  const auto experts = outcome_of(switch_of(2) + servers +
                                      "pattern = \"experts\"\noperation = \"dispatch\"\n"
                                      "message_delay = \"1us\"\n",
                                  "", {"seed = 3"});
  EXPECT_EQ(of_job(outcome, "moe", "job_us"), number(experts, "job_us"));
  const auto sum = alone("pattern = \"collective\"\nbytes = \"1MiB\"\n");
  EXPECT_EQ(of_job(outcome, "sum", "job_us"), number(sum, "job_us"));
}

TEST(Jobs, OneThatIsNotDoneHasNoTime) {
  const auto outcome =
      compared("stop_at = \"1ms\"\n" + switch_of(4) + job("a", "alltoall:1MiB", "gpus = 2") +
               job("b", "alltoall:256MiB", "gpus = 2"));
  EXPECT_GT(of_job(outcome, "a", "job_us"), 0);
  EXPECT_EQ(find(outcome, "traffic.b.job_us"), nullptr);
  EXPECT_EQ(find(outcome, "traffic.b.job_slowdown"), nullptr);
  EXPECT_EQ(find(outcome, "job_us"), nullptr);
}

// A job within one server has no flows, and the next job's are not taken for its own.
TEST(Jobs, OneWithoutFlows) {
  const auto outcome =
      compared(switch_of(4) + "[traffic]\nservers = { gpus = 4 }\n" +
               job("in", "allreduce:1MiB", "gpus = 4") + job("out", "allreduce:1MiB", "gpus = 8") +
               job("also in", "allreduce:1MiB", "gpus = 4"));
  EXPECT_EQ(of_job(outcome, "in", "flows"), 0);
  EXPECT_EQ(of_job(outcome, "also in", "flows"), 0);
  EXPECT_EQ(of_job(outcome, "out", "flows"), number(outcome, "flows"));
  EXPECT_EQ(of_job(outcome, "also in", "job_us"), of_job(outcome, "in", "job_us"));
  EXPECT_GT(of_job(outcome, "in", "job_us"), 0);
}

}  // namespace
}  // namespace tulle::experiment
