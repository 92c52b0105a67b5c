// Prices of a network, by a list that the scenario names.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "base/folder_test.h"
#include "study/scenario/scenario.h"
#include "study/scenario/setup.h"

namespace tulle::scenario {
namespace {

constexpr char pieces[] =
    "rate = \"100Gbps\"\nadapter = 10\nadapter_watts = 1\nswitch_port = 100\n"
    "switch_port_watts = 2\ncable = 1000\ncable_watts = 4\n";

// GoogleTest has a type called Setup.
using ScenarioSetup = Setup;

class Prices : public testing::Test {
 protected:
  // Two leaves with three hosts each, and two spines: 6 + 4 links.
  Result<ScenarioSetup> built(const std::string& list, const std::string& kind = "roce",
                              const std::string& rate = "100Gbps") {
    folder_.write("list.toml", list);
    auto scenario = Scenario::parse(
        fmt::format("prices = \"list.toml\"\n[topology]\nkind = \"leaf-spine\"\nleaves = 2\n"
                    "spines = 2\nhosts_per_leaf = 3\nlink_rate = \"{}\"\n[traffic]\n"
                    "pattern = \"permutation\"\n[fabric]\nkind = \"{}\"\n",
                    rate, kind),
        "s.toml", folder_.path(), {});
    EXPECT_TRUE(scenario);
    return scenario->build(0);
  }
  std::string error_of(const std::string& list, const std::string& rate = "100Gbps") {
    auto setup = built(list, "roce", rate);
    return setup ? "" : setup.error().message;
  }
  Folder folder_;
};

TEST_F(Prices, AdaptersPortsAndCablesAddUp) {
  auto setup = built(fmt::format("[[ethernet]]\n{}", pieces));
  ASSERT_TRUE(setup) << setup.error().message;
  ASSERT_TRUE(setup->price);
  EXPECT_EQ(setup->price->amount, 6 * 10 + (6 + 8) * 100 + 10 * 1000);
  EXPECT_EQ(setup->price->watts, 6 * 1 + (6 + 8) * 2 + 10 * 4);
}

TEST_F(Prices, InfiniBandHasItsOwn) {
  const std::string list = fmt::format("[[ethernet]]\n{0}[[infiniband]]\n{0}", pieces);
  auto setup = built(list + "", "infiniband");
  ASSERT_TRUE(setup) << setup.error().message;
  auto without = built(fmt::format("[[ethernet]]\n{}", pieces), "infiniband");
  ASSERT_FALSE(without);
  EXPECT_NE(without.error().message.find("no [[infiniband]] of rate 100 Gbps"), std::string::npos)
      << without.error().message;
}

TEST_F(Prices, WhatIsMissingIsNamed) {
  EXPECT_NE(error_of("[[ethernet]]\nrate = \"100Gbps\"\nadapter = 1\n").find("adapter_watts"),
            std::string::npos);
  EXPECT_NE(error_of("[[ethernet]]\nadapter = 1\n").find("rate"), std::string::npos);
  EXPECT_NE(error_of(fmt::format("[[ethernet]]\n{0}[[ethernet]]\n{0}", pieces)).find("twice"),
            std::string::npos);
  EXPECT_NE(error_of(fmt::format("[[ethernet]]\n{}", pieces), "400Gbps").find("400 Gbps"),
            std::string::npos);
  EXPECT_NE(error_of("colour = 3\n").find("list.toml:1: colour"), std::string::npos)
      << error_of("colour = 3\n");
}

TEST_F(Prices, SettingsNameAllKeysThatWereGiven) {
  auto scenario = Scenario::parse(
      "[topology]\nkind = \"single-switch\"\nhosts = 4\n[traffic]\npattern = \"permutation\"\n"
      "[[variant]]\nname = \"a\"\ntopology.hosts = 8\n",
      "s.toml", "", {"traffic.bytes = \"5KB\""});
  ASSERT_TRUE(scenario);
  const std::string settings = scenario->settings(0);
  EXPECT_NE(settings.find("hosts = 8"), std::string::npos) << settings;
  EXPECT_EQ(settings.find("hosts = 4"), std::string::npos) << settings;
  EXPECT_NE(settings.find("bytes = "), std::string::npos) << settings;
  EXPECT_NE(settings.find("pattern = "), std::string::npos) << settings;
}

}  // namespace
}  // namespace tulle::scenario
