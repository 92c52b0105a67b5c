#pragma once

// Writes the outcomes of runs as a table for people and as files for programs.

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "scenario/run.h"

namespace tulle::scenario {

// Returns a table with one row per variant, and below each one row per kind of its traffic.
std::string summary_table(const std::vector<Outcome>& outcomes);

// Writes FOLDER/summary.json: {"scenario", "title", "variants": […]}, or, if there is only one
// variant, its figures beside these. For each variant it writes flows.csv and links.csv,
// samples.csv if there are samples, and hosts.csv if hosts have a kernel's stack. They lie in a
// folder of the variant's name if there are several. Files appear whole or not at all.
Result<void> write_results(const std::string& folder, const Scenario& scenario,
                           const std::vector<Outcome>& outcomes);

// The functions below return the texts of those files.
std::string summary_json(const Scenario& scenario, const std::vector<Outcome>& outcomes);
// Returns a figure of a variant in summary.json, "dropped" or "fct_us.p99", or nothing if it has
// none of that name.
std::optional<double> summary_figure(const Outcome& outcome, const std::string& name);
std::string flows_csv(const Outcome& outcome);
std::string links_csv(const Outcome& outcome);
std::string hosts_csv(const Outcome& outcome);  // if hosts have a kernel's stack

// Writes a file, which appears whole or not at all.
Result<void> write_file(const std::string& path, const std::string& text);

}  // namespace tulle::scenario
