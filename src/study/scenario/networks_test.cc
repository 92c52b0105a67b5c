// Topologies of several networks: keys, and what they do not go with.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "base/folder_test.h"
#include "study/scenario/fabrics.h"
#include "study/scenario/scenario.h"
#include "study/scenario/setup.h"
#include "study/scenario/workloads.h"

namespace tulle::scenario {
namespace {

// GoogleTest has a type called Setup.
using NetworksSetup = Setup;

Result<NetworksSetup> setup_of(const std::string& text, const std::string& folder = "") {
  auto scenario = Scenario::parse(text, "s.toml", folder, {});
  if (!scenario) return scenario.error();
  return scenario->build(0);
}

// Returns the error without its place.
std::string error_of(const std::string& text, const std::string& folder = "") {
  auto setup = setup_of(text, folder);
  if (setup) return "";
  const std::string& message = setup.error().message;
  return message.substr(message.find(": ") + 2);
}

constexpr const char* rails = "[topology]\nkind = \"rail-only\"\nservers = 2\nrails = 4\n";
std::string all_to_all(const std::string& servers) {
  return fmt::format(
      "[traffic]\npattern = \"collective\"\ncollective = \"all-to-all\"\nbytes = \"1MiB\"\nservers "
      "= {{ {} }}\n",
      servers);
}

TEST(Networks, RailOnlyTakesRelaysByItself) {
  auto setup = setup_of(rails + all_to_all("gpus = 4, adapters = 4"));
  ASSERT_TRUE(setup) << setup.error().message;
  EXPECT_EQ(setup->topology.separate_rails(), 4u);
  EXPECT_TRUE(setup->jobs.at(0).servers.relays);
  for (const workload::Flow& flow : setup->flows) EXPECT_EQ(flow.source % 4, flow.destination % 4);
  auto joined = setup_of("[topology]\nkind = \"rail-optimised\"\nservers = 2\nrails = 4\n" +
                         all_to_all("gpus = 4, adapters = 4"));
  ASSERT_TRUE(joined) << joined.error().message;
  EXPECT_FALSE(joined->jobs.at(0).servers.relays);
}

TEST(Networks, WhatRailsCannotDoIsRefused) {
  EXPECT_EQ(error_of(rails + all_to_all("gpus = 4, adapters = 4, across_rails = \"network\"")),
            "traffic.collective: GPU 3 sends to GPU 4, which is on another rail, and the rails of "
            "this topology are separate; take servers.across_rails = \"scale-up\"");
  EXPECT_EQ(error_of(rails + all_to_all("gpus = 2, adapters = 2")),
            "traffic.servers.adapters: must be 4, the rails of this topology, which are separate: "
            "each has an adapter of each server");
  EXPECT_EQ(error_of("[topology]\nhosts = 2\n" +
                     all_to_all("gpus = 1, adapters = 1, across_rails = \"scale-up\"")),
            "traffic.servers.across_rails: \"scale-up\" goes with servers of several adapters");
  EXPECT_EQ(error_of(rails + all_to_all("gpus = 4, adapters = 4, relay_chunk = \"0B\"")),
            "traffic.servers.relay_chunk: must be 1B or more");
  EXPECT_EQ(error_of(std::string(rails) + "[traffic]\npattern = \"shift\"\n"),
            "traffic.pattern: host 0 sends to host 1, which is on another rail, and the rails of "
            "this topology are separate; take hosts of one rail, or \"rail-optimised\"");
  EXPECT_EQ(error_of(std::string(rails) + "[traffic]\npattern = \"shift\"\ndistance = 4\n"), "");
  EXPECT_EQ(error_of(std::string(rails) +
                     "[traffic]\npattern = \"ring-all-reduce\"\nrails = 4\nbytes = \"1MB\"\n"),
            "");
}

TEST(Networks, ARingNeedsNoRelays) {
  EXPECT_EQ(error_of(std::string(rails) +
                     "[traffic]\npattern = \"collective\"\nalgorithm = \"ring\"\nservers = { gpus "
                     "= 4, adapters = 4, across_rails = \"network\" }\n"),
            "");
}

TEST(Networks, SwitchesOfEachRailReduce) {
  EXPECT_EQ(error_of(std::string(rails) +
                     "[traffic]\npattern = \"collective\"\nalgorithm = \"in-network\"\nservers = { "
                     "gpus = 4, adapters = 4 }\n[fabric]\nkind = \"infiniband\"\naggregation = "
                     "true\n"),
            "");
}

TEST(Networks, PlanesDealMessages) {
  const std::string planes = "[topology]\nhosts = 3\nplanes = 4\n[traffic]\npattern = ";
  auto setup = setup_of(planes + "\"shift\"\nbytes = \"1MB\"\n");
  ASSERT_TRUE(setup) << setup.error().message;
  EXPECT_EQ(setup->topology.hosts, 12u);
  EXPECT_EQ(setup->flows.size(), 12u);
  EXPECT_EQ(setup->first_parts, (std::vector<std::uint32_t>{0, 4, 8, 12}));
  setup = setup_of(planes + "\"shift\"\nbytes = \"1MB\"\nplane = \"flow\"\n");
  ASSERT_TRUE(setup) << setup.error().message;
  EXPECT_EQ(setup->flows.size(), 3u);
  setup = setup_of(planes + "\"collective\"\nbytes = \"1MB\"\n");
  ASSERT_TRUE(setup) << setup.error().message;
  EXPECT_EQ(setup->jobs.at(0).servers.ranks(), 3u);
  EXPECT_EQ(setup->first_parts.size() - 1, setup->flows.size() / 4);
}

// Poisson's load is a share of what an adapter has in all planes.
TEST(Networks, ALoadIsOfAllPlanes) {
  const auto bytes = [](const std::string& planes) {
    auto setup = setup_of("[topology]\nhosts = 4\n" + planes +
                          "[traffic]\npattern = \"poisson\"\nsizes = \"fixed\"\nbytes = "
                          "\"100KB\"\nduration = \"10ms\"\n");
    EXPECT_TRUE(setup) << setup.error().message;
    double sum = 0;
    for (const workload::Flow& flow : setup->flows) sum += static_cast<double>(flow.bytes);
    return sum;
  };
  EXPECT_EQ(bytes("planes = 4\nlink_rate = \"100Gbps\"\n"), bytes("link_rate = \"400Gbps\"\n"));
}

TEST(Networks, WhatPlanesCannotDoIsRefused) {
  const auto error = [](const std::string& topology, const std::string& rest) {
    return error_of("[topology]\nplanes = 2\n" + topology + "[traffic]\n" + rest);
  };
  EXPECT_EQ(error("kind = \"torus\"\n", ""),
            "topology.planes: goes with networks of tiers, and not with \"torus\"");
  EXPECT_EQ(error("kind = \"dragonfly\"\n", ""),
            "topology.planes: goes with networks of tiers, and not with \"dragonfly\"");
  EXPECT_EQ(error("hosts = 4\n", "queue_pairs = 2\n"),
            "traffic.queue_pairs: goes with one plane; in planes each part has a queue pair");
  EXPECT_EQ(error("hosts = 4\n", "[host.kernel]\n"),
            "host.kernel: goes with one plane (topology.planes): a host's cores serve one port");
  EXPECT_EQ(error("hosts = 4\n",
                  "[fabric]\nkind = \"infiniband\"\n[[partition]]\npkey = 1\nfull = \"0\"\n"),
            "partition: goes with one plane");
  EXPECT_EQ(error("hosts = 4\n",
                  "pattern = \"collective\"\nalgorithm = \"in-network\"\n[fabric]\nkind = "
                  "\"infiniband\"\naggregation = true\n"),
            "traffic.algorithm: goes with one plane, since the parts of a message go by several; "
            "take another algorithm");
  EXPECT_EQ(error_of("[topology]\nhosts = 4\n[traffic]\nplane = \"flow\"\n"),
            "traffic.plane: \"flow\" goes with topology.planes of 2 or more");
  EXPECT_NE(error_of("[topology]\nhosts = 4\nplanes = 17\n[traffic]\n"), "");
}

// An adapter is one piece at the rate of all its planes, and has a cable in each.
TEST(Networks, PricesCountAnAdapterOnce) {
  Folder folder;
  const auto list = [](const char* rate, int adapter) {
    return fmt::format(
        "[[ethernet]]\nrate = \"{}\"\nadapter = {}\nadapter_watts = 0\nswitch_port = 100\n"
        "switch_port_watts = 0\ncable = 1000\ncable_watts = 0\n",
        rate, adapter);
  };
  folder.write("both.toml", list("100Gbps", 1) + list("400Gbps", 7));
  folder.write("one.toml", list("100Gbps", 1));
  const auto text = [](const char* file) {
    return fmt::format(
        "prices = \"{}\"\n[topology]\nhosts = 3\nplanes = 4\nlink_rate = "
        "\"100Gbps\"\n[traffic]\n",
        file);
  };
  auto setup = setup_of(text("both.toml"), folder.path());
  ASSERT_TRUE(setup) << setup.error().message;
  EXPECT_EQ(setup->price->amount, 3 * 7 + 12 * 100 + 12 * 1'000);
  EXPECT_NE(error_of(text("one.toml"), folder.path()).find("there is no [[ethernet]] of rate 400"),
            std::string::npos);
}

WorkloadOptions options_of(const char* workload) {
  WorkloadOptions options;
  options.workload = workload;
  return options;
}

// Returns the folder of a profile of servers.
std::string with_servers(const Folder& folder) {
  folder.write("profiles/servers/dgx-h100.toml", "title = \"T\"\ngpus = 8\nadapters = 8\n");
  return folder.path();
}

std::string said(const WorkloadOptions& options) {
  const Folder folder;
  auto scenario = workload_scenario(options, with_servers(folder));
  if (!scenario) return scenario.error().message;
  auto setup = scenario->build(0);
  return setup ? "" : setup.error().message;
}

TEST(Networks, AComparisonHasRailsAndPlanes) {
  WorkloadOptions options = options_of("alltoall:1MiB");
  options.gpus = 16;
  options.topology = "rail-only";
  options.planes = 4;
  const Folder folder;
  auto scenario = workload_scenario(options, with_servers(folder));
  ASSERT_TRUE(scenario) << scenario.error().message;
  EXPECT_EQ(scenario->title(),
            "An all-to-all, 1MiB: 16 GPUs in 2 servers (dgx-h100), 8 adapters of 400Gbps by 4 "
            "planes each, rails apart");
  auto setup = scenario->build(0);
  ASSERT_TRUE(setup) << setup.error().message;
  EXPECT_EQ(setup->topology.networks, 32u);
  EXPECT_EQ(setup->topology.links[0].bits_per_second, 100'000'000'000);
  options = options_of("permutation");
  options.planes = 2;
  options.hosts = 16;
  EXPECT_EQ(said(options), "");
}

TEST(Networks, AComparisonRefusesOtherRailsAndPlanes) {
  WorkloadOptions options = options_of("alltoall:1MiB");
  options.topology = "torus";
  EXPECT_EQ(said(options), "topology: a job's is rail-optimised or rail-only, and not \"torus\"");
  options.topology = "";
  options.planes = 17;
  EXPECT_EQ(said(options), "planes: must be 1 to 16");
  options.planes = 3;
  options.link_rate = "1bps";
  EXPECT_EQ(said(options), "planes: 1bps cannot be split over 3 planes evenly");
  options = options_of("s.toml");
  options.planes = 2;
  EXPECT_EQ(said(options), "planes: goes with a named workload; change a file's with set");
}

}  // namespace
}  // namespace tulle::scenario
