#include "study/report/links.h"

#include <gtest/gtest.h>

#include <string>

namespace tulle::report {
namespace {

constexpr Figure end_figure{.key = "end_us", .unit = "us", .heading = "all done us"};
constexpr Figure bytes_figure{.key = "bytes", .unit = "bytes", .heading = "bytes"};
constexpr Figure share_figure{.key = "utilisation", .unit = "1", .heading = "utilisation"};
constexpr Figure queue_figure{.key = "queue_max_bytes", .unit = "bytes", .heading = "queue"};
constexpr Figure paused_figure{.key = "paused_us", .unit = "us", .heading = "paused us"};

// A run of 100 us on links of 8 Gb/s, which send 1,000 bytes a microsecond.
class Links : public testing::Test {
 protected:
  Links() {
    outcome_.variant = "a";
    outcome_.figures = {{&end_figure, Time::microseconds(100)}};
    outcome_.links = {
        {"from", "port", "to"}, {&bytes_figure, &share_figure, &queue_figure, &paused_figure}, {}};
  }
  void add(const std::string& from, double share, std::uint64_t queue, std::int64_t paused_us) {
    const auto bytes = static_cast<std::uint64_t>(share * 100 * 1'000);
    outcome_.links.rows.push_back(
        {{from, "0", "host 9"}, {bytes, share, queue, Time::microseconds(paused_us)}});
  }
  Outcome outcome_;
};

TEST_F(Links, WaitForPausesAndForTheirQueues) {
  add("switch 0", 0.5, 4'000, 3);
  add("switch 1", 0, 0, 2);
  const auto loads = link_loads(outcome_);
  ASSERT_EQ(loads.size(), 2u);
  EXPECT_DOUBLE_EQ(loads[0].waited_us, 3 + 4);
  EXPECT_DOUBLE_EQ(loads[1].waited_us, 2);
  EXPECT_EQ(loads[1].row, 1u);
}

TEST_F(Links, TheWorstComesFirstAndEqualOnesInOrder) {
  add("switch 0", 0.1, 0, 0);
  add("switch 1", 0.9, 0, 0);
  add("switch 2", 0.1, 0, 5);
  add("switch 3", 0.1, 0, 0);
  const auto loads = link_loads(outcome_);
  EXPECT_EQ(worst_links(loads, 9), (std::vector<std::size_t>{2, 1, 0, 3}));
  EXPECT_EQ(worst_links(loads, 2), (std::vector<std::size_t>{2, 1}));
}

TEST_F(Links, TheTableHasThoseThatMatter) {
  add("switch 0", 0.5, 900, 0);  // less than a hundredth of the run
  EXPECT_TRUE(worst_links_table("fabric", {outcome_}).rows.empty());
  for (int i = 1; i <= 12; ++i) add("switch " + std::to_string(i), 0.5, 0, i);
  Outcome other = outcome_;
  other.variant = "b";
  const Table table = worst_links_table("fabric", {outcome_, other});
  ASSERT_EQ(table.rows.size(), 10u);
  EXPECT_EQ(table.rows[0][0].text, "a");
  EXPECT_EQ(table.rows[0][1].text, "switch 12");
  EXPECT_EQ(table.rows[1][0].text, "b");
  EXPECT_EQ(table.rows[9][1].text, "switch 8");
  EXPECT_EQ(table.rows[0].size(), table.heads.size());
}

TEST_F(Links, ARunThatDidNothingHasNoRows) {
  outcome_.figures.clear();
  add("switch 0", 0, 0, 0);
  EXPECT_TRUE(worst_links_table("fabric", {outcome_}).rows.empty());
}

}  // namespace
}  // namespace tulle::report
