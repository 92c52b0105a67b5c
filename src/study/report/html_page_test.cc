#include "study/report/html_page.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace tulle::report {
namespace {

constexpr Figure end_figure{.key = "end_us",
                            .unit = "us",
                            .heading = "all done us",
                            .form = Form::number,
                            .column = {1, Best::least}};
constexpr Figure dropped_figure{.key = "dropped", .unit = "frames", .heading = "dropped"};
constexpr Figure paused_figure{
    .key = "paused_us", .unit = "us", .heading = "paused us", .form = Form::number};
constexpr Figure bytes_figure{.key = "bytes", .unit = "bytes", .heading = "bytes"};
constexpr Figure share_figure{
    .key = "utilisation", .unit = "1", .heading = "utilisation", .form = Form::per_cent};
constexpr Figure queue_figure{
    .key = "queue_max_bytes", .unit = "bytes", .heading = "queue max bytes"};

// One flow of 10 us, and a cable of 8 Gb/s whose one direction held frames up.
Outcome outcome_of(const std::string& name) {
  Outcome outcome;
  outcome.variant = name;
  Flow flow;
  flow.start = Time::zero();
  flow.end = flow.arrived = Time::microseconds(10);
  outcome.flows = {flow};
  outcome.figures = {{&end_figure, Time::microseconds(10)},
                     {&dropped_figure, std::uint64_t{3}},
                     {&paused_figure, Time::microseconds(1)}};
  outcome.links = {
      {"from", "port", "to"}, {&bytes_figure, &share_figure, &queue_figure, &paused_figure}, {}};
  outcome.links.rows = {
      {{"host 0", "0", "switch 0"}, {std::uint64_t{0}, 0.0, std::uint64_t{0}, Time::zero()}},
      {{"switch 0", "0", "host 0"},
       {std::uint64_t{5'000}, 0.5, std::uint64_t{2'000}, Time::microseconds(1)}}};
  return outcome;
}

Results results_of(const std::string& text) { return {text, text, text, {outcome_of(text)}}; }

PageText text_of(const std::string& text) { return {text, "fabric", {{text, text}}}; }

TEST(HtmlPage, SaysWhatTheRunWas) {
  const auto json = nlohmann::json::parse(page_json(results_of("a"), text_of("tulle compare")));
  EXPECT_EQ(json["command"], "tulle compare");
  EXPECT_EQ(json["what"], "fabric");
  const auto& variant = json["variants"][0];
  EXPECT_EQ(variant["name"], "a");
  EXPECT_EQ(variant["time_us"], 10);
  EXPECT_EQ(variant["exposed_us"], nullptr);
  EXPECT_EQ(variant["completions"], nlohmann::json({10}));
  EXPECT_EQ(json["losses"]["heads"], nlohmann::json({"paused us", "dropped"}));
  // 1 us of 2 ports' 10 us.
  EXPECT_EQ(json["losses"]["notes"][0],
            "a: ports were paused for 5.00 % of the time of all ports and 3 frames were dropped.");
}

// The queue of 2,000 bytes takes 2 us at 8 Gb/s, which are 5,000 bytes in half of 10 us.
TEST(HtmlPage, TheWorstLinkComesFirst) {
  const auto json = nlohmann::json::parse(page_json(results_of("a"), text_of("")));
  const auto& links = json["variants"][0]["links"];
  ASSERT_EQ(links.size(), 2u);
  EXPECT_EQ(json["nodes"][links[0][0].get<int>()], "switch 0");
  EXPECT_EQ(json["nodes"][links[0][1].get<int>()], "host 0");
  EXPECT_EQ(links[0][2], 0.5);
  EXPECT_EQ(links[0][3], 3);
}

TEST(HtmlPage, OfManyFlowsSomeAreShown) {
  Results results = results_of("a");
  Outcome& outcome = results.outcomes[0];
  for (int i = 2; i <= 5'000; ++i) {
    outcome.flows.push_back(outcome.flows[0]);
    outcome.flows.back().end = Time::microseconds(10 * i);
  }
  const auto json = nlohmann::json::parse(page_json(results, text_of("")));
  const auto& shown = json["variants"][0]["completions"];
  ASSERT_EQ(shown.size(), 1'000u);
  EXPECT_EQ(shown[0], 50);
  EXPECT_EQ(shown[999], 50'000);
}

TEST(HtmlPage, ATimelineHasRates) {
  Results results = results_of("a");
  results.outcomes[0].timeline = {Time::microseconds(2),
                                  {{1'000, 7, Time::microseconds(1), 4, 5, 6}}};
  const auto json = nlohmann::json::parse(page_json(results, text_of("")));
  const auto& timeline = json["variants"][0]["timeline"];
  EXPECT_EQ(timeline["interval_us"], 2);
  EXPECT_EQ(timeline["sent_gbps"], nlohmann::json({4}));
  EXPECT_EQ(timeline["queue_bytes"], nlohmann::json({7}));
  EXPECT_EQ(timeline["paused"], nlohmann::json({0.5}));
  EXPECT_EQ(timeline["dropped"], nlohmann::json({6}));
}

TEST(HtmlPage, SpansStandInTheirRows) {
  Results results = results_of("a");
  results.outcomes[0].spans = {{"", "backward"}, {"GPU 4"}, {}};
  results.outcomes[0].spans.spans = {{0, 1, Time::microseconds(1), Time::microseconds(3), true}};
  const auto json = nlohmann::json::parse(page_json(results, text_of("")));
  const auto& spans = json["variants"][0]["spans"];
  EXPECT_EQ(spans["phases"], nlohmann::json({"messages", "backward"}));
  EXPECT_EQ(spans["spans"][0], nlohmann::json({0, 1, 1, 3, 1}));
}

// A stranger's scenario can neither end the element in which its text stands, nor have the text
// filled in.
TEST(HtmlPage, TextsAreNotMarkup) {
  const std::string evil = "</script><script>alert(1)</script><!-- {{script}} & \"";
  const std::string page = html_page(results_of(evil), text_of(evil));
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
  EXPECT_EQ(page.find("<!-- {{"), std::string::npos);
  EXPECT_NE(page.find("<title>&lt;/script&gt;&lt;script&gt;alert(1)"), std::string::npos);
  const std::size_t begin = page.find("id=\"data\">") + 10;
  const std::string data = page.substr(begin, page.find("</script>", begin) - begin);
  EXPECT_EQ(nlohmann::json::parse(data)["description"], evil);
}

// A results folder may have any figures.
TEST(HtmlPage, NumbersNextToZeroAreShown) {
  static constexpr Figure end{"end_us", "us", "all done us", Form::number};
  Results results = results_of("a");
  results.outcomes[0].figures = {{&end, 1e-310}};
  const auto json = nlohmann::json::parse(page_json(results, text_of("")));
  EXPECT_GT(json["variants"][0]["time_us"].get<double>(), 0);
}

TEST(HtmlPage, BytesThatAreNoTextDoNotEndTheRun) {
  const std::string page = html_page(results_of("\xFF\xFE"), text_of("\xC3"));
  EXPECT_NE(page.find("\xEF\xBF\xBD"), std::string::npos);
}

// Nothing may run or be loaded but what the page itself has.
TEST(HtmlPage, APolicyNamesWhatMayRun) {
  const std::string page = html_page(results_of("a"), text_of("a"));
  const std::size_t begin = page.find("content=\"default-src 'none'; script-src 'sha256-");
  ASSERT_NE(begin, std::string::npos);
  const std::string policy = page.substr(begin, page.find('>', begin) - begin);
  EXPECT_EQ(policy.find("unsafe"), std::string::npos) << policy;
  EXPECT_EQ(policy.find("http"), std::string::npos) << policy;
  EXPECT_EQ(page.find("sourceMappingURL"), std::string::npos);
  EXPECT_EQ(page.find("{{script"), std::string::npos);
}

// The goal is 300 KB besides data.
TEST(HtmlPage, IsSmall) {
  const std::string page = html_page(results_of("a"), text_of("a"));
  EXPECT_LT(page.size() - page_json(results_of("a"), text_of("a")).size(), 300'000u);
}

}  // namespace
}  // namespace tulle::report
