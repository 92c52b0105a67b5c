#include "study/scenario/fabrics.h"
#include "study/scenario/workloads.h"

#include <gtest/gtest.h>

#include "base/folder_test.h"

namespace tulle::scenario {
namespace {

class Fabrics : public testing::Test {
 protected:
  void SetUp() override {
    folder.write("fabrics/lossless.toml",
                 "title = \"L\"\nsources = \"S\"\ndefault = true\n[host]\nprofile = \"slow\"\n");
    folder.write("fabrics/lossless-b.toml", "title = \"B\"\n[fabric]\nkind = \"infiniband\"\n");
    folder.write("fabrics/lossy.toml", "title = \"Y\"\n[fabric]\nflow_control = \"none\"\n");
    folder.write("profiles/hosts/slow.toml", "title = \"slow\"\n[send]\ndoorbell = \"7us\"\n");
  }
  std::vector<Fabric> all() const {
    auto fabrics = read_fabrics(folder.path("fabrics"));
    EXPECT_TRUE(fabrics) << fabrics.error().message;
    return fabrics ? *fabrics : std::vector<Fabric>{};
  }
  std::string chosen(const std::string& names) const {
    auto fabrics = choose_fabrics(all(), names);
    if (!fabrics) return fabrics.error().message;
    std::string text;
    for (const Fabric& fabric : *fabrics) text += fabric.name + " ";
    return text;
  }
  // Returns the error about a fabric's file, from reading or building it.
  std::string wrong(const std::string& text) const {
    folder.write("fabrics/new.toml", text);
    auto fabrics = read_fabrics(folder.path("fabrics"));
    if (!fabrics) return fabrics.error().message;
    auto scenario = workload_scenario(incast(), "");
    auto setup = scenario->on_fabrics(*choose_fabrics(*fabrics, "new")).build(0);
    return setup ? "" : setup.error().message;
  }
  static WorkloadOptions incast() {
    WorkloadOptions options;
    options.workload = "incast";
    options.hosts = 4;
    return options;
  }

