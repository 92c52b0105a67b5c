// Runs that show and write what came of them: one scenario, a comparison, and a gallery.

#include "study/present.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "base/folder_test.h"
#include "study/compare.h"
#include "study/fake_points_test.h"
#include "study/gallery.h"
#include "study/report/columns.h"
#include "study/report/results.h"
#include "study/scenarios.h"

namespace tulle::study {
namespace {

constexpr char small[] = R"(title = "Small"
[topology]
kind = "single-switch"
hosts = 4
link_rate = "100Gbps"
[host]
recovery = "selective-repeat"
[traffic]
pattern = "incast"
senders = 3
bytes = "16KB"
)";

scenario::Scenario small_scenario() {
  auto scenario = scenario::Scenario::parse(small, "small.toml", "", {});
  EXPECT_TRUE(scenario) << scenario.error().message;
  return std::move(*scenario);
}

class PresentTest : public testing::Test {
 protected:
  Result<std::optional<report::Results>> run(PresentOptions options) {
    options.what = "variant";
    options.text = [](const report::Results& results) {
      return report::summary_table(results.outcomes);
    };
    const std::vector<std::size_t> all = {0};
    return present(std::move(options), small_scenario(), all, monitor,
                   [this](const std::string& text) {
                     printed.push_back(text);
                     return is_full ? Result<void>(Error{"the disk is full"}) : Result<void>();
                   });
  }

  Folder folder;
  FakeMonitor monitor;
  std::vector<std::string> printed;
  bool is_full = false;
};

// A page has the settings of each variant.
TEST_F(PresentTest, SettingsTooLargeForAPageAreRefused) {
  std::string text = std::string(small) + "hosts = \"0-3" + std::string(1 << 20, ' ') + "\"\n";
  for (int i = 0; i < 100; ++i) text += "[[variant]]\nname = \"v" + std::to_string(i) + "\"\n";
  auto scenario = scenario::Scenario::parse(text, "large.toml", "", {});
  ASSERT_TRUE(scenario) << scenario.error().message;
  std::vector<std::size_t> all(100);
  std::iota(all.begin(), all.end(), 0);
  PresentOptions options;
  options.what = "variant";
  options.text = [](const report::Results&) { return std::string(); };
  const auto print = [](const std::string&) { return Result<void>(); };
  options.folder = folder.path();
  const auto refused = present(options, *scenario, all, monitor, print);
  ASSERT_FALSE(refused);
  EXPECT_TRUE(refused.error().is_misuse);
  EXPECT_EQ(refused.error().message,
            "large.toml: the settings of 100 variants take more than 64 MiB, which results keep: "
            "choose fewer variants, or shorten the keys that all of them have");
  options.folder.clear();
  EXPECT_TRUE(present(options, *scenario, std::span(all).first(1), monitor, print));
}

TEST_F(PresentTest, ResultsArePrintedAndWritten) {
  PresentOptions options;
  options.folder = folder.path();
  options.timings = folder.path("timings.json");
  auto results = run(std::move(options));
  ASSERT_TRUE(results) << results.error().message;
  ASSERT_TRUE(*results);
  ASSERT_EQ(printed.size(), 1u);
  EXPECT_EQ(printed[0], report::summary_table((*results)->outcomes));
  EXPECT_NE(folder.read("summary.json"), "");
  EXPECT_NE(folder.read("timings.json").find("\"peak_bytes\""), std::string::npos);
  EXPECT_EQ(unfinished_text((*results)->outcomes), "");
}

TEST_F(PresentTest, AFlowLevelHasANote) {
  PresentOptions options;
  options.simulating.level = Level::flow;
  options.simulating.is_unvalidated = true;
  auto results = run(std::move(options));
  ASSERT_TRUE(results) << results.error().message;
  EXPECT_EQ(printed.size(), 2u);
}

TEST_F(PresentTest, WhatCannotBePrintedFails) {
  is_full = true;
  EXPECT_FALSE(run({}));
}

// Pages without pictures: the monitor remembers what it was told.
class FakePages final : public GalleryMonitor {
 public:
  std::unique_ptr<Monitor> begin_page(const scenario::Scenario& scenario, std::size_t index,
                                      std::size_t pages) override {
    events.push_back(scenario.name() + " " + std::to_string(index + 1) + "/" +
                     std::to_string(pages));
    return std::make_unique<Monitor>();
  }
  void fail(const Error& error) override { events.push_back(error.message); }

  std::vector<std::string> events;
};

TEST_F(PresentTest, AGalleryHasAPageForEachScenario) {
  folder.write("small.toml", small);
  const std::vector<std::string> names = {folder.path("small.toml")};
  auto scenarios = read_gallery(names, {}, {});
  ASSERT_TRUE(scenarios) << scenarios.error().message;
  FakePages pages;
  auto written = write_gallery({folder.path(), false, 1}, *scenarios, pages);
  ASSERT_TRUE(written) << written.error().message;
  EXPECT_EQ(pages.events, std::vector<std::string>{"small 1/1"});
  EXPECT_NE(folder.read("small.md"), "");
  EXPECT_NE(folder.read("README.md").find("small"), std::string::npos);
}

TEST(Compare, EachJobHasItsGpus) {
  CompareChoice choice;
  choice.workloads = {"allreduce:1MiB", "alltoall:1MiB"};
  choice.gpus = {8};
  auto scenario = comparison(choice, {}, scenario::as_member);
  ASSERT_FALSE(scenario);
  EXPECT_TRUE(scenario.error().is_misuse);
}

TEST(Compare, FabricsThatGoWithOnePlaneAreLeftOut) {
  scenario::Fabric one;
  one.name = "one";
  one.by_default = true;
  CompareChoice choice;
  EXPECT_TRUE(left_out(choice, {one}).empty());
  choice.workload.planes = 2;
  choice.fabrics = "one";
  EXPECT_TRUE(left_out(choice, {one}).empty()) << "it was asked for";
}

}  // namespace
}  // namespace tulle::study
