// Jobs at flow level, beside their packets.

#include "study/experiment/flow_jobs.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "study/experiment/flow_level.h"
#include "study/experiment/outcome_test.h"

namespace tulle::experiment {
namespace {

constexpr char rails[] = R"([topology]
kind = "rail-optimised"
servers = 4
rails = 2
servers_per_group = 2
spines = 2
link_rate = "400Gbps"
link_delay = "100ns"
[host]
train = 1
[traffic]
pattern = "collective"
collective = "all-reduce"
servers = { gpus = 2, adapters = 2 }
)";
constexpr char credits[] = "[fabric]\nkind = \"infiniband\"\n";
constexpr char pauses[] = "[fabric]\nkind = \"roce\"\n";

double time_of_job(const report::Outcome& outcome) {
  for (const char* figure : {"job_us", "time_us"}) {
    if (const auto* found = report::find(outcome, figure)) return report::exact(found->value);
  }
  ADD_FAILURE() << "no job was done";
  return 0;
}

Result<std::unique_ptr<FlowLevel>> played(const std::string& text,
                                          const std::vector<std::string>& set) {
  auto setup = setup_of(text, "", set);
  if (!setup) return Error{"the scenario is refused"};
  auto run = FlowLevel::prepare(std::move(*setup));
  if (!run) return run.error();
  if (auto ran = (*run)->run([](const Progress&) { return true; }); !ran) return ran.error();
  return run;
}

class JobsBesidePackets
    : public testing::TestWithParam<std::pair<const char*, std::vector<std::string>>> {};

TEST_P(JobsBesidePackets, TakeAsLong) {
  const auto& [fabric, set] = GetParam();
  const std::string text = std::string(rails) + fabric;
  const double packets = time_of_job(outcome_of(text, "", set));
  auto run = played(text, set);
  ASSERT_TRUE(run) << run.error().message;
  const report::Outcome flows = (*run)->outcome({});
  EXPECT_NEAR(time_of_job(flows) / packets, 1, 0.01);
  for (const report::Flow& flow : flows.flows) {
    EXPECT_TRUE(flow.is_done() && flow.has_arrived());
    EXPECT_LT(flow.arrived, flow.end) << "the acknowledgement comes back later";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Jobs, JobsBesidePackets,
    testing::Values(
        std::pair{credits, std::vector<std::string>{"traffic.algorithm = \"ring\""}},
        std::pair{pauses, std::vector<std::string>{"traffic.algorithm = \"ring\""}},
        std::pair{credits, std::vector<std::string>{"traffic.algorithm = \"hierarchical\""}},
        std::pair{credits, std::vector<std::string>{"traffic.algorithm = \"hierarchical\"",
                                                    "traffic.group_servers = 2"}},
        std::pair{credits, std::vector<std::string>{"traffic.algorithm = \"halving-doubling\"",
                                                    "traffic.bytes = \"8MiB\""}}));

// A message begins when the one before has left, not when its acknowledgement is back.
TEST(FlowJobs, MessagesOfAConnectionFollowOneAnother) {
  const auto time_of = [](const char* bytes) {
    auto run = played(std::string(rails) + credits,
                      {"traffic.collective = \"broadcast\"", "traffic.algorithm = \"ring\"",
                       "traffic.channels = 1", "traffic.chunk = \"4MiB\"",
                       std::string("traffic.bytes = \"") + bytes + "\""});
    EXPECT_TRUE(run) << run.error().message;
    return time_of_job((*run)->outcome({}));
  };
  const double one = time_of("4MiB"), eight = time_of("32MiB");
  const double more = 7 * (4 << 20) * 8.0 / 400e9 * 1e6;  // microseconds of the link
  EXPECT_NEAR((eight - one) / more, 1, 0.02);
}

TEST(FlowJobs, EndWhenTheScenarioDoes) {
  auto run = played(std::string(rails) + credits, {"stop_at = \"100us\""});
  ASSERT_TRUE(run) << run.error().message;
  const report::Outcome outcome = (*run)->outcome({});
  EXPECT_NE(report::unfinished(outcome), "");
  EXPECT_EQ(report::find(outcome, "time_us"), nullptr);
}

TEST(FlowJobs, QueuesAtWhichSwitchesPauseAreRefused) {
  auto run = played(std::string(rails) + pauses,
                    {"traffic.algorithm = \"hierarchical\"", "traffic.group_servers = 2",
                     "traffic.bytes = \"256MiB\""});
  ASSERT_FALSE(run);
  EXPECT_NE(run.error().message.find("where switches drop, mark or pause"), std::string::npos)
      << run.error().message;
}

TEST(FlowJobs, AWindowThatHoldsMessagesUpIsRefused) {
  auto run = played(std::string(rails) + pauses, {"host.in_flight = 1"});
  ASSERT_FALSE(run);
  EXPECT_NE(run.error().message.find("in flight"), std::string::npos) << run.error().message;
}

TEST(FlowJobs, ShortMessagesOfHostsWithDelaysWereNotMeasured) {
  const ValidatedRange all{.backlog = fluid::Backlog::credits,
                           .of_jobs = true,
                           .bottleneck_flows_max = 100,
                           .error_max = 0.01};
  const auto range_of = [&](const std::string& bytes, Time delay) -> Result<ValidatedRange> {
    auto setup = setup_of(std::string(rails) + credits, "",
                          {"traffic.algorithm = \"ring\"", "traffic.bytes = \"" + bytes + "\""});
    setup->player.post_delay = delay;
    auto run = FlowLevel::prepare(std::move(*setup));
    if (!run) return run.error();
    if (auto ran = (*run)->run([](const Progress&) { return true; }); !ran) return ran.error();
    return (*run)->range_among({&all, 1});
  };
  constexpr Time delay = Time::microseconds(3);
  for (const auto& accepted : {range_of("1MiB", Time::zero()), range_of("64MiB", delay)}) {
    EXPECT_TRUE(accepted);
  }
  auto refused = range_of("1MiB", delay);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("where hosts have delays"), std::string::npos)
      << refused.error().message;
}

TEST(FlowJobs, WhatIsNotModelledIsRefused) {
  const auto refusal = [](const std::string& fabric, const std::vector<std::string>& set) {
    auto setup = setup_of(rails + fabric, "", set);
    return setup ? beyond_flow_level(*setup) : "";
  };
  EXPECT_EQ(refusal(credits, {}), "");
  EXPECT_NE(refusal(credits, {"fabric.aggregation = true", "traffic.algorithm = \"in-network\""})
                .find("switches that reduce"),
            std::string::npos);
  EXPECT_NE(refusal(credits, {"topology.link_delay = \"1us\""}).find("long for their credits"),
            std::string::npos);
  EXPECT_NE(refusal(pauses, {"fabric.ecn = {}", "congestion.control = \"dcqcn\""})
                .find("congestion control"),
            std::string::npos);
  EXPECT_NE(refusal(credits, {"host.mtu = 1024"}).find("4,096 bytes"), std::string::npos);
  EXPECT_NE(refusal(credits, {"routing.lmc = 1"}).find("several LIDs"), std::string::npos);
  EXPECT_NE(refusal(credits, {"topology.planes = 2"}).find("several planes"), std::string::npos);
  EXPECT_NE(refusal(pauses, {"fabric.lose_every = 1000"}).find("losses"), std::string::npos);
  EXPECT_NE(refusal(pauses, {"fabric.path = \"packet\""}).find("packet by packet"),
            std::string::npos);
}

}  // namespace
}  // namespace tulle::experiment
