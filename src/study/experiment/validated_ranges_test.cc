#include "study/experiment/validated_ranges.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "places.h"

namespace tulle::experiment {
namespace {

std::string range(const std::string& change = "") {
  return R"({"ranges": [{"backlog": "credits", "at_once": false, "hosts_min": 64,
 "flow_bytes_min": 1000, "load_max": 0.5,
 "bottleneck_flows_max": 8, "error_max": 0.07, "runs": 12, "more": [])" +
         change + "}]}";
}

TEST(ValidatedRanges, AreRead) {
  auto ranges = parse_ranges(range(), "f.json");
  ASSERT_TRUE(ranges) << ranges.error().message;
  ASSERT_EQ(ranges->size(), 1u);
  const ValidatedRange& one = ranges->front();
  EXPECT_EQ(one.backlog, fluid::Backlog::credits);
  EXPECT_FALSE(one.at_once);
  EXPECT_EQ(one.hosts_min, 64u);
  EXPECT_EQ(one.flow_bytes_min, 1000);
  EXPECT_EQ(one.load_max, 0.5);
  EXPECT_EQ(one.bottleneck_flows_max, 8u);
  EXPECT_EQ(one.error_max, 0.07);
  EXPECT_EQ(one.runs, 12u);
}

// A key that comes twice has its last value.
TEST(ValidatedRanges, AWrongFileIsRefusedInOneLine) {
  const std::vector<std::string> texts = {
      "",
      "{",
      "[]",
      "{\"ranges\": 3}",
      "{\"ranges\": [3]}",
      "{\"ranges\": [{}]}",
      std::string(100'000, '['),
      range(R"(, "backlog": "hope")"),
      range(R"(, "backlog": 7)"),
      range(R"(, "hosts_min": -1)"),
      range(R"(, "hosts_min": 1e30)"),
      range(R"(, "runs": 4294967296)"),
      range(R"(, "load_max": 1.5)"),
      range(R"(, "error_max": -0.1)"),
      range(R"(, "error_max": "0.1")"),
      range(R"(, "error_max": 1e999)"),
      range(R"(, "at_once": 1)"),
  };
  for (const std::string& text : texts) {
    auto ranges = parse_ranges(text, "f.json");
    ASSERT_FALSE(ranges) << text;
    EXPECT_EQ(ranges.error().message.rfind("f.json: ", 0), 0u) << ranges.error().message;
    EXPECT_EQ(ranges.error().message.find('\n'), std::string::npos) << ranges.error().message;
  }
}

// The file that comes with the program has a range of each kind, and no range promises more than it
// should.
TEST(ValidatedRanges, ThoseThatComeAlongHoldTheBound) {
  std::ifstream in(TULLE_TEST_DATA "/../../scenarios/flow-level.json");
  std::ostringstream text;
  text << in.rdbuf();
  auto ranges = parse_ranges(text.str(), "flow-level.json");
  ASSERT_TRUE(ranges) << ranges.error().message;
  bool has_window = false;
  bool has_credits = false;
  bool has_jobs = false;
  for (const ValidatedRange& each : *ranges) {
    (each.backlog == fluid::Backlog::window ? has_window : has_credits) = true;
    EXPECT_LE(each.error_max, each.of_jobs ? 0.01 : 0.1);
    has_jobs = has_jobs || each.of_jobs;
    EXPECT_GT(each.runs, 2u);
    EXPECT_TRUE(each.at_once || each.of_jobs || each.load_max > 0);
  }
  EXPECT_TRUE(has_window && has_credits && has_jobs);
}

}  // namespace
}  // namespace tulle::experiment
