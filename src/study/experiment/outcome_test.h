#pragma once

// Test support: runs the first variant of a scenario's text and returns its outcome, and reads
// figures by their keys.

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "study/experiment/figures.h"
#include "study/experiment/run.h"
#include "study/scenario/scenario.h"

namespace tulle::experiment {

// Returns nothing, and fails the test, if the text is refused.
inline std::optional<scenario::Setup> setup_of(const std::string& text, const std::string& folder,
                                               const std::vector<std::string>& set) {
  auto scenario = scenario::Scenario::parse(text, "s.toml", folder, set);
  if (!scenario) {
    ADD_FAILURE() << scenario.error().message;
    return {};
  }
  auto setup = scenario->build(0);
  if (!setup) {
    ADD_FAILURE() << setup.error().message;
    return {};
  }
  return std::move(*setup);
}

inline report::Outcome outcome_of(const std::string& text, const std::string& folder = "",
                                  const std::vector<std::string>& set = {},
                                  bool order_by_time = false, std::uint32_t threads = 1) {
  auto setup = setup_of(text, folder, set);
  if (!setup) return {};
  const std::uint32_t usable = std::min(threads, setup->topology.hosts);
  auto run = Run::prepare(std::move(*setup), threads);
  EXPECT_EQ((*run)->threads(), usable);
  if (order_by_time) (*run)->order_by_time();
  (*run)->run([](const Progress&) { return true; });
  EXPECT_TRUE((*run)->check_payloads());
  return (*run)->outcome();
}

// Returns the figure as summary.json has it.
inline double number(const report::Outcome& outcome, std::string_view name) {
  const report::Measured* found = find(outcome, name);
  if (found != nullptr) return report::rounded(found->value);
  ADD_FAILURE() << "there is no figure " << name;
  return 0;
}

// Returns a figure that counts; 0 for one that a run has only if it is not 0.
inline std::uint64_t count(const report::Outcome& outcome, std::string_view name) {
  if (const report::Measured* found = find(outcome, name)) {
    return std::get<std::uint64_t>(found->value);
  }
  EXPECT_TRUE(std::ranges::any_of(
      rows(), [&](const Row& row) { return row.figure.key == name && row.when == When::not_zero; }))
      << "there is no figure " << name;
  return 0;
}

// Returns the count of a link, or of a host, from its row of the sheet.
inline std::uint64_t count(const report::Sheet& sheet, std::size_t row, std::string_view key) {
  return std::get<std::uint64_t>(*find(sheet, sheet.rows[row], key));
}

}  // namespace tulle::experiment
