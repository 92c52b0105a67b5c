// Tests the table of figures: a figure shows up everywhere because it has a row there.

#include "study/experiment/figures.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "study/experiment/outcome_test.h"
#include "study/report/columns.h"
#include "study/report/results.h"

namespace tulle::experiment {
namespace {

using report::Figure;
using report::Form;
using report::Value;

TEST(Figures, EachHasAKeyOfItsOwnAUnitAndAHeading) {
  std::set<std::string_view> keys, headings;
  for (const Row& row : rows()) {
    EXPECT_FALSE(row.figure.key.empty());
    EXPECT_TRUE(keys.insert(row.figure.key).second) << row.figure.key << " is there twice";
    EXPECT_FALSE(row.figure.unit.empty()) << row.figure.key;
    EXPECT_FALSE(row.figure.heading.empty()) << row.figure.key;
    EXPECT_TRUE(headings.insert(row.figure.heading).second) << row.figure.heading;
  }
}

TEST(Figures, NoTwoHaveOnePlace) {
  std::set<int> side_by_side, summary;
  for (const auto& [figure, read, total, when, listing, adds_to] : rows()) {
    const int column = figure.column.place;
    const int place = figure.summary.place;
    EXPECT_TRUE(column == 0 || side_by_side.insert(column).second) << figure.key;
    EXPECT_TRUE(place == 0 || summary.insert(place).second) << figure.key;
    EXPECT_TRUE(place == 0 || figure.summary.width > 0) << figure.key;
  }
}

TEST(Figures, EachIsListedSomewhere) {
  std::set<std::string_view> of_run;
  for (const Row& row : rows()) {
    EXPECT_TRUE(is_of_run(row) || is_of_links(row) || is_of_hosts(row)) << row.figure.key;
    if (is_of_run(row)) of_run.insert(row.figure.key);
  }
  for (const Row& row : rows()) {
    EXPECT_TRUE(row.adds_to.empty() || of_run.contains(row.adds_to)) << row.figure.key;
  }
}

// --- markers ------------------------------------------------------------------------------------

// The marker of the row with this index is a number that no other has.
std::uint64_t mark(std::size_t row) { return 1'001 + row; }

Value marker(const Figure& figure, std::size_t row) {
  if (figure.form == Form::count) return mark(row);
  if (figure.form == Form::rate) return report::Rate{static_cast<double>(mark(row)) * 1e9};
  return static_cast<double>(mark(row));
}

std::string shown(const Figure& figure, std::size_t row, int digits) {
  const auto number = static_cast<double>(mark(row));
  if (figure.form == Form::count) return fmt::format("{}", mark(row));
  if (figure.form == Form::per_cent) return fmt::format("{:.1f} %", number * 100);
  if (figure.form == Form::rate) return fmt::format("{:.2f} Tbps", number * 1e-3);
  return fmt::format("{:.{}f}", number, digits);
}

// Returns an outcome with a marker for each figure.
report::Outcome marked() {
  report::Outcome outcome;
  outcome.flows.resize(1);
  outcome.flows[0].end = outcome.flows[0].arrived = Time::zero();
  outcome.links = {{"from"}, {}, {{{"host 0"}, {}}}};
  outcome.hosts = report::Sheet{{"host"}, {}, {{{"host 0"}, {}}}};
  for (std::size_t i = 0; i < rows().size(); ++i) {
    const Row& row = rows()[i];
    const Value value = marker(row.figure, i);
    const bool of_simulator = row.listing == Listing::simulator;
    if (is_of_run(row)) {
      (of_simulator ? outcome.simulator : outcome.figures).push_back({&row.figure, value});
    }
    for (const bool of_links : {true, false}) {
      if (!(of_links ? is_of_links(row) : is_of_hosts(row))) continue;
      report::Sheet& sheet = of_links ? outcome.links : *outcome.hosts;
      sheet.figures.push_back(&row.figure);
      sheet.rows[0].values.push_back(value);
    }
  }
  return outcome;
}

TEST(Figures, EachOfARunIsInJsonUnderItsKey) {
  const auto json = nlohmann::json::parse(report::summary_json({"", "", "", {marked()}}));
  for (std::size_t i = 0; i < rows().size(); ++i) {
    if (!is_of_run(rows()[i])) continue;
    std::string path = "/" + std::string(rows()[i].figure.key);
    std::ranges::replace(path, '.', '/');
    EXPECT_EQ(json.value(nlohmann::json::json_pointer(path), 0.0), static_cast<double>(mark(i)))
        << path;
  }
}

std::vector<std::string> cells(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> found;
  for (std::string cell; std::getline(in, cell, ',');) found.push_back(cell);
  return found;
}

void expect_in_csv(const report::Sheet& sheet, bool (*is_of)(const Row&)) {
  const std::string csv = report::sheet_csv(sheet);
  const std::size_t end = csv.find('\n');
  const std::vector<std::string> heads = cells(csv.substr(0, end));
  const std::vector<std::string> values = cells(csv.substr(end + 1));
  for (std::size_t i = 0; i < rows().size(); ++i) {
    const Figure& figure = rows()[i].figure;
    if (!is_of(rows()[i])) continue;
    const auto found = std::ranges::find(heads, report::csv_key(figure));
    ASSERT_NE(found, heads.end()) << figure.key;
    const std::string& text = values.at(static_cast<std::size_t>(found - heads.begin()));
    EXPECT_EQ(std::stod(text), static_cast<double>(mark(i))) << figure.key;
  }
}

TEST(Figures, EachOfALinkOrAHostIsInCsvUnderItsKey) {
  const report::Outcome outcome = marked();
  expect_in_csv(outcome.links, is_of_links);
  expect_in_csv(*outcome.hosts, is_of_hosts);
}

TEST(Figures, EachWithAColumnIsInTheTablesUnderItsHeading) {
  const report::Outcome outcome = marked();
  const report::Table table = report::telling_figures("variant", {outcome});
  const std::string page = report::markdown(table);
  const std::string summary = report::summary_table({outcome});
  for (std::size_t i = 0; i < rows().size(); ++i) {
    const Figure& figure = rows()[i].figure;
    if (figure.column.place > 0) {
      const auto head = std::ranges::find(table.heads, figure.heading);
      ASSERT_NE(head, table.heads.end()) << figure.heading;
      const auto column = static_cast<std::size_t>(head - table.heads.begin());
      EXPECT_EQ(table.rows[0][column].text, shown(figure, i, 1)) << figure.heading;
      EXPECT_NE(page.find(fmt::format("| {} |", figure.heading)), std::string::npos);
    }
    if (figure.summary.place == 0) continue;
    const std::string_view own = figure.summary.heading;
    EXPECT_NE(summary.find(own.empty() ? figure.heading : own), std::string::npos);
    EXPECT_NE(summary.find(shown(figure, i, figure.summary.digits)), std::string::npos)
        << figure.heading;
  }
}

// --- a run --------------------------------------------------------------------------------------

// The scenario has bytes, told receivers, faults and kernels, so that it has all figures but those
// of jobs and prices, and those that are listed only if they are not 0.
TEST(Figures, ARunMeasuresThemAll) {
  const report::Outcome outcome = outcome_of(R"([topology]
kind = "single-switch"
hosts = 3
link_rate = "100Gbps"
[traffic]
pattern = "permutation"
bytes = "10KB"
payload = "bytes"
notify = true
[host]
kernel.cores = 1
[[fault]]
kind = "bit-errors"
link = ["host 0", "switch 0"]
rate = 1e-9
)");
  for (const Row& row : rows()) {
    const std::string key(row.figure.key);
    const bool is_needed = row.when != When::not_zero && row.when != When::with_jobs &&
                           row.when != When::with_prices && row.when != When::at_flow_level;
    if (is_of_run(row) && is_needed) {
      EXPECT_NE(find(outcome, key), nullptr) << key;
    }
    if (const report::Measured* measured = find(outcome, key); measured != nullptr) {
      EXPECT_TRUE(report::has_kind(row.figure, measured->value)) << key;
    }
    const auto has = [&](const report::Sheet& sheet) {
      return std::ranges::find(sheet.figures, &row.figure) != sheet.figures.end();
    };
    EXPECT_EQ(has(outcome.links), is_of_links(row)) << key;
    EXPECT_EQ(has(*outcome.hosts), is_of_hosts(row)) << key;
  }
  for (const report::Sheet* sheet : {&outcome.links, &*outcome.hosts}) {
    for (const auto& row : sheet->rows) EXPECT_EQ(row.values.size(), sheet->figures.size());
  }
}

}  // namespace
}  // namespace tulle::experiment
