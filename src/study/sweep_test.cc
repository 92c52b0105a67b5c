// A sweep's tables and its judgement, on points that cost nothing.

#include "study/sweep.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/folder_test.h"
#include "study/fake_points_test.h"

namespace tulle::study {
namespace {

scenario::Grid grid() { return *scenario::grid_of({*scenario::parse_knob("traffic.load=1,2,3")}); }

FakeResult doubled(const FakePoints::Lines& lines) {
  const double load = value_of(lines, "traffic.load").value_or(0);
  FakeResult result{{{"slowdown.p99", 2 * load}}};
  if (load == 3) result.figures.emplace_back("pauses", 7);
  return result;
}

FakeResult fails_at_2(const FakePoints::Lines& lines) {
  return value_of(lines, "traffic.load") == 2 ? FakeResult{{}, "no \"memory\",\nat all"}
                                              : doubled(lines);
}

TEST(Sweep, TablesHaveARowForEachPointAndAllFiguresOfAny) {
  FakePoints points(doubled);
  FakeMonitor monitor;
  Sweep sweep({"s.toml", ""}, grid(), points, monitor);
  ASSERT_TRUE(sweep.prepare());
  sweep.run();
  EXPECT_TRUE(sweep.check());
  EXPECT_EQ(sweep.csv(),
            "traffic.load,variant,traffic,slowdown.p99,pauses\n"
            "1,,,2.0000,\n"
            "2,,,4.0000,\n"
            "3,,,6.0000,7.0000\n");
  const auto json = nlohmann::json::parse(sweep.json());
  EXPECT_EQ(json["scenario"], "s.toml");
  ASSERT_EQ(json["points"].size(), 3u);
  EXPECT_EQ(json["points"][1]["keys"]["traffic.load"], "2");
  EXPECT_EQ(json["points"][1]["results"][0]["slowdown"]["p99"], 4.0);
  const report::Results results = sweep.results();
  EXPECT_EQ(results.outcomes[2].variant, "traffic.load=3");
  EXPECT_TRUE(monitor.shown.front().starts_with("1 of 3 points, 1 running"))
      << "of one that is over";
  EXPECT_EQ(monitor.shown.back(), "");
}

TEST(Sweep, APointThatFailsIsNamedAndTheOthersHaveResults) {
  FakePoints points(fails_at_2);
  FakeMonitor monitor;
  Sweep sweep({"s.toml", ""}, grid(), points, monitor);
  ASSERT_TRUE(sweep.prepare());
  sweep.run();
  const auto checked = sweep.check();
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().message,
            "1 of 3 points have no results; the first is traffic.load=2: no \"memory\",\nat all");
  EXPECT_FALSE(checked.error().is_misuse);
  const auto json = nlohmann::json::parse(sweep.json());
  EXPECT_EQ(json["points"][1]["failure"], "no \"memory\",\nat all");
  EXPECT_FALSE(json["points"][1].contains("results"));
  EXPECT_EQ(sweep.results().outcomes.size(), 2u);
}

TEST(Sweep, IfAllPointsAreRefusedTheyWereAskedForWrongly) {
  FakePoints points([](const auto&) { return FakeResult{{}, "must be less"}; });
  points.are_misuse = true;
  FakeMonitor monitor;
  Sweep sweep({"s.toml", ""}, grid(), points, monitor);
  ASSERT_TRUE(sweep.prepare());
  sweep.run();
  EXPECT_TRUE(sweep.check().error().is_misuse);
}

TEST(Sweep, WhatEndsItEarlyIsSaid) {
  for (const bool is_full : {false, true}) {
    FakePoints points(doubled);
    FakeMonitor monitor;
    points.before_each = [&](FakePoints& these) {
      if (these.simulated < 1) return true;
      monitor.continues = is_full;
      if (is_full) these.stopped_because = "the disk is full";
      return false;
    };
    Sweep sweep({"s.toml", ""}, grid(), points, monitor);
    ASSERT_TRUE(sweep.prepare());
    sweep.run();
    EXPECT_EQ(sweep.check().error().message,
              is_full ? "the disk is full; 1 of 3 points have results, and the same command "
                        "resumes it"
                      : "interrupted: 1 of 3 points have results, and the same command resumes it");
  }
}

TEST(Sweep, APointThatIsRefusedEndsItBeforeItBegins) {
  FakePoints points(doubled);
  points.refuses = [](const auto& lines) { return value_of(lines, "traffic.load") == 3; };
  FakeMonitor monitor;
  Sweep sweep({"s.toml", ""}, grid(), points, monitor);
  EXPECT_EQ(sweep.prepare().error().message, "it is refused");
  EXPECT_EQ(points.simulated, 0u);
}

TEST(Sweep, APageIsWrittenOnlyIfThereIsAResult) {
  const Folder folder;
  folder.write("report.html", "of another sweep");
  for (const bool has_results : {false, true}) {
    FakePoints points([&](const auto& lines) {
      return has_results ? doubled(lines) : FakeResult{{}, "no memory"};
    });
    FakeMonitor monitor;
    Sweep sweep({"s.toml", folder.path()}, grid(), points, monitor);
    ASSERT_TRUE(sweep.prepare());
    sweep.run();
    ASSERT_TRUE(sweep.write("tulle sweep"));
    EXPECT_EQ(std::filesystem::exists(folder.path("report.html")), has_results);
    EXPECT_TRUE(folder.read("sweep.csv").starts_with("traffic.load,variant,traffic"));
  }
  EXPECT_NE(folder.read("report.html").find("traffic.load=2"), std::string::npos);
}

TEST(Cells, AreQuotedWhereTheyMustBe) {
  EXPECT_EQ(csv_cell("plain"), "plain");
  EXPECT_EQ(csv_cell("a,b"), "\"a,b\"");
  EXPECT_EQ(csv_cell("say \"b\""), "\"say \"\"b\"\"\"");
}

}  // namespace
}  // namespace tulle::study
