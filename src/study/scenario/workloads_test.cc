#include "study/scenario/workloads.h"

#include <gtest/gtest.h>

#include "base/folder_test.h"
#include "places.h"

namespace tulle::scenario {
namespace {

TEST(Workloads, ErrorsNameMembersAsTheCallersUsersWriteThem) {
  WorkloadOptions options;
  options.workload = "allreduce:1MiB";
  options.hosts = 4;
  EXPECT_EQ(workload_scenario(options, TULLE_SCENARIOS).error().message,
            "hosts: a job runs on gpus");
  const auto spelled = [](std::string_view member) { return "<" + std::string(member) + ">"; };
  EXPECT_EQ(workload_scenario(options, TULLE_SCENARIOS, spelled).error().message,
            "<hosts>: a job runs on <gpus>");
}

TEST(Workloads, SetReplacesWhatTheMembersSay) {
  WorkloadOptions options;
  options.workload = "incast";
  options.hosts = 4;
  options.seed = 3;
  options.is_alone = true;
  options.prices = TULLE_SCENARIOS "/prices/example.toml";
  auto scenario = workload_scenario(options, TULLE_SCENARIOS);
  ASSERT_TRUE(scenario) << scenario.error().message;
  EXPECT_EQ(scenario->setting(0, "seed"), "3");
  EXPECT_EQ(scenario->setting(0, "report.alone"), "true");
  EXPECT_TRUE(scenario->setting(0, "prices").ends_with("example.toml'"))
      << scenario->setting(0, "prices");
  options.set = {"seed = 4", "report.alone = false"};
  scenario = workload_scenario(options, TULLE_SCENARIOS);
  ASSERT_TRUE(scenario) << scenario.error().message;
  EXPECT_EQ(scenario->setting(0, "seed"), "4");
  EXPECT_EQ(scenario->setting(0, "report.alone"), "false");
}

// A name is a value, whatever it has in it.
TEST(Workloads, ValuesAreNoText) {
  const Folder folder;
  folder.write("two \"servers\"\nof = 'mine'.toml", "title = \"T\"\ngpus = 4\nadapters = 2\n");
  WorkloadOptions options;
  options.workload = "allreduce:1MiB";
  options.gpus = 8;
  options.servers = folder.path("two \"servers\"\nof = 'mine'.toml");
  auto scenario = workload_scenario(options, TULLE_SCENARIOS);
  ASSERT_TRUE(scenario) << scenario.error().message;
  EXPECT_EQ(scenario->setting(0, "topology.rails"), "2");
  EXPECT_EQ(scenario->setting(0, "topology.servers"), "2");
}

class Tables : public testing::Test {
 protected:
  void SetUp() override {
    folder.write("links.csv", "a,b,gbps,delay_ns\n0,2,100,1000\n1,2,100,1000\n");
    folder.write("flows.csv", "src,dst,bytes,start_ns\n0,1,1000,0\n");
    options.topology = folder.path("links.csv");
    options.flows = folder.path("flows.csv");
  }

  Folder folder;
  TableOptions options;
};

TEST_F(Tables, AreAScenario) {
  options.overrides.seed = 5;
  auto scenario = tables_scenario(options);
  ASSERT_TRUE(scenario) << scenario.error().message;
  auto setup = scenario->build(0);
  ASSERT_TRUE(setup) << setup.error().message;
  EXPECT_EQ(setup->flows.size(), 1u);
  EXPECT_EQ(setup->network.seed, 5u);
  EXPECT_EQ(setup->network.link_layer, sim::LinkLayer::ethernet);
  options.is_infiniband = true;
  scenario = tables_scenario(options);
  ASSERT_TRUE(scenario) << scenario.error().message;
  EXPECT_EQ(scenario->build(0)->network.link_layer, sim::LinkLayer::infiniband);
}

// HPCC's simulator has 5 and 50 Mb/s at 25 Gb/s.
TEST_F(Tables, RatesOfHpccsDcqcnFollowTheHostsRate) {
  options.has_dcqcn_of_hpcc = true;
  auto scenario = tables_scenario(options);
  ASSERT_TRUE(scenario) << scenario.error().message;
  EXPECT_EQ(scenario->setting(0, "congestion.additive"), "'20000Kbps'");
  EXPECT_EQ(scenario->setting(0, "congestion.hyper"), "'200000Kbps'");
  EXPECT_TRUE(scenario->build(0)) << scenario->build(0).error().message;
}

TEST_F(Tables, AMissingOneIsNamed) {
  options.topology = folder.path("none.csv");
  options.has_dcqcn_of_hpcc = true;
  const auto scenario = tables_scenario(options);
  ASSERT_FALSE(scenario);
  EXPECT_NE(scenario.error().message.find("there is no file"), std::string::npos);
  options.flows = "f\xE6.csv";
  EXPECT_EQ(tables_scenario(options).error().message.find("flows: the name \"f?.csv\" is not"), 0u);
}

}  // namespace
}  // namespace tulle::scenario
