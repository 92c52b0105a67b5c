#pragma once

// Test support: runs the first variant of a scenario's text and returns its outcome.

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "scenario/run.h"
#include "scenario/scenario.h"

namespace tulle::scenario {

inline Outcome outcome_of(const std::string& text, const std::string& folder = "",
                          std::vector<std::string> set = {}, bool order_by_time = false) {
  auto scenario = Scenario::parse(text, "s.toml", folder, std::move(set));
  if (!scenario) {
    ADD_FAILURE() << scenario.error().message;
    return {};
  }
  auto setup = scenario->build(0);
  if (!setup) {
    ADD_FAILURE() << setup.error().message;
    return {};
  }
  auto run = Run::prepare(std::move(*setup));
  if (order_by_time) (*run)->order_by_time();
  (*run)->run([](const Progress&) { return true; });
  EXPECT_TRUE((*run)->check_payloads());
  return (*run)->outcome();
}

}  // namespace tulle::scenario
