#include "study/report/outcome.h"

#include <gtest/gtest.h>

namespace tulle::report {
namespace {

constexpr Figure dropped{.key = "dropped", .unit = "frames", .heading = "dropped"};
constexpr Figure p99{.key = "slowdown.p99", .unit = "1", .heading = "99 %", .form = Form::number};
constexpr Figure events{.key = "events", .unit = "events", .heading = "events"};

TEST(Outcome, FiguresAreFoundByTheirNames) {
  Outcome outcome;
  outcome.figures = {{&dropped, std::uint64_t{5}}};
  outcome.simulator = {{&events, std::uint64_t{6}}};
  outcome.kinds = {{"a.b", {{&p99, 1.5}}}};
  EXPECT_EQ(rounded(find(outcome, "dropped")->value), 5);
  EXPECT_EQ(rounded(find(outcome, "events")->value), 6);
  EXPECT_EQ(rounded(find(outcome, "traffic.a.b.slowdown.p99")->value), 1.5);
  EXPECT_EQ(find(outcome, "traffic.a.b.dropped"), nullptr);
  EXPECT_EQ(find(outcome, "slowdown.p99"), nullptr);
  EXPECT_EQ(find(outcome, "traffic"), nullptr);
}

TEST(Outcome, CellsAreFoundByTheirKeys) {
  const Sheet sheet{
      {"host"}, {&events, &dropped}, {{{"host 0"}, {std::uint64_t{1}, std::uint64_t{2}}}}};
  EXPECT_EQ(std::get<std::uint64_t>(*find(sheet, sheet.rows[0], "dropped")), 2u);
  EXPECT_EQ(find(sheet, sheet.rows[0], "slowdown.p99"), nullptr);
}

TEST(Outcome, QuantilesAreByTheNearestRank) {
  std::vector<double> values;
  for (int i = 100; i > 0; --i) values.push_back(i);
  const Quantiles found = quantiles(values);
  EXPECT_EQ(found.min, 1);
  EXPECT_EQ(found.median, 50);
  EXPECT_EQ(found.p99, 99);
  EXPECT_EQ(found.max, 100);
  EXPECT_EQ(quantiles({}).max, 0);
}

TEST(Outcome, WhatIsUnfinishedIsSaidInWords) {
  Outcome outcome;
  outcome.flows.resize(5);
  for (Flow& flow : outcome.flows) flow.end = Time::zero();
  EXPECT_EQ(unfinished(outcome), "");
  outcome.flows[0].end = outcome.flows[1].end = Time::never();
  EXPECT_EQ(unfinished(outcome), "2 of 5 flows are not done");
  outcome.flows[0].failed = true;
  EXPECT_EQ(unfinished(outcome), "1 of 5 flows failed, 1 are not done");
  outcome.flows[1].failed = true;
  EXPECT_EQ(unfinished(outcome), "2 of 5 flows failed");
}

TEST(Figure, ValuesInTheUnitsOfJsonAndCsv) {
  EXPECT_EQ(rounded(Time{1'234'567}), 1.234567);
  EXPECT_EQ(rounded(Rate{1.5e9}), 1.5);
  EXPECT_EQ(rounded(1 / 3.0), 0.333333333);
  EXPECT_EQ(rounded(std::uint64_t{12'345'678'901}), 12'345'678'901);
  EXPECT_EQ(csv_text(Time{1'234'567}), "1234.567");
  EXPECT_EQ(csv_text(0.25), "0.2500");
  EXPECT_EQ(csv_text(std::uint64_t{12'345'678'901}), "12345678901");
  EXPECT_EQ(csv_key(dropped), "dropped");
  constexpr Figure paused{.key = "paused_us", .unit = "us", .heading = "paused us"};
  EXPECT_EQ(csv_key(paused), "paused_ns");
}

}  // namespace
}  // namespace tulle::report
