#include "scenario/columns.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tulle::scenario {
namespace {

Outcome outcome(const std::string& variant, double median_us, double gbps) {
  Outcome outcome;
  outcome.variant = variant;
  outcome.flows.resize(2);
  outcome.finished = 2;
  outcome.completion_us = {median_us, median_us, 2 * median_us, 2 * median_us};
  outcome.goodput_bits_per_second = gbps * 1e9;
  return outcome;
}

std::size_t column(const Table& table, const std::string& head) {
  return static_cast<std::size_t>(std::ranges::find(table.heads, head) - table.heads.begin());
}

TEST(Columns, WhatNobodyHasIsLeftOut) {
  std::vector<Outcome> outcomes = {outcome("a", 10, 90), outcome("b", 20, 80)};
  Table table = telling_figures("fabric", outcomes);
  EXPECT_EQ(table.heads.front(), "fabric");
  EXPECT_EQ(column(table, "dropped"), table.heads.size());
  EXPECT_EQ(column(table, "one way us"), table.heads.size());
  outcomes[1].dropped = 7;
  table = telling_figures("fabric", outcomes);
  const std::size_t dropped = column(table, "dropped");
  ASSERT_LT(dropped, table.heads.size());
  EXPECT_EQ(table.rows[0][dropped].text, "0");
  EXPECT_EQ(table.rows[1][dropped].text, "7");
}

TEST(Columns, TheBestIsOfThoseWhoseFlowsAllFinished) {
  std::vector<Outcome> outcomes = {outcome("a", 10, 90), outcome("b", 20, 80),
                                   outcome("fails", 1, 99)};
  outcomes[2].finished = 1;
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
  outcomes[1].finished = 0;
  const Table table = telling_figures("variant", outcomes);
  EXPECT_EQ(table.rows[1][column(table, "FCT median us")].text, "-");
  EXPECT_EQ(table.rows[1][column(table, "goodput")].text, "0 bps");
}

TEST(Columns, TrafficByKindStandsBelowItsVariant) {
  std::vector<Outcome> outcomes = {outcome("a", 10, 90), outcome("b", 20, 80)};
  KindOutcome& kind = outcomes[1].kinds.emplace_back();
  kind.name = "victims";
  kind.flows = kind.finished = 1;
  kind.completion_us = {1, 1, 1, 1};
  const Table table = telling_figures("variant", outcomes);
  ASSERT_EQ(table.rows.size(), 3u);
  EXPECT_EQ(table.rows[2][0].text, "\u00b7 victims");
  EXPECT_EQ(table.rows[2][1].text, "1/1");
  const std::size_t median = column(table, "FCT median us");
  EXPECT_EQ(table.rows[2][median].text, "1.00");
  EXPECT_TRUE(table.rows[0][median].best) << "a kind is no variant";
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
}  // namespace tulle::scenario
