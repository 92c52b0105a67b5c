#include "study/report/picture.h"

#include <gtest/gtest.h>

namespace tulle::report {
namespace {

using Kind = PictureSettings::Kind;
using Scale = PictureSettings::Scale;

constexpr Figure dropped{.key = "dropped", .unit = "frames", .heading = "dropped"};
constexpr Figure buffer{.key = "buffer_max_bytes", .unit = "bytes", .heading = "buffer"};
constexpr Figure share{.key = "share_of_ideal",
                       .unit = "1",
                       .heading = "of ideal",
                       .form = Form::per_cent,
                       .axis = "of the ideal rate, %"};

PictureSettings of(const std::string& show, Kind kind = Kind::bars) {
  PictureSettings picture;
  picture.kind = kind;
  picture.show = show;
  return picture;
}

// Returns an outcome of flows of these bytes that took this many microseconds each; 0 means not
// done.
Outcome outcome(const std::string& variant,
                const std::vector<std::pair<std::uint64_t, int>>& flows) {
  Outcome outcome;
  outcome.variant = variant;
  for (const auto& [bytes, us] : flows) {
    Flow& flow = outcome.flows.emplace_back();
    flow.bytes = bytes;
    flow.start = Time::microseconds(1);
    if (us == 0) continue;
    flow.end = Time::microseconds(1 + us);
    flow.slowdown = us / 10.0;
  }
  outcome.figures = {{&dropped, std::uint64_t{5}}, {&buffer, std::uint64_t{9}}, {&share, 0.25}};
  return outcome;
}

Chart drawn(const PictureSettings& picture, const std::vector<Outcome>& outcomes) {
  auto chart = draw(picture, {"s", "T", "", outcomes});
  EXPECT_TRUE(chart) << chart.error().message;
  return chart ? *chart : Chart{};
}

const std::vector<Outcome> two = {outcome("a", {{1'000, 10}, {1'000, 20}, {2'000, 40}}),
                                  outcome("b", {{1'000, 20}, {1'000, 0}, {2'000, 30}})};

TEST(Picture, BarsOfFlowsByDefault) {
  const Chart chart = drawn({}, two);
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
  PictureSettings picture = of("rate_gbps.median");
  picture.flows = {{0, 0}, {2, 7}};
  const Chart chart = drawn(picture, two);
  EXPECT_EQ(chart.x_label, "a flow's rate, Gb/s (median)");
  EXPECT_DOUBLE_EQ(chart.series[0].points[0].x, 0.4);  // the lower of 0.8 and 0.4
  EXPECT_EQ(chart.series[1].note, "") << "the one that is not done is none of them";
}

TEST(Picture, BarsOfTheSummary) {
  PictureSettings picture = of("dropped");
  picture.label = "frames lost";
  picture.variants = {"b"};
  const Chart chart = drawn(picture, two);
  EXPECT_EQ(chart.x_label, "frames lost");
  ASSERT_EQ(chart.series.size(), 1u);
  EXPECT_EQ(chart.series[0].name, "b");
  EXPECT_EQ(chart.series[0].points[0].x, 5);
  EXPECT_EQ(drawn(of("buffer_max_bytes"), two).x_label, "buffer max, bytes");
}

TEST(Picture, ASharesAxisIsInPerCent) {
  const Chart chart = drawn(of("share_of_ideal"), two);
  EXPECT_EQ(chart.x_label, "of the ideal rate, %");
  EXPECT_EQ(chart.series[0].points[0].x, 25);
}

TEST(Picture, AWideRangeIsShownLogarithmically) {
  const std::vector<Outcome> wide = {outcome("a", {{1'000, 1}}), outcome("b", {{1'000, 1'000}})};
  EXPECT_TRUE(drawn({}, wide).x_log);
  EXPECT_EQ(drawn({}, wide).x_label, "flow completion time, us (99 %) (logarithmic)");
  PictureSettings linear;
  linear.scale = Scale::linear;
  EXPECT_FALSE(drawn(linear, wide).x_log);
  EXPECT_FALSE(drawn({}, two).x_log);
}

TEST(Picture, WhereNoFlowIsDoneThatIsSaid) {
  const Chart chart = drawn({}, {outcome("a", {{1'000, 0}})});
  EXPECT_TRUE(chart.series[0].points.empty());
  EXPECT_EQ(chart.series[0].note, "none done");
}

TEST(Picture, NothingHasNoPlaceOnALogarithmicAxis) {
  std::vector<Outcome> outcomes = two;
  outcomes[0].figures = {{&dropped, std::uint64_t{0}}};
  PictureSettings picture = of("dropped");
  picture.scale = Scale::logarithmic;
  const Chart chart = drawn(picture, outcomes);
  EXPECT_TRUE(chart.series[0].points.empty());
  EXPECT_EQ(chart.series[0].note, "0");
}

TEST(Picture, SharesOfAllFlowsDoneOrNot) {
  const Chart chart = drawn(of("slowdown", Kind::cdf), two);
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
  const Chart chart = drawn(of("fct_us", Kind::cdf), {outcome("a", flows)});
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
  const Chart chart = drawn(of("slowdown.median", Kind::by_size), {outcome("a", flows)});
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
  const Chart chart = drawn(of("", Kind::progress), two);
  EXPECT_EQ(chart.x_label, "time, us");
  const std::vector<Point>& b = chart.series[1].points;
  EXPECT_EQ(b.front().x, 0);
  EXPECT_EQ(b.front().y, 0);
  EXPECT_EQ(b.back().x, 41);
  EXPECT_DOUBLE_EQ(b.back().y, 200.0 / 3);
  const Chart slow = drawn(of("", Kind::progress), {outcome("a", {{1'000, 50'000}})});
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
  PictureSettings link = of("rate_gbps", Kind::over_time);
  link.link = {"switch 0", "host 1"};
  link.file = "s.toml";
  Chart chart = drawn(link, {sampled});
  EXPECT_EQ(chart.x_label, "time, ms");
  EXPECT_EQ(chart.y_label, "rate from switch 0 to host 1, Gb/s");
  ASSERT_EQ(chart.series[0].points.size(), 250u) << "of four samples each";
  EXPECT_DOUBLE_EQ(chart.series[0].points[0].x, 0.04);
  EXPECT_DOUBLE_EQ(chart.series[0].points[0].y, 40) << "50 kB in 10 us";
  EXPECT_DOUBLE_EQ(chart.series[0].points.back().x, 10);
  EXPECT_DOUBLE_EQ(chart.series[0].points.back().y, 20);
  link.show = "queue_bytes";
  chart = drawn(link, {sampled});
  EXPECT_EQ(chart.y_label, "waiting from switch 0 to host 1, kB");
  EXPECT_DOUBLE_EQ(chart.series[0].points[7].y, 3);
  auto nothing = draw(link, {"s", "T", "", two});
  ASSERT_FALSE(nothing);
  EXPECT_EQ(
      nothing.error().message,
      "s.toml: picture.link: there are no samples from \"switch 0\" to \"host 1\": see the table "
      "[report]");
}

TEST(Picture, AFigureThatNoVariantHasIsAnError) {
  PictureSettings picture = of("no_such_figure");
  picture.file = "s.toml";
  auto nowhere = draw(picture, {"s", "T", "", two});
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().message,
            "s.toml: picture.show: no variant has a figure \"no_such_figure\"");
}

}  // namespace
}  // namespace tulle::report
