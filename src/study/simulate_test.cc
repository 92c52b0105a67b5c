// Campaigns of small scenarios, as a caller of the library runs them.

#include "study/simulate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/folder_test.h"
#include "study/digest.h"
#include "study/fake_points_test.h"
#include "study/ranks.h"
#include "study/scenarios.h"

namespace tulle::study {
namespace {

constexpr char two_variants[] = R"(title = "Two"
[topology]
kind = "single-switch"
hosts = 4
link_rate = "100Gbps"
[traffic]
pattern = "incast"
senders = 3
bytes = "16KB"
[[variant]]
name = "one"
[[variant]]
name = "other"
traffic.bytes = "32KB"
)";

scenario::Scenario scenario_of(const std::string& text) {
  auto scenario = scenario::Scenario::parse(text, "test", "", {});
  EXPECT_TRUE(scenario) << scenario.error().message;
  return std::move(*scenario);
}

Result<report::Results> run(const scenario::Scenario& scenario, FakeMonitor& monitor,
                            const SimulateOptions& options = {}) {
  std::vector<std::size_t> all(scenario.variants().size());
  std::iota(all.begin(), all.end(), 0);
  Timings timings;
  return simulate(options, scenario, all, monitor, timings);
}

TEST(Simulate, TellsItsMonitorOnceThatAllIsReady) {
  FakeMonitor monitor;
  auto results = run(scenario_of(two_variants), monitor);
  ASSERT_TRUE(results);
  ASSERT_EQ(results->outcomes.size(), 2u);
  EXPECT_EQ(results->outcomes[1].variant, "other");
  EXPECT_EQ(results->outcomes[1].flows.size(), 3u);
  EXPECT_EQ(monitor.events, (std::vector<std::string>{"ready", "begin one", "begin other"}));
}

TEST(Simulate, RefusesALaterVariantBeforeTheFirstRuns) {
  FakeMonitor monitor;
  const std::string text = std::string(two_variants) + "traffic.senders = 40\n";
  auto results = run(scenario_of(text), monitor);
  ASSERT_FALSE(results);
  EXPECT_TRUE(results.error().is_misuse) << results.error().message;
  EXPECT_TRUE(monitor.events.empty());
}

TEST(Simulate, BeginsNothingOnceItIsToEnd) {
  FakeMonitor monitor;
  monitor.continues = false;
  auto results = run(scenario_of(two_variants), monitor);
  ASSERT_TRUE(results);
  EXPECT_TRUE(results->outcomes.empty());
}

TEST(Simulate, SaysWhyFewerThreadsSimulate) {
  FakeMonitor monitor;
  SimulateOptions options;
  options.threads = 64;
  ASSERT_TRUE(run(scenario_of(two_variants), monitor, options));
  EXPECT_EQ(std::ranges::count_if(monitor.events,
                                  [](const std::string& event) {
                                    return event.starts_with("note one is simulated by ") ||
                                           event.starts_with("note other is simulated by ");
                                  }),
            2);
}

TEST(Simulate, TheFlowLevelRefusesWhatOnlyPacketsHave) {
  FakeMonitor monitor;
  SimulateOptions options;
  options.level = Level::flow;
  options.is_unvalidated = true;
  const std::string bounded = std::string("host.recovery = \"selective-repeat\"\n") + two_variants;
  auto results = run(scenario_of(bounded), monitor, options);
  ASSERT_TRUE(results) << results.error().message;
  EXPECT_EQ(results->outcomes.size(), 2u);
  FakeMonitor of_refused;
  const auto refused = run(scenario_of(two_variants), of_refused, options);
  ASSERT_FALSE(refused);
  EXPECT_TRUE(refused.error().message.starts_with("one: the flow level does not model"))
      << refused.error().message;
  EXPECT_TRUE(of_refused.events.empty());
}

TEST(Simulate, WritesAFolderForEachVariant) {
  const Folder folder;
  FakeMonitor monitor;
  const auto scenario = scenario_of(two_variants);
  SimulateOptions options;
  options.timeline = true;
  auto results = run(scenario, monitor, options);
  ASSERT_TRUE(results);
  const std::vector<std::size_t> all = {0, 1};
  ASSERT_TRUE(write_results(folder.path(), scenario, all, *results, {"variant", "again", true}));
  EXPECT_FALSE(folder.read("summary.json").empty());
  EXPECT_FALSE(folder.read("one/flows.csv").empty());
  EXPECT_FALSE(folder.read("other.pftrace").empty());
  EXPECT_NE(folder.read("report.html").find("again"), std::string::npos);
  EXPECT_TRUE(prepare_results(folder.path(), ResultsOf::run, monitor));
  EXPECT_EQ(monitor.events.back(),
            "note replacing the results of an earlier run in " + folder.path());
  const auto refused = prepare_results(folder.path(), ResultsOf::sweep, monitor);
  ASSERT_FALSE(refused);
  EXPECT_TRUE(refused.error().is_misuse);
}

// Another user may own the folder, and write there what leads elsewhere.
TEST(ResultsFolder, NothingOutsideOfItIsRemoved) {
  const Folder folder;
  folder.write("private/flows.csv", "kept");
  folder.write("out/summary.json",
               R"({"scenario":"x","title":"y","variants":[{"variant":"alpha"},{"variant":".."}]})");
  std::filesystem::create_symlink("../private", folder.path("out/alpha"));
  auto out = OutputFolder::open(folder.path("out"));
  ASSERT_TRUE(out);
  remove_run(*out);
  EXPECT_EQ(folder.read("private/flows.csv"), "kept");
  EXPECT_FALSE(std::filesystem::exists(folder.path("out/summary.json")));
  FakeMonitor monitor;
  const auto prepared = prepare_results(folder.path("out"), ResultsOf::run, monitor);
  ASSERT_FALSE(prepared) << "a link is no result";
  EXPECT_TRUE(prepared.error().is_misuse);
}

TEST(Points, TheirFolderIsNoLink) {
  const Folder folder;
  folder.write("s.toml", two_variants);
  folder.write("private/a.part", "kept");
  folder.write("out/sweep.csv", "");
  std::filesystem::create_symlink("../private", folder.path("out/points"));
  FakeMonitor monitor;
  Points points({folder.path("s.toml"), {}, "", folder.path("out")}, monitor);
  const auto opened = points.open();
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().message.find("is a link"), std::string::npos) << opened.error().message;
  EXPECT_EQ(folder.read("private/a.part"), "kept");
}

