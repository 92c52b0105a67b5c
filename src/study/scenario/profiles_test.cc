// The profiles and fabrics that come with Tulle can be used.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "places.h"
#include "study/scenario/fabrics.h"
#include "study/scenario/scenario.h"
#include "study/scenario/setup.h"
#include "study/scenario/workloads.h"

namespace tulle::scenario {
namespace {

// GoogleTest has a type called Setup.
using ProfilesSetup = Setup;

const std::string shipped = TULLE_TEST_DATA "/../../scenarios";

std::vector<std::string> names_in(const std::string& kind) {
  std::vector<std::string> names;
  for (const auto& [name, title] : titles_in(fmt::format("{}/profiles/{}", shipped, kind))) {
    EXPECT_FALSE(title.empty()) << kind << "/" << name << " has no title";
    names.push_back(name);
  }
  EXPECT_FALSE(names.empty()) << kind;
  return names;
}

ProfilesSetup built_with(const std::string& text) {
  auto scenario = Scenario::parse(text, "s.toml", shipped, {});
  EXPECT_TRUE(scenario) << scenario.error().message;
  if (!scenario) return {};
  auto setup = scenario->build(0);
  EXPECT_TRUE(setup) << setup.error().message;
  return setup ? std::move(*setup) : ProfilesSetup{};
}

constexpr const char* two_hosts = "[topology]\nlink_rate = \"800Gbps\"\n[traffic]\n";

TEST(Profiles, EachSwitchLoads) {
  for (const std::string& name : names_in("switches")) {
    SCOPED_TRACE(name);
    const bool credits = name.starts_with("infiniband") || name == "slingshot";
    const char* kind = credits ? "infiniband" : "roce";
    const ProfilesSetup setup = built_with(
        fmt::format("{}[fabric]\nkind = \"{}\"\nprofile = \"{}\"\n", two_hosts, kind, name));
    EXPECT_GT(setup.network.switch_latency, Time::zero());
    EXPECT_LT(setup.network.switch_latency, Time::microseconds(1));
  }
}

TEST(Profiles, EachHostLoads) {
  for (const std::string& name : names_in("hosts")) {
    SCOPED_TRACE(name);
    const bool has_kernel = name.starts_with("kernel");
    const ProfilesSetup setup =
        built_with(fmt::format("{}[host]\nprofile = \"{}\"\n{}[fabric]\nflow_control = \"none\"\n",
                               two_hosts, name, has_kernel ? "transport = \"tcp\"\n" : ""));
    EXPECT_EQ(setup.network.host.stack.cores > 0, has_kernel);
    EXPECT_TRUE(has_kernel || setup.player.post_delay > Time::zero());
  }
}

// The header of this profile adds its parts up.
TEST(Profiles, AConnectX8HasTheTimeOfItsParts) {
  const ProfilesSetup setup =
      built_with(fmt::format("{}[host]\nprofile = \"connectx-8\"\n", two_hosts));
  const Time sum = setup.player.post_delay + setup.network.host.send_delay +
                   setup.network.host.receive_delay + setup.player.completion_delay;
  EXPECT_EQ(sum, Time::nanoseconds(4'250));
}

TEST(Profiles, EachServerRunsACollective) {
  for (const std::string& name : names_in("servers")) {
    SCOPED_TRACE(name);
    for (const char* topology : {"rail-optimised", "rail-only"}) {
      WorkloadOptions options;
      options.workload = "alltoall:1MiB";
      options.servers = name;
      options.topology = topology;
      options.gpus = name.find("72") != std::string::npos || name.starts_with("helios") ? 144 : 16;
      auto scenario = workload_scenario(options, shipped);
      ASSERT_TRUE(scenario) << scenario.error().message;
      auto setup = scenario->build(0);
      ASSERT_TRUE(setup) << setup.error().message;
      EXPECT_EQ(setup->jobs.at(0).servers.ranks(), *options.gpus);
      EXPECT_EQ(setup->jobs.at(0).servers.servers, 2u);
    }
  }
}

TEST(Profiles, EachFabricIsCompared) {
  auto fabrics = read_fabrics(shipped + "/fabrics");
  ASSERT_TRUE(fabrics) << fabrics.error().message;
  for (const char* generation : {"infiniband-fdr", "infiniband-edr", "infiniband-ndr",
                                 "infiniband-xdr", "roce-800g", "slingshot"}) {
    const auto found = std::ranges::find(*fabrics, generation, &Fabric::name);
    ASSERT_NE(found, fabrics->end()) << generation;
    EXPECT_FALSE(found->by_default);
  }
  WorkloadOptions options;
  options.workload = "incast";
  options.hosts = 9;
  options.link_rate = "800Gbps";
  auto scenario = workload_scenario(options, shipped);
  ASSERT_TRUE(scenario) << scenario.error().message;
  const Scenario compared = scenario->on_fabrics(*fabrics);
  for (std::size_t i = 0; i < compared.variants().size(); ++i) {
    auto setup = compared.build(i);
    EXPECT_TRUE(setup) << setup.error().message;
  }
}

}  // namespace
}  // namespace tulle::scenario
