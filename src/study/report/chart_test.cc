#include "study/report/chart.h"

#include <gtest/gtest.h>

#include <set>

namespace tulle::report {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++n;
  return n;
}

Chart bars() {
  Chart chart;
  chart.title = "Bob's bars";
  chart.x_label = "goodput, Gb/s";
  chart.series = {
      {"one", "", {{90, 0}}}, {"two_2", "3 of 4 done", {{3, 0}}}, {"none", "none done", {}}};
  return chart;
}

TEST(Chart, DigitsAreThreeAndWholeNumbersWhole) {
  EXPECT_EQ(digits(0), "0");
  EXPECT_EQ(digits(3), "3");
  EXPECT_EQ(digits(136313), "136313");
  EXPECT_EQ(digits(2581.94), "2582");
  EXPECT_EQ(digits(99.149), "99.1");
  EXPECT_EQ(digits(5.386), "5.39");
  EXPECT_EQ(digits(0.4761), "0.476");
  EXPECT_EQ(digits(0.04761), "0.0476");
  EXPECT_EQ(digits(0.00047), "4.70e-04");
  EXPECT_EQ(digits(12'345'678), "1.23e+07");
}

TEST(Chart, ABarForEachSeriesThatHasAValue) {
  const std::string script = gnuplot_script(bars(), "my-bars");
  EXPECT_EQ(count(script, "with boxxyerror"), 2);
  EXPECT_TRUE(contains(script, "'one' 1, 'two_2' 2, 'none' 3")) << script;
  EXPECT_TRUE(contains(script, "'3, 3 of 4 done' at first 3, first 2")) << script;
  EXPECT_TRUE(contains(script, "'none done' at graph 0, first 3")) << script;
  EXPECT_TRUE(contains(script, "set xrange [0:108]")) << script;
  EXPECT_TRUE(contains(script, "'Bob''s bars'")) << script;
  EXPECT_TRUE(contains(script, "name 'my_bars'")) << script;
}

TEST(Chart, ALogarithmicAxisBeginsAtAPowerOfTenBelowTheLeast) {
  Chart chart = bars();
  chart.x_log = true;
  EXPECT_TRUE(contains(gnuplot_script(chart, "b"), "set logscale x\n"));
  EXPECT_TRUE(contains(gnuplot_script(chart, "b"), "set xrange [1:")) << gnuplot_script(chart, "b");
}

TEST(Chart, ACurveForEachSeriesWithNoTwoAlike) {
  Chart chart;
  chart.kind = Chart::Kind::steps;
  chart.y_is_share = true;
  for (int i = 0; i < 12; ++i) {
    chart.series.push_back({"s" + std::to_string(i), "", {{0, 0}, {1.5, 50}, {2, 100}}});
  }
  const std::string script = gnuplot_script(chart, "c");
  EXPECT_EQ(count(script, "with steps"), 12);
  EXPECT_TRUE(contains(script, "0 0\n1.5 50\n2 100\nEND\n"));
  std::set<std::string> looks;
  for (std::size_t at = 0; (at = script.find("dashtype", at)) != std::string::npos; ++at) {
    looks.insert(script.substr(at, script.find("title", at) - at));
  }
  EXPECT_EQ(looks.size(), 12u);
}

TEST(Chart, NothingToShowIsAScriptAllTheSame) {
  Chart chart;
  chart.series = {{"none", "", {}}};
  EXPECT_TRUE(contains(gnuplot_script(chart, "n"), "plot NaN"));
  chart.kind = Chart::Kind::lines;
  EXPECT_TRUE(contains(gnuplot_script(chart, "n"), "plot NaN"));
}

// Any name is plain text in the script. Between quotation marks, gnuplot would run the text in
// backquotes.
TEST(Chart, NamesCannotLeaveTheirQuotes) {
  Chart chart = bars();
  chart.series[0].name = "a'\nset output '/x'\n`id`";
  const std::string script = gnuplot_script(chart, "q");
  EXPECT_TRUE(contains(script, "'a'' set output ''/x'' `id`' 1")) << script;
}

}  // namespace
}  // namespace tulle::report
