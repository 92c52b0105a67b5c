#pragma once

// What a person wants to simulate: a scenario by name or from tables, and which of its variants.

#include <cstddef>
#include <string>
#include <vector>

#include "base/result.h"
#include "study/level.h"
#include "study/scenario/scenario.h"
#include "study/scenario/workloads.h"

namespace tulle::study {

struct Choice {
  // Files, or names of shipped_scenarios(): one, or none if the scenario comes from the tables.
  std::vector<std::string> scenarios;
  std::string topology, flows;              // tables: FILE.csv
  std::string fabric = "roce";              // of the tables: "roce" or "infiniband"
  std::string congestion_control = "none";  // of the tables: "none" or "dcqcn-hpcc"
  std::vector<std::string> set;             // lines of TOML
  scenario::Overrides overrides;
  std::string variant;  // empty: all
  std::string capture;  // a file for the frames of one variant; empty: none
  std::string level = packet_level;
  bool unvalidated = false;  // also outside the ranges in which the flow level was measured
};

// The scenario, and the variants of it that are to be simulated.
struct Chosen {
  scenario::Scenario scenario;
  std::vector<std::size_t> variants;
};

// Reads the scenario. `has_ranks` says that several processes simulate it together. The error is a
// misuse, in one line that spells members as the caller's users know them.
Result<Chosen> choose(const Choice& choice, bool has_ranks, const scenario::Spelling& spell);

// Fails if nobody can simulate at that level. The error is a misuse.
Result<void> check_level(const std::string& level, bool unvalidated, bool has_ranks,
                         const scenario::Spelling& spell);

}  // namespace tulle::study
