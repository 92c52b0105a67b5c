#include "scenario/picture.h"

#include <gtest/gtest.h>

namespace tulle::scenario {
namespace {

using report::Chart;
using report::Point;

constexpr char tables[] = "[topology]\nhosts = 4\n[traffic]\nbytes = \"10KB\"\n";

Scenario with(const std::string& picture) {
  auto scenario = Scenario::parse("title = \"T\"\n[picture]\n" + picture + "\n" + tables +
                                      "[[variant]]\nname = \"a\"\n[[variant]]\nname = \"b\"\n",
                                  "s.toml", "", {});
  EXPECT_TRUE(scenario) << scenario.error().message;
  return *scenario;
}

std::string wrong(const std::string& picture) {
  auto scenario = Scenario::parse("[picture]\n" + picture + "\n" + tables, "s.toml", "", {});
  return scenario ? "" : scenario.error().message;
}

// Returns an outcome of flows of these bytes that took this many microseconds each; 0 means not
// done.
Outcome outcome(const std::string& variant,
                const std::vector<std::pair<std::uint64_t, int>>& flows) {
  Outcome outcome;
  outcome.variant = variant;
  for (const auto& [bytes, us] : flows) {
    FlowOutcome& flow = outcome.flows.emplace_back();
    flow.flow.bytes = bytes;
    flow.start = Time::microseconds(1);
    if (us == 0) continue;
    flow.end = Time::microseconds(1 + us);
    flow.slowdown = us / 10.0;
    ++outcome.finished;
  }
  outcome.dropped = 5;
  return outcome;
}

Chart drawn(const std::string& picture, const std::vector<Outcome>& outcomes) {
  auto chart = draw(with(picture), outcomes);
  EXPECT_TRUE(chart) << chart.error().message;
  return chart ? *chart : Chart{};
}

const std::vector<Outcome> two = {outcome("a", {{1'000, 10}, {1'000, 20}, {2'000, 40}}),
                                  outcome("b", {{1'000, 20}, {1'000, 0}, {2'000, 30}})};

TEST(Picture, BarsOfFlowsByDefault) {
  const Chart chart = drawn("", two);
  EXPECT_EQ(chart.kind, Chart::Kind::bars);
  EXPECT_EQ(chart.title, "T");
  EXPECT_EQ(chart.x_label, "flow completion time, us (99 %)");
  ASSERT_EQ(chart.series.size(), 2u);
  EXPECT_EQ(chart.series[0].points[0].x, 40);
  EXPECT_EQ(chart.series[0].note, "");
  EXPECT_EQ(chart.series[1].points[0].x, 30);
  EXPECT_EQ(chart.series[1].note, "2 of 3 done");
}

TEST(Picture, BarsOfSomeFlows) {
  const Chart chart = drawn("show = \"rate_gbps.median\"\nflows = \"0, 2-7\"", two);
  EXPECT_EQ(chart.x_label, "a flow's rate, Gb/s (median)");
  EXPECT_DOUBLE_EQ(chart.series[0].points[0].x, 0.4);  // the lower of 0.8 and 0.4
  EXPECT_EQ(chart.series[1].note, "") << "the one that is not done is none of them";
}

TEST(Picture, BarsOfTheSummary) {
  const Chart chart = drawn("show = \"dropped\"\nlabel = \"frames lost\"\nvariants = [\"b\"]", two);
  EXPECT_EQ(chart.x_label, "frames lost");
  ASSERT_EQ(chart.series.size(), 1u);
  EXPECT_EQ(chart.series[0].name, "b");
  EXPECT_EQ(chart.series[0].points[0].x, 5);
  EXPECT_EQ(drawn("show = \"buffer_max_bytes\"", two).x_label, "buffer max, bytes");
}

TEST(Picture, AWideRangeIsShownLogarithmically) {
  const std::vector<Outcome> wide = {outcome("a", {{1'000, 1}}), outcome("b", {{1'000, 1'000}})};
  EXPECT_TRUE(drawn("", wide).x_log);
  EXPECT_EQ(drawn("", wide).x_label, "flow completion time, us (99 %) (logarithmic)");
  EXPECT_FALSE(drawn("scale = \"linear\"", wide).x_log);
  EXPECT_FALSE(drawn("", two).x_log);
}

TEST(Picture, WhereNoFlowIsDoneThatIsSaid) {
  const Chart chart = drawn("", {outcome("a", {{1'000, 0}})});
  EXPECT_TRUE(chart.series[0].points.empty());
  EXPECT_EQ(chart.series[0].note, "none done");
}

TEST(Picture, NothingHasNoPlaceOnALogarithmicAxis) {
  std::vector<Outcome> outcomes = two;
  outcomes[0].dropped = 0;
  const Chart chart = drawn("show = \"dropped\"\nscale = \"logarithmic\"", outcomes);
  EXPECT_TRUE(chart.series[0].points.empty());
  EXPECT_EQ(chart.series[0].note, "0");
}

TEST(Picture, SharesOfAllFlowsDoneOrNot) {
  const Chart chart = drawn("kind = \"cdf\"", two);
  EXPECT_EQ(chart.kind, Chart::Kind::steps);
  ASSERT_EQ(chart.series.size(), 2u);
  const std::vector<Point>& b = chart.series[1].points;
  ASSERT_EQ(b.size(), 2u);
  EXPECT_EQ(b[0].x, 2);
  EXPECT_DOUBLE_EQ(b[1].x, 3);
  EXPECT_DOUBLE_EQ(b[1].y, 200.0 / 3);
}

TEST(Picture, ManyPointsAreThinnedAndKeepTheirEnds) {
  std::vector<std::pair<std::uint64_t, int>> flows;
  for (int i = 1; i <= 10'000; ++i) flows.push_back({1'000, i});
  const Chart chart = drawn("kind = \"cdf\"\nshow = \"fct_us\"", {outcome("a", flows)});
  const std::vector<Point>& points = chart.series[0].points;
  EXPECT_LE(points.size(), 100u);
  EXPECT_EQ(points.front().x, 1);
  EXPECT_EQ(points.back().x, 10'000);
  EXPECT_EQ(points.back().y, 100);
}

TEST(Picture, BySizeHasClassesOfEquallyMany) {
  std::vector<std::pair<std::uint64_t, int>> flows;
  flows.reserve(1'000);
  for (int i = 0; i < 1'000; ++i) flows.push_back({i < 500 ? 1'000 : 1'000 + i, i < 500 ? 10 : 30});
  const Chart chart =
      drawn("kind = \"by-size\"\nshow = \"slowdown.median\"", {outcome("a", flows)});
  EXPECT_TRUE(chart.x_log);
  const std::vector<Point>& points = chart.series[0].points;
  ASSERT_EQ(points.size(), 6u) << "of one size 500, and then 5 of 100";
  EXPECT_EQ(points[0].x, 1'000);
  EXPECT_EQ(points[0].y, 1);
  EXPECT_EQ(points[1].x, 1'599);
  EXPECT_EQ(points[1].y, 3);
  EXPECT_EQ(points.back().x, 1'999);
}

TEST(Picture, ProgressGoesOnToTheEndOfTheLast) {
  const Chart chart = drawn("kind = \"progress\"", two);
  EXPECT_EQ(chart.x_label, "time, us");
  const std::vector<Point>& b = chart.series[1].points;
  EXPECT_EQ(b.front().x, 0);
  EXPECT_EQ(b.front().y, 0);
  EXPECT_EQ(b.back().x, 41);
  EXPECT_DOUBLE_EQ(b.back().y, 200.0 / 3);
  const Chart slow = drawn("kind = \"progress\"", {outcome("a", {{1'000, 50'000}})});
  EXPECT_EQ(slow.x_label, "time, ms");
  EXPECT_DOUBLE_EQ(slow.series[0].points.back().x, 50.001);
}

TEST(Picture, ALinkOverTime) {
  Outcome sampled = outcome("a", {{1'000, 10}});
  sampled.samples.interval = Time::microseconds(10);
  sampled.samples.ports = {{"switch 0", "host 0", 0}, {"switch 0", "host 1", 1}};
  for (std::uint64_t i = 0; i < 1'000; ++i) {
    sampled.samples.samples.push_back({1, 1});
    sampled.samples.samples.push_back({i < 500 ? 50'000u : 25'000u, 3'000});
  }
  const std::string link = "kind = \"over-time\"\nlink = [\"switch 0\", \"host 1\"]\n";
  Chart chart = drawn(link, {sampled});
  EXPECT_EQ(chart.x_label, "time, ms");
  EXPECT_EQ(chart.y_label, "rate from switch 0 to host 1, Gb/s");
  ASSERT_EQ(chart.series[0].points.size(), 250u) << "of four samples each";
  EXPECT_DOUBLE_EQ(chart.series[0].points[0].x, 0.04);
  EXPECT_DOUBLE_EQ(chart.series[0].points[0].y, 40) << "50 kB in 10 us";
  EXPECT_DOUBLE_EQ(chart.series[0].points.back().x, 10);
  EXPECT_DOUBLE_EQ(chart.series[0].points.back().y, 20);
  chart = drawn(link + "show = \"queue_bytes\"", {sampled});
  EXPECT_EQ(chart.y_label, "waiting from switch 0 to host 1, kB");
  EXPECT_DOUBLE_EQ(chart.series[0].points[7].y, 3);
  auto nothing = draw(with(link), two);
  ASSERT_FALSE(nothing);
  EXPECT_EQ(
      nothing.error().message,
      "s.toml: picture.link: there are no samples from \"switch 0\" to \"host 1\": see the table "
      "[report]");
  EXPECT_EQ(wrong("kind = \"over-time\"").find("s.toml:1: picture.link: is needed, two nodes"), 0u);
  EXPECT_EQ(wrong("link = [\"a\", \"b\"]").find("s.toml:2: picture.link: goes with"), 0u);
  EXPECT_EQ(wrong(link + "show = \"fct_us\"").find("s.toml:4: picture.show: with \"over-time\""),
            0u);
}

TEST(Picture, MistakesAreToldWithTheirPlace) {
  EXPECT_EQ(wrong("kind = \"pie\""),
            "s.toml:2: picture.kind: must be \"bars\", \"cdf\", \"by-size\", \"progress\" or "
            "\"over-time\"");
  EXPECT_EQ(wrong("colour = 1").find("s.toml:2: picture.colour: is no key"), 0u)
      << wrong("colour = 1");
  EXPECT_EQ(wrong("show = \"fct_us\""),
            "s.toml:2: picture.show: needs .min, .median, .p99 or .max after \"fct_us\"");
  EXPECT_EQ(wrong("show = \"fct_us.p50\"").find("s.toml:2: picture.show: needs .min"), 0u);
  EXPECT_EQ(
      wrong("kind = \"cdf\"\nshow = \"dropped\"").find("s.toml:3: picture.show: with \"cdf\""), 0u);
  EXPECT_EQ(wrong("kind = \"by-size\"\nshow = \"dropped\"").find("s.toml:3: picture.show: with"),
            0u);
  EXPECT_EQ(wrong("kind = \"progress\"\nshow = \"dropped\"").find("s.toml:3: picture.show: "), 0u);
  EXPECT_EQ(wrong("show = \"dropped\"\nflows = \"1\"").find("s.toml:3: picture.flows: needs a"),
            0u);
  EXPECT_EQ(wrong("flows = \"3-1\"").find("s.toml:2: picture.flows: must be flows"), 0u);
  EXPECT_EQ(wrong("variants = [\"c\"]"), "s.toml:2: picture.variants: there is no variant \"c\"");
  EXPECT_EQ(wrong("[[variant]]\nname = \"a\"\npicture.kind = \"cdf\"")
                .find("s.toml:4: variant.picture: is of all"),
            0u);
  auto nowhere = draw(with("show = \"no_such_figure\""), two);
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().message,
            "s.toml: picture.show: no variant has a figure \"no_such_figure\"");
}

}  // namespace
}  // namespace tulle::scenario
