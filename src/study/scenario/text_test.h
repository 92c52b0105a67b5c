#pragma once

// Set-ups and errors of scenarios that tests give as texts.

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "study/scenario/build.h"
#include "study/scenario/scenario.h"

namespace tulle::scenario {

inline constexpr char four_hosts[] = R"(title = "Four"
[topology]
kind = "single-switch"
hosts = 4
link_rate = "100Gbps"
[traffic]
pattern = "permutation"
bytes = "10KB"
)";

inline Setup built(const std::string& text, const std::vector<std::string>& set = {},
                   std::size_t variant = 0, const std::string& folder = "") {
  auto scenario = Scenario::parse(text, "s.toml", folder, set);
  if (!scenario) {
    ADD_FAILURE() << scenario.error().message;
    return {};
  }
  auto setup = scenario->build(variant);
  if (!setup) {
    ADD_FAILURE() << setup.error().message;
    return {};
  }
  return std::move(*setup);
}

// Returns the error of a text with some keys set, from parse or else from build.
inline std::string wrong(const std::string& text, const std::vector<std::string>& set = {},
                         const std::string& folder = "") {
  auto scenario = Scenario::parse(text, "s.toml", folder, set);
  std::string said;
  if (!scenario) {
    said = scenario.error().message;
  } else if (auto setup = scenario->build(0); !setup) {
    said = setup.error().message;
  }
  EXPECT_EQ(said.find('\n'), std::string::npos) << said;
  return said;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace tulle::scenario
