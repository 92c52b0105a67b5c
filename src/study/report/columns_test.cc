#include "study/report/columns.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tulle::report {
namespace {

constexpr Figure median{.key = "fct_us.median",
                        .unit = "us",
                        .heading = "FCT median us",
                        .form = Form::number,
                        .column = {2, Best::least, true},
                        .summary = {1, 9, 1, false, false, "median"}};
constexpr Figure goodput{.key = "goodput_gbps",
                         .unit = "Gb/s",
                         .heading = "goodput",
                         .form = Form::rate,
                         .column = {3, Best::most},
                         .summary = {2, 10}};
constexpr Figure latency{.key = "latency_us.median",
                         .unit = "us",
                         .heading = "one way us",
                         .form = Form::number,
                         .column = {1, Best::least},
                         .summary = {3, 10, 2, false, true}};
constexpr Figure dropped{.key = "dropped",
                         .unit = "frames",
                         .heading = "dropped",
                         .column = {4},
                         .summary = {4, 9, 0, true}};

std::vector<Flow> flows(std::size_t finished, std::size_t others) {
  std::vector<Flow> flows(finished + others);
  for (std::size_t i = 0; i < finished; ++i) flows[i].end = Time::microseconds(1);
  return flows;
}

Outcome outcome(const std::string& variant, double median_us, double gbps,
                std::uint64_t frames = 0) {
  Outcome outcome;
  outcome.variant = variant;
  outcome.flows = flows(2, 0);
  outcome.figures = {{&dropped, frames}, {&median, median_us}, {&goodput, Rate{gbps * 1e9}}};
  return outcome;
}

std::size_t column(const Table& table, const std::string& head) {
  return static_cast<std::size_t>(std::ranges::find(table.heads, head) - table.heads.begin());
}

TEST(Columns, NamesDoNotSteerTheTerminal) {
  const std::vector<Outcome> outcomes = {outcome("a\033[1m\nb", 10, 90)};
  EXPECT_NE(summary_table(outcomes).find("\na?[1m?b  "), std::string::npos);
  const std::string text = plain_text(telling_figures("fabric", outcomes), true);
  EXPECT_NE(text.find("\na?[1m?b  "), std::string::npos) << text;
}

TEST(Columns, ACollectiveSaysHowItWent) {
  std::vector<Outcome> outcomes = {outcome("a", 10, 90), outcome("b", 20, 80)};
  const std::string head = "algorithm, protocol";
  EXPECT_EQ(column(telling_figures("fabric", outcomes), head), 4u) << "no such column";
  outcomes[1].method = Method{"ring", "ll128"};
  const Table table = telling_figures("fabric", outcomes);
  ASSERT_LT(column(table, head), table.heads.size());
  EXPECT_EQ(table.rows[0][column(table, head)].text, "-");
  EXPECT_EQ(table.rows[1][column(table, head)].text, "ring, ll128");
}

TEST(Columns, WhatNobodyHasIsLeftOut) {
  std::vector<Outcome> outcomes = {outcome("a", 10, 90), outcome("b", 20, 80)};
  Table table = telling_figures("fabric", outcomes);
  EXPECT_EQ(table.heads.front(), "fabric");
  EXPECT_EQ(column(table, "dropped"), table.heads.size());
  EXPECT_EQ(column(table, "one way us"), table.heads.size());
  outcomes[1] = outcome("b", 20, 80, 7);
  table = telling_figures("fabric", outcomes);
  const std::size_t dropped = column(table, "dropped");
  ASSERT_LT(dropped, table.heads.size());
  EXPECT_EQ(table.rows[0][dropped].text, "0");
  EXPECT_EQ(table.rows[1][dropped].text, "7");
}

TEST(Columns, TheBestIsOfThoseWhoseFlowsAllFinished) {
  std::vector<Outcome> outcomes = {outcome("a", 10, 90), outcome("b", 20, 80),
                                   outcome("fails", 1, 99)};
  outcomes[2].flows = flows(1, 1);
  const Table table = telling_figures("fabric", outcomes);
  const std::size_t median = column(table, "FCT median us");
  const std::size_t goodput = column(table, "goodput");
  EXPECT_TRUE(table.rows[0][median].best);
  EXPECT_TRUE(table.rows[0][goodput].best);
  EXPECT_FALSE(table.rows[1][median].best);
  EXPECT_FALSE(table.rows[2][median].best);
  EXPECT_EQ(table.rows[2][1].text, "1/2");
}

TEST(Columns, AmongEqualsNoneIsBest) {
  const Table table = telling_figures("fabric", {outcome("a", 10, 90), outcome("b", 10, 80)});
  EXPECT_FALSE(table.rows[0][column(table, "FCT median us")].best);
  EXPECT_TRUE(table.rows[0][column(table, "goodput")].best);
}

TEST(Columns, TimesOfNoFlowAreNoTimes) {
  std::vector<Outcome> outcomes = {outcome("a", 10, 90), outcome("none", 0, 0)};
  outcomes[1].flows = flows(0, 2);
  const Table table = telling_figures("variant", outcomes);
  EXPECT_EQ(table.rows[1][column(table, "FCT median us")].text, "-");
  EXPECT_EQ(table.rows[1][column(table, "goodput")].text, "0 bps");
}

TEST(Columns, TrafficByKindStandsBelowItsVariant) {
  std::vector<Outcome> outcomes = {outcome("a", 10, 90), outcome("b", 20, 80)};
  outcomes[1].kinds = {{"bullies", {}}, {"victims", {{&median, 1.0}}}};
  outcomes[1].kind_of = {0, 1};
  const Table table = telling_figures("variant", outcomes);
  ASSERT_EQ(table.rows.size(), 4u);
  EXPECT_EQ(table.rows[3][0].text, "\u00b7 victims");
  EXPECT_EQ(table.rows[3][1].text, "1/1");
  const std::size_t median = column(table, "FCT median us");
  EXPECT_EQ(table.rows[3][median].text, "1.00");
  EXPECT_TRUE(table.rows[0][median].best) << "a kind is no variant";
}

TEST(Columns, TheSummaryHasARowForEachVariantAndKind) {
  std::vector<Outcome> outcomes = {outcome("a", 10, 90), outcome("longest", 20, 80, 7)};
  outcomes[1].kinds = {{"victims", {{&median, 1.04}}}};
  outcomes[1].kind_of = {0, 0};
  EXPECT_EQ(summary_table(outcomes),
            "variant            flows     median     goodput   dropped\n"
            "a                    2/2       10.0     90 Gbps         0\n"
            "longest              2/2       20.0     80 Gbps         7\n"
            "  victims            2/2        1.0\n");
}

TEST(Columns, TheTimeOneWayIsShownWhereEveryReceiverWasTold) {
  Outcome told = outcome("", 10, 90);
  for (Flow& flow : told.flows) flow.arrived = Time::microseconds(1);
  told.figures.push_back({&latency, 1.5});
  EXPECT_EQ(summary_table({told}),
            "                 flows     median     goodput  one way us   dropped\n"
            "                   2/2       10.0     90 Gbps        1.50         0\n");
  told.flows[1].arrived = Time::never();
  EXPECT_EQ(summary_table({told}).find("one way"), std::string::npos);
}

TEST(Columns, PlainTextStandsInColumns) {
  const Table table{{"fabric", "us"}, {{{"a"}, {"5", true}}, {{"b\u00e9e"}, {"12345"}}}};
  EXPECT_EQ(plain_text(table, false), "fabric     us\na           5\nb\u00e9e     12345\n");
  EXPECT_EQ(plain_text(table, true),
            "fabric     us\na           \033[1m5\033[0m\nb\u00e9e     12345\n");
}

TEST(Columns, MarkdownOfTheSame) {
  const Table table{{"fabric", "us"}, {{{"a|b"}, {"5", true}}}};
  EXPECT_EQ(markdown(table), "| fabric | us |\n| --- | ---: |\n| a\\|b | 5 |\n");
}

}  // namespace
}  // namespace tulle::report
