#include "study/experiment/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "study/experiment/run.h"
#include "study/report/results.h"
#include "study/scenario/scenario.h"

namespace tulle::experiment {
namespace {

constexpr char incast[] =
    "[topology]\nkind = \"single-switch\"\nhosts = 9\nlink_rate = \"100Gbps\"\n"
    "[traffic]\npattern = \"incast\"\nbytes = \"100KB\"\n[fabric]\nkind = \"roce\"\n";
constexpr char layers[] =
    "[topology]\nkind = \"single-switch\"\nhosts = 32\nlink_rate = \"400Gbps\"\n"
    "[traffic]\npattern = \"experts\"\ntokens = 8\nlayers = 2\nattention_time = \"50us\"\n"
    "[fabric]\nkind = \"infiniband\"\n";

report::Outcome outcome_of(const char* text, bool with_timeline) {
  auto scenario = scenario::Scenario::parse(text, "s.toml", "", {});
  EXPECT_TRUE(scenario) << scenario.error().message;
  auto setup = scenario->build(0);
  EXPECT_TRUE(setup) << setup.error().message;
  setup->timeline = with_timeline;
  auto run = Run::prepare(std::move(*setup));
  (*run)->run([](const Progress&) { return true; });
  return (*run)->outcome();
}

// Eight senders of 100 KB: the sum over time is what the links' counters say in the end.
TEST(Timeline, SumsAreTheCounters) {
  const report::Outcome outcome = outcome_of(incast, true);
  const report::Timeline& timeline = outcome.timeline;
  std::uint64_t sent = 0, queue = 0;
  Time paused;
  for (const report::Moment& moment : timeline.moments) {
    sent += moment.bytes_sent;
    paused += moment.paused;
    queue = std::max(queue, moment.queue_bytes);
  }
  std::uint64_t bytes = 0;
  for (const auto& row : outcome.links.rows) {
    if (!row.names[0].starts_with("host")) continue;
    bytes += std::get<std::uint64_t>(*find(outcome.links, row, "bytes"));
  }
  EXPECT_NEAR(static_cast<double>(sent), static_cast<double>(bytes),
              1e-3 * static_cast<double>(bytes));
  EXPECT_GT(queue, 100'000u);
  EXPECT_LE(paused, std::get<Time>(find(outcome.figures, "paused_us")->value));
  EXPECT_GE(timeline.moments.size(), 70u) << "each round of a microsecond has one";
}

// A run of some 80 us has a moment for each round. A longer one has longer intervals.
TEST(Timeline, LongRunsHaveLongIntervals) {
  std::string text(incast);
  text.replace(text.find("100KB"), 5, "10MB");
  const report::Timeline timeline = outcome_of(text.c_str(), true).timeline;
  EXPECT_GE(timeline.moments.size(), report::Timeline::moments_max / 2);
  EXPECT_LT(timeline.moments.size(), report::Timeline::moments_max);
  EXPECT_GT(timeline.interval, Time::microseconds(3));
  const double end = static_cast<double>(timeline.moments.size()) * timeline.interval.to_seconds();
  EXPECT_NEAR(end / (8 * 10e6 * 8 / 100e9), 1, 0.1);
}

TEST(Timeline, TheResultsAreTheSameWithAndWithout) {
  for (const char* text : {incast, layers}) {
    const report::Outcome with = outcome_of(text, true), without = outcome_of(text, false);
    EXPECT_EQ(report::flows_csv(with), report::flows_csv(without));
    EXPECT_EQ(report::sheet_csv(with.links), report::sheet_csv(without.links));
    EXPECT_TRUE(without.timeline.moments.empty());
    EXPECT_TRUE(without.spans.rows.empty());
  }
}

// The timeline shows 16 of the 32 GPUs. Each computes its attention twice, for 50 us each.
TEST(Timeline, SpansAreThePhasesOfSomeGpus) {
  const report::Spans spans = outcome_of(layers, true).spans;
  ASSERT_EQ(spans.rows.size(), 16u);
  EXPECT_EQ(spans.rows[1], "GPU 2");
  const auto attention = static_cast<std::uint32_t>(std::ranges::find(spans.phases, "attention") -
                                                    spans.phases.begin());
  const auto dispatch = static_cast<std::uint32_t>(std::ranges::find(spans.phases, "dispatch") -
                                                   spans.phases.begin());
  std::vector<int> computed(16), sent(16);
  for (const report::Span& span : spans.spans) {
    EXPECT_LT(span.start, span.end);
    if (span.phase == attention) {
      EXPECT_EQ(span.end - span.start, Time::microseconds(50));
      EXPECT_FALSE(span.is_message);
      ++computed[span.row];
    }
    if (span.phase == dispatch && span.is_message) ++sent[span.row];
  }
  EXPECT_EQ(computed, std::vector<int>(16, 2));
  for (const int count : sent) EXPECT_GE(count, 2);
}

}  // namespace
}  // namespace tulle::experiment
