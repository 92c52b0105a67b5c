#include "study/report/stored.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tulle::report {
namespace {

constexpr std::array<Figure, 5> known = {{{"flows", "flows", "flows"},
                                          {"end_us", "us", "end", Form::number},
                                          {"share", "1", "share", Form::per_cent},
                                          {"goodput", "Gb/s", "goodput", Form::rate},
                                          {"fct_us.p99", "us", "99 %", Form::number}}};

const Figure* known_figure(std::string_view key) {
  for (const Figure& figure : known) {
    if (figure.key == key) return &figure;
  }
  return nullptr;
}

Outcome an_outcome() {
  Outcome outcome;
  outcome.variant = "pfc";
  outcome.flows.resize(3);
  outcome.flows[0].end = Time::microseconds(1);
  outcome.flows[2].failed = true;
  outcome.kind_of = {0, 1, 1};
  outcome.figures = {{&known[0], std::uint64_t{1} << 63},
                     {&known[1], Time::picoseconds(1'234'567'890'123'457)},
                     {&known[2], 0.1 + 0.2},
                     {&known[3], Rate{1.0 / 3}},
                     {&known[4], 1.5}};
  outcome.kinds = {{"one", {{&known[0], std::uint64_t{1}}}}, {"two", {}, Method{"ring", "ll"}}};
  outcome.method = Method{"tree", "simple"};
  return outcome;
}

TEST(StoredOutcome, NumbersThatAreNoneComeBack) {
  Outcome before;
  before.figures = {{&known[2], std::numeric_limits<double>::infinity()},
                    {&known[2], std::numeric_limits<double>::quiet_NaN()},
                    {&known[2], 1e-310}};
  auto after =
      stored_outcome(nlohmann::ordered_json::parse(stored_json(before).dump()), known_figure);
  ASSERT_TRUE(after);
  EXPECT_TRUE(std::isinf(exact(after->figures[0].value)));
  EXPECT_TRUE(std::isnan(exact(after->figures[1].value)));
  EXPECT_EQ(rounded(after->figures[2].value), 1e-310);
}

// Each value comes back to the last bit, through a text.
TEST(StoredOutcome, ComesBackAsItWas) {
  const Outcome before = an_outcome();
  const std::string text = stored_json(before).dump();
  auto after = stored_outcome(nlohmann::ordered_json::parse(text), known_figure);
  ASSERT_TRUE(after) << after.error().message;
  EXPECT_EQ(after->variant, "pfc");
  ASSERT_EQ(after->figures.size(), known.size());
  for (std::size_t i = 0; i < known.size(); ++i) {
    EXPECT_EQ(after->figures[i].figure, before.figures[i].figure);
    EXPECT_EQ(csv_text(after->figures[i].value), csv_text(before.figures[i].value));
  }
  EXPECT_EQ(std::get<Time>(after->figures[1].value).ps, 1'234'567'890'123'457);
  EXPECT_EQ(std::get<double>(after->figures[2].value), 0.1 + 0.2);
  EXPECT_EQ(after->method->algorithm, "tree");
  EXPECT_EQ(after->kinds[1].method->protocol, "ll");
  EXPECT_EQ(tally(*after).flows, 3u);
  EXPECT_EQ(tally(*after).finished, 1u);
  EXPECT_EQ(tally(*after, 1).failed, 1u);
  EXPECT_EQ(tally(*after, 1).flows, 2u);
  EXPECT_EQ(stored_json(*after).dump(), text);
}

TEST(StoredOutcome, AnythingElseIsAnError) {
  const auto good = stored_json(an_outcome());
  for (const char* key : {"variant", "tally", "figures", "kinds"}) {
    auto bad = good;
    bad.erase(key);
    EXPECT_FALSE(stored_outcome(bad, known_figure)) << key;
    bad[key] = 7;
    EXPECT_FALSE(stored_outcome(bad, known_figure)) << key;
  }
  auto bad = good;
  bad["tally"] = {1, 1, 1, 0};
  EXPECT_FALSE(stored_outcome(bad, known_figure)) << "more flows ended than there were";
  for (const auto& value : {nlohmann::ordered_json(-1), nlohmann::ordered_json(1.5),
                            nlohmann::ordered_json("1"), nlohmann::ordered_json(nullptr)}) {
    bad = good;
    bad["figures"][0]["count"] = value;
    EXPECT_FALSE(stored_outcome(bad, known_figure)) << value;
  }
  // Each figure has one kind of value.
  for (std::size_t i = 0; i < known.size(); ++i) {
    for (std::size_t other = 0; other < known.size(); ++other) {
      bad = good;
      bad["figures"][i]["key"] = known[other].key;
      const bool are_numbers = (i == 2 || i == 4) && (other == 2 || other == 4);
      EXPECT_EQ(static_cast<bool>(stored_outcome(bad, known_figure)), i == other || are_numbers)
          << known[i].key << " as " << known[other].key;
    }
  }
  bad = good;
  bad["figures"][0]["key"] = "nobody";
  EXPECT_FALSE(stored_outcome(bad, known_figure));
  EXPECT_FALSE(stored_outcome(nlohmann::ordered_json::array(), known_figure));
}

}  // namespace
}  // namespace tulle::report