  Folder folder;
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(Fabrics, AFileIsAFabric) {
  const std::vector<Fabric> fabrics = all();
  ASSERT_EQ(fabrics.size(), 3u);
  EXPECT_EQ(fabrics[0].name, "lossless");
  EXPECT_EQ(fabrics[0].title, "L");
  EXPECT_EQ(fabrics[0].sources, "S");
  EXPECT_TRUE(fabrics[0].by_default);
  EXPECT_EQ(fabrics[1].name, "lossless-b");
  EXPECT_FALSE(fabrics[1].by_default);
}

TEST_F(Fabrics, AreChosenByName) {
  EXPECT_EQ(chosen(""), "lossless ");
  EXPECT_EQ(chosen("all"), "lossless lossless-b lossy ");
  EXPECT_EQ(chosen("lossy, lossless"), "lossy lossless ");
  EXPECT_EQ(chosen("loss"),
            "no fabric \"loss\"; did you mean lossy? The fabrics are lossless, lossless-b, "
            "lossy, and all");
  EXPECT_EQ(chosen("other"),
            "no fabric \"other\"; the fabrics are lossless, lossless-b, lossy, and all");
  folder.write("mine.toml", "title = \"Mine\"\n[fabric]\nkind = \"roce\"\n");
  EXPECT_EQ(chosen("lossy," + folder.path("mine.toml")), "lossy mine ");
  EXPECT_TRUE(contains(chosen(folder.path("yours.toml")), "there is no file "));
  EXPECT_EQ(chosen("lossy,lossy"), "lossy is there twice");
}

TEST_F(Fabrics, MistakesAreToldWithTheirPlace) {
  EXPECT_TRUE(contains(wrong("[fabric]\n"), "new.toml: title: is needed"));
  EXPECT_TRUE(
      contains(wrong("title = \"T\"\n[traffic]\n"), "new.toml:2: traffic: is not a known key"));
  EXPECT_TRUE(
      contains(wrong("title = \"T\"\nfabric = 3\n"), "new.toml:2: fabric: must be a table"));
  EXPECT_TRUE(contains(wrong("title = \n"), "new.toml:1: "));
  EXPECT_TRUE(contains(wrong("title = \"T\"\n[host]\nmtu = 7\n"), "new.toml:3: host.mtu: "));
  EXPECT_TRUE(contains(wrong("title = \"T\"\n[host]\nprofile = \"none\"\n"),
                       "there is no profile \"none\" in "));
  auto nowhere = read_fabrics(folder.path("nowhere"));
  ASSERT_FALSE(nowhere);
  EXPECT_TRUE(contains(nowhere.error().message, "nowhere: there are no fabrics"));
}

TEST_F(Fabrics, TheSameTrafficOnEach) {
  WorkloadOptions options;
  options.workload = "permutation";
  options.hosts = 16;
  options.seed = 3;
  options.set = {"host.mtu = 1024"};
  auto scenario = workload_scenario(options, "");
  ASSERT_TRUE(scenario) << scenario.error().message;
  const Scenario compared = scenario->on_fabrics(all());
  ASSERT_EQ(compared.variants().size(), 3u);
  auto lossless = compared.build(0);
  auto infiniband = compared.build(1);
  auto lossy = compared.build(2);
  ASSERT_TRUE(lossless && infiniband && lossy);
  EXPECT_EQ(lossless->variant, "lossless");
  EXPECT_EQ(infiniband->network.link_layer, sim::LinkLayer::infiniband);
  EXPECT_EQ(lossless->network.link_layer, sim::LinkLayer::ethernet);
  EXPECT_EQ(lossy->network.switches.flow_control, port::FlowControl::none);
  EXPECT_EQ(lossless->player.post_delay, Time::microseconds(7)) << "of the fabric's own profile";
  ASSERT_EQ(lossless->flows.size(), 16u);
  for (const scenario::Setup* setup : {&*lossless, &*infiniband, &*lossy}) {
    EXPECT_EQ(setup->network.seed, 3u);
    EXPECT_EQ(setup->network.host.mtu_bytes, 1024u);
    for (std::size_t i = 0; i < 16; ++i) {
      EXPECT_EQ(setup->flows[i].source, lossless->flows[i].source);
      EXPECT_EQ(setup->flows[i].destination, lossless->flows[i].destination);
      EXPECT_EQ(setup->flows[i].bytes, lossless->flows[i].bytes);
      EXPECT_EQ(setup->flows[i].start, lossless->flows[i].start);
    }
  }
}

TEST_F(Fabrics, OfAScenarioTrafficAndTopologyCount) {
  folder.write("s.toml",
               "title = \"T\"\n[topology]\nhosts = 3\n[traffic]\nbytes = \"7KB\"\n"
               "[fabric]\nkind = \"infiniband\"\n[host]\nmtu = 256\n[[variant]]\nname = \"v\"\n"
               "traffic.bytes = \"1KB\"\n");
  WorkloadOptions options;
  options.workload = folder.path("s.toml");
  auto scenario = workload_scenario(options, "");
  ASSERT_TRUE(scenario) << scenario.error().message;
  auto setup = scenario->on_fabrics({all()[2]}).build(0);
  ASSERT_TRUE(setup) << setup.error().message;
  EXPECT_EQ(setup->flows.size(), 3u);
  EXPECT_EQ(setup->flows[0].bytes, 7'000u);
  EXPECT_EQ(setup->network.link_layer, sim::LinkLayer::ethernet);
  EXPECT_EQ(setup->network.host.mtu_bytes, 4'096u);
}

TEST_F(Fabrics, WorkloadsAreAskedForRightly) {
  const auto said = [&](auto change) {
    WorkloadOptions options = incast();
    change(options);
    auto scenario = workload_scenario(options, "");
    if (!scenario) return scenario.error().message;
    auto setup = scenario->build(0);
    return setup ? std::string() : setup.error().message;
  };
  EXPECT_EQ(said([](auto&) {}), "");
  EXPECT_EQ(said([](auto& o) { o.hosts = 11; }),
            "hosts: 11 cannot be dealt over leaf switches evenly; take 10 or 12");
  EXPECT_EQ(said([](auto& o) { o.hosts = 1; }), "hosts: must be 2 to 65536");
  EXPECT_EQ(said([](auto& o) { o.bytes = "1Gbps"; }).find("bytes: must be an amount such as"), 0u);
  EXPECT_EQ(said([](auto& o) { o.link_rate = "1MB"; }).find("link_rate: must be a rate such"), 0u);
  EXPECT_EQ(said([](auto& o) { o.workload = "web-search", o.bytes = "1MB"; }),
            "bytes: web-search draws its sizes");
  EXPECT_EQ(said([](auto& o) { o.topology = "l.csv"; }).find("topology: goes with a table"), 0u);
  EXPECT_EQ(said([](auto& o) {
              o.workload = "outcast";
            }).find("workload: no workload \"outcast\"; the workloads are incast, permutation, "),
            0u);
  EXPECT_EQ(said([](auto& o) { o.workload = "a\nb"; }).find("workload: no workload \"a?b\";"), 0u);
  EXPECT_EQ(said([](auto& o) { o.workload = "x.toml"; }).find("hosts: goes with a named"), 0u);
  EXPECT_TRUE(contains(said([](auto& o) { o.workload = "nowhere.toml", o.hosts = {}; }),
                       "workload: there is no file \"nowhere.toml\" in the current folder"));
  EXPECT_EQ(said([](auto& o) { o.workload = "f.csv", o.hosts = {}; }),
            "workload f.csv: a table of flows needs topology, a table of links");
  EXPECT_EQ(said([](auto& o) {
              o.workload = "f.csv";
              o.topology = "l\xE6.csv", o.hosts = {};
            }).find("topology: the name \"l?.csv\" is not UTF-8"),
            0u);
  EXPECT_TRUE(contains(said([](auto& o) { o.workload = "t\xE6.goal", o.hosts = {}; }),
                       "t?.goal\" is not UTF-8; rename the file"));
  EXPECT_EQ(said([](auto& o) { o.prices = "p\xE6.toml"; }).find("prices: the path \""), 0u);
  EXPECT_EQ(said([](auto& o) { o.bytes = "1\xE6"; }).find("bytes: \"1?\" is not UTF-8"), 0u);
  EXPECT_NE(said([](auto& o) { o.workload = "step:\xE6", o.hosts = {}; }), "");
  EXPECT_EQ(said([](auto& o) {
              o.set = {"traffic.size = 3"};
            }).find("--set: traffic.size: is not a known key"),
            0u);
}

TEST_F(Fabrics, HostsAreDealtOverLeavesWithoutOversubscription) {
  for (const std::uint32_t hosts : {2u, 3u, 8u, 9u, 33u, 62u, 64u, 100u, 128u}) {
    WorkloadOptions options = incast();
    options.hosts = hosts;
    auto scenario = workload_scenario(options, "");
    ASSERT_TRUE(scenario) << scenario.error().message;
    auto setup = scenario->build(0);
    ASSERT_TRUE(setup) << setup.error().message;
    EXPECT_EQ(setup->topology.hosts, hosts);
    EXPECT_EQ(setup->flows.size(), hosts - 1);
    const std::size_t up = setup->topology.links.size() - hosts;
    EXPECT_TRUE(up == 0 ? hosts <= 8 : up == hosts) << "as many links up as down";
  }
}

}  // namespace
}  // namespace tulle::scenario
