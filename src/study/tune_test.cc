// The search and its judgement, on points that cost nothing.

#include "study/tune.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "study/fake_points_test.h"

namespace tulle::study {
namespace {

constexpr char figure[] = "slowdown.p99";

TuneSettings settings_for(const std::string& range = "traffic.load=1..100") {
  TuneSettings settings;
  settings.knobs.push_back(*tuning::parse_range(range));
  settings.figure = figure;
  settings.seeds = {"1", "2"};
  settings.validation_seeds = {"101", "102", "103"};
  settings.budget = 30;
  return settings;
}

double seed_of(const FakePoints::Lines& lines) { return value_of(lines, "seed").value_or(0); }
bool is_validation(const FakePoints::Lines& lines) { return seed_of(lines) > 100; }

// The scenario as it was comes to 60, and the best there is, at a load of 20, to 10.
FakeResult valley(const FakePoints::Lines& lines) {
  const auto load = value_of(lines, "traffic.load");
  return {{{figure, load ? 10 + std::abs(*load - 20) : 60}}};
}

struct Searched {
  Result<void> outcome;
  Tuned found;
};

Searched tune(const TuneSettings& settings, FakePoints& points, FakeMonitor& monitor) {
  Tuner tuner(settings, points, monitor);
  auto outcome = tuner.search();
  if (outcome) outcome = tuner.check();
  if (outcome) outcome = tuner.validate();
  return {outcome, tuner.found()};
}

std::string message_of(const Searched& searched) {
  return searched.outcome ? "" : searched.outcome.error().message;
}

TEST(Tuner, FindsTheBestSettingAndMeasuresItOnOtherSeeds) {
  const TuneSettings settings = settings_for();
  FakePoints points(valley);
  FakeMonitor monitor;
  const Searched searched = tune(settings, points, monitor);
  ASSERT_TRUE(searched.outcome) << message_of(searched);
  const Tuned& found = searched.found;
  EXPECT_TRUE(found.is_gained());
  EXPECT_LE(found.tried.size(), 30u);
  EXPECT_GE(found.tried.size(), 25u);
  EXPECT_NEAR(*value_of(found.best.lines, "traffic.load"), 20, 2);
  EXPECT_EQ(found.baseline.mean, 60);
  EXPECT_EQ(found.validated_was.mean, 60);
  EXPECT_NEAR(found.validated_is.mean, 10, 2);
  std::set<std::string> names;
  for (const std::size_t index : found.validated_points) {
    EXPECT_TRUE(is_validation(points[index].lines));
    names.insert(points[index].name);
  }
  EXPECT_EQ(names,
            (std::set<std::string>{"seed=101, as it was", "seed=101, tuned", "seed=102, as it was",
                                   "seed=102, tuned", "seed=103, as it was", "seed=103, tuned"}));
  for (const Tried& each : found.tried) EXPECT_EQ(each.score.values.size(), 2u);
  EXPECT_TRUE(monitor.shown.back().empty()) << "the line of progress stays";
  EXPECT_TRUE(std::ranges::any_of(monitor.shown, [](const std::string& text) {
    return text.find(", best slowdown.p99 so far ") != std::string::npos;
  }));
}

TEST(Tuner, MaximizesWhatIsToBeMost) {
  TuneSettings settings = settings_for();
  settings.maximizes = true;
  FakePoints points([](const auto& lines) {
    FakeResult result = valley(lines);
    result.figures[0].second *= -1;
    return result;
  });
  FakeMonitor monitor;
  const Searched searched = tune(settings, points, monitor);
  ASSERT_TRUE(searched.outcome) << message_of(searched);
  EXPECT_NEAR(searched.found.validated_is.mean, -10, 2);
  EXPECT_TRUE(searched.found.is_gained());
}

TEST(Tuner, AScenarioThatNothingIsBetterThanIsKept) {
  FakePoints points([](const auto&) { return FakeResult{{{figure, 7}}}; });
  FakeMonitor monitor;
  const Searched searched = tune(settings_for(), points, monitor);
  ASSERT_TRUE(searched.outcome) << message_of(searched);
  EXPECT_FALSE(searched.found.is_gained());
  EXPECT_EQ(searched.found.keep_because, "the best setting is no better");
}

TEST(Tuner, LuckOnTheSearchSeedsIsNoGain) {
  FakePoints points([](const auto& lines) {
    const bool is_tuned = value_of(lines, "traffic.load").has_value();
    return is_validation(lines) && is_tuned ? FakeResult{{{figure, 61}}} : valley(lines);
  });
  FakeMonitor monitor;
  const Searched searched = tune(settings_for(), points, monitor);
  ASSERT_TRUE(searched.outcome) << message_of(searched);
  EXPECT_EQ(searched.found.keep_because, "the best setting is no better");
}

// Without the limit, the best load would be 20.
FakeResult valley_with_pauses(const FakePoints::Lines& lines) {
  FakeResult result = valley(lines);
  result.figures.emplace_back("pauses", value_of(lines, "traffic.load").value_or(0) < 50 ? 3 : 0);
  return result;
}

TEST(Tuner, KeepsToTheLimits) {
  TuneSettings settings = settings_for();
  settings.limits.push_back(*parse_limit("pauses<=0"));
  FakePoints points(valley_with_pauses);
  FakeMonitor monitor;
  const Searched searched = tune(settings, points, monitor);
  ASSERT_TRUE(searched.outcome) << message_of(searched);
  EXPECT_GE(*value_of(searched.found.best.lines, "traffic.load"), 50);
  EXPECT_LT(*value_of(searched.found.best.lines, "traffic.load"), 60);
  EXPECT_EQ(searched.found.validated_is.excess, 0);
  EXPECT_GT(searched.found.validated_was.excess, 0) << "the scenario as it was breaks it";
  EXPECT_TRUE(searched.found.is_gained());
}

TEST(Tuner, SaysHowFarTheNearestIsIfNothingKeepsToTheLimits) {
  TuneSettings settings = settings_for();
  settings.limits.push_back(*parse_limit("pauses<=0"));
  FakePoints points([](const auto& lines) {
    FakeResult result = valley(lines);
    result.figures.emplace_back("pauses", value_of(lines, "traffic.load").value_or(200));
    return result;
  });
  FakeMonitor monitor;
  const Searched searched = tune(settings, points, monitor);
  EXPECT_TRUE(message_of(searched).ends_with(
      " settings keeps to the limits; with the nearest, pauses is 1"))
      << message_of(searched);
}

TEST(Tuner, ASettingThatBreaksALimitOnlyOnValidationSeedsIsNotTaken) {
  TuneSettings settings = settings_for();
  settings.limits.push_back(*parse_limit("pauses<=0"));
  FakePoints points([](const auto& lines) {
    FakeResult result = valley(lines);
    const bool is_tuned = value_of(lines, "traffic.load").has_value();
    result.figures.emplace_back("pauses", is_tuned && is_validation(lines) ? 5 : 0);
    return result;
  });
  FakeMonitor monitor;
  const Searched searched = tune(settings, points, monitor);
  ASSERT_TRUE(searched.outcome) << message_of(searched);
  EXPECT_EQ(searched.found.keep_because, "the best setting breaks a limit, pauses is 5");
}

TEST(Tuner, ASettingThatFailsOnOneSeedDoesNotCount) {
  FakePoints points([](const auto& lines) {
    const auto load = value_of(lines, "traffic.load");
    if (load && *load < 40 && seed_of(lines) == 2) return FakeResult{{}, "no memory"};
    return valley(lines);
  });
  FakeMonitor monitor;
  const Searched searched = tune(settings_for(), points, monitor);
  ASSERT_TRUE(searched.outcome) << message_of(searched);
  EXPECT_GE(*value_of(searched.found.best.lines, "traffic.load"), 40);
}

TEST(Tuner, FlowsThatDoNotFinishDoNotCount) {
  FakePoints points([](const auto& lines) {
    FakeResult result = valley(lines);
    const auto load = value_of(lines, "traffic.load");
    result.unfinished_flows = load && *load < 40 ? 1 : 0;
    return result;
  });
  FakeMonitor monitor;
  const Searched searched = tune(settings_for(), points, monitor);
  ASSERT_TRUE(searched.outcome) << message_of(searched);
  EXPECT_GE(*value_of(searched.found.best.lines, "traffic.load"), 40);
}

TEST(Tuner, NothingCounts) {
  FakePoints points([](const auto& lines) {
    return value_of(lines, "traffic.load") ? FakeResult{{}, "no memory"} : valley(lines);
  });
  FakeMonitor monitor;
  const Searched searched = tune(settings_for(), points, monitor);
  EXPECT_EQ(message_of(searched), fmt::format("none of {} settings counts; the first: no memory",
                                              searched.found.tried.size()));
}

TEST(Tuner, TheScenarioAsItWasMustHaveTheFigure) {
  FakePoints points([](const auto& lines) {
    return value_of(lines, "traffic.load") ? valley(lines) : FakeResult{{{"pauses", 0}}};
  });
  FakeMonitor monitor;
  const Searched searched = tune(settings_for(), points, monitor);
  EXPECT_EQ(message_of(searched),
            "the scenario as it is cannot be compared with: it has no figure slowdown.p99");
  EXPECT_FALSE(searched.outcome.error().is_misuse);
  EXPECT_EQ(points.simulated, 2u) << "nothing is tried in vain";
}

TEST(Tuner, AScenarioThatIsRefusedIsAMisuse) {
  FakePoints points([](const auto&) { return FakeResult{{}, "traffic.load: must be less"}; });
  points.are_misuse = true;
  FakeMonitor monitor;
  const Searched searched = tune(settings_for(), points, monitor);
  EXPECT_TRUE(searched.outcome.error().is_misuse);
}

TEST(Tuner, ASettingThatCannotBeReadEndsTheSearch) {
  FakePoints points(valley);
  points.refuses = [](const auto& lines) { return value_of(lines, "traffic.load").has_value(); };
  FakeMonitor monitor;
  EXPECT_EQ(message_of(tune(settings_for(), points, monitor)), "it is refused");
}

TEST(Tuner, EndsWhereItIsInterrupted) {
  for (const std::size_t at : {1u, 9u}) {
    FakePoints points(valley);
    FakeMonitor monitor;
    points.before_each = [&](const FakePoints& these) {
      monitor.continues = these.simulated < at;
      return monitor.continues;
    };
    const std::string message = message_of(tune(settings_for(), points, monitor));
    EXPECT_EQ(points.simulated, at);
    EXPECT_EQ(message, at == 1 ? "interrupted: the same command resumes it"
                               : "interrupted after 4 of 30 settings; the same command resumes it");
  }
}

TEST(Tuner, AFullDiskIsNamed) {
  FakePoints points(valley);
  points.before_each = [](FakePoints& these) {
    if (these.simulated == 9) these.stopped_because = "x.json: No space left on device";
    return these.stopped_because.empty();
  };
  FakeMonitor monitor;
  EXPECT_EQ(message_of(tune(settings_for(), points, monitor)), "x.json: No space left on device");
}

TEST(Tuner, NoSettingIsSimulatedTwice) {
  const TuneSettings settings = settings_for("traffic.pattern=a,b,c");
  FakePoints points([](const auto&) { return FakeResult{{{figure, 7}}}; });
  FakeMonitor monitor;
  const Searched searched = tune(settings, points, monitor);
  ASSERT_TRUE(searched.outcome) << message_of(searched);
  EXPECT_EQ(points.simulated, (1 + 3) * 2 + 2 * 3u) << "four settings, and two on other seeds";
}

TEST(Tuner, GainIsAShareOfWhatWas) {
  TuneSettings settings;
  EXPECT_DOUBLE_EQ(settings.gain(10, 5), 0.5);
  EXPECT_DOUBLE_EQ(settings.gain(10, 15), -0.5);
  EXPECT_DOUBLE_EQ(settings.gain(0, 0), 0);
  EXPECT_DOUBLE_EQ(settings.gain(0, 5), -1);
  settings.maximizes = true;
  EXPECT_DOUBLE_EQ(settings.gain(10, 15), 0.5);
  EXPECT_DOUBLE_EQ(settings.gain(0, 5), 1);
}

TEST(Objective, LimitsAreReadOrRefused) {
  auto limit = parse_limit("traffic.x.fct_us.max>=2.5e3");
  ASSERT_TRUE(limit);
  EXPECT_TRUE(limit->allows(2'500));
  EXPECT_FALSE(limit->allows(2'499));
  for (const char* wrong :
       {"", "<=1", "pauses", "pauses<1", "pauses<=", "pauses<=1x", "pauses=1"}) {
    const auto read = parse_limit(wrong);
    ASSERT_FALSE(read) << wrong;
    EXPECT_NE(read.error().message.find("write FIGURE<=NUMBER"), std::string::npos);
  }
  const auto unknown = parse_limit("pause<=0");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("did you mean pauses?"), std::string::npos)
      << unknown.error().message;
}

TEST(Objective, AFigureThatIsAbsentWhereItIs0CountsAs0) {
  const report::Outcome nothing;
  EXPECT_EQ(value_in(nothing, "slowdown.p99"), std::nullopt);
  std::size_t zeros = 0;
  for (const experiment::Row& row : experiment::rows()) {
    const auto value = value_in(nothing, std::string(row.figure.key));
    EXPECT_EQ(value.has_value(), row.when == experiment::When::not_zero) << row.figure.key;
    zeros += value == 0.0 ? 1 : 0;
  }
  EXPECT_GT(zeros, 0u);
  EXPECT_TRUE(is_figure("traffic.x.fct_us.max"));
  EXPECT_FALSE(is_figure("traffic.x"));
}

}  // namespace
}  // namespace tulle::study