// A stored point names the files that it depends on, and anybody may have written it.
TEST(Points, WhatAStoredPointNamesIsReadWithinBounds) {
  const Folder folder;
  folder.write("s.toml", two_variants);
  FakeMonitor monitor;
  const PointsOptions options{folder.path("s.toml"), {}, "", folder.path("out")};
  {
    Points points(options, monitor);
    ASSERT_TRUE(points.open());
    ASSERT_TRUE(points.add("p", {}));
    points.simulate([](std::size_t) {});
    ASSERT_EQ(points.done(), 1u) << points[0].failure;
  }
  const auto file = std::filesystem::directory_iterator(folder.path("out/points"))->path();
  auto stored = nlohmann::json::parse(std::ifstream(file));
  for (const char* hostile : {"/dev/zero", "/proc/kmsg", "/proc/self/mem"}) {
    stored["files"] = {{hostile, "0"}};
    std::ofstream(file) << stored.dump();
    Points points(options, monitor);
    ASSERT_TRUE(points.open());
    ASSERT_TRUE(points.add("p", {}));
    EXPECT_EQ(points.done(), 0u) << hostile;
  }
  // Many names of one file of 200 MiB, which takes no room.
  folder.write("big", "");
  std::filesystem::resize_file(folder.path("big"), std::uintmax_t{200} << 20);
  stored["files"] = nlohmann::json::object();
  std::string path = folder.path("big");
  const std::string digest = digest_of_file(path);
  for (int i = 0; i < 200; ++i) stored["files"][path.insert(1, "./")] = digest;
  std::ofstream(file) << stored.dump();
  const auto began = std::clock();
  Points points(options, monitor);
  ASSERT_TRUE(points.open());
  ASSERT_TRUE(points.add("p", {}));
  EXPECT_LT(std::clock() - began, 20 * CLOCKS_PER_SEC) << "it is read once";
}

TEST(Scenarios, VariantsAreFoundByName) {
  const auto scenario = scenario_of(two_variants);
  EXPECT_EQ(wanted_variants(scenario, ""), (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(wanted_variants(scenario, "other"), (std::vector<std::size_t>{1}));
  EXPECT_TRUE(wanted_variants(scenario, "othr").empty());
  EXPECT_NE(no_such_variant(scenario, "othr").find("did you mean other?"), std::string::npos);
}

TEST(Ranks, OneProcessAgreesWithItself) {
  EXPECT_TRUE(is_first(nullptr));
  EXPECT_TRUE(agree(nullptr, {}));
  EXPECT_EQ(agree(nullptr, Error{"x"}).error().message, "x");
  EXPECT_TRUE(check_alike(nullptr, "file", "text"));
  EXPECT_EQ(other_than_first({"a", "a", "b"}), 2u);
  EXPECT_EQ(other_than_first({"a", "a"}), std::nullopt);
}

}  // namespace
}  // namespace tulle::study
