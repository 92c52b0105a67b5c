#pragma once

// What runs came to, as a table for people and as files for programs.

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "scenario/run.h"

namespace tulle::scenario {

// One row a variant.
std::string summary_table(const std::vector<Outcome>& outcomes);

// FOLDER/summary.json: {"scenario", "title", "variants": […]}, or, where there is but one variant,
// its figures beside these. For each variant flows.csv and links.csv, samples.csv where there are
// samples, and hosts.csv where hosts have a kernel's stack, in a folder of its name where there are
// several. Files appear whole or not at all.
Result<void> write_results(const std::string& folder, const Scenario& scenario,
                           const std::vector<Outcome>& outcomes);

// The texts of those files.
std::string summary_json(const Scenario& scenario, const std::vector<Outcome>& outcomes);
// A figure of a variant in summary.json, "dropped" or "fct_us.p99". None: it has none of the name.
std::optional<double> summary_figure(const Outcome& outcome, const std::string& name);
std::string flows_csv(const Outcome& outcome);
std::string links_csv(const Outcome& outcome);
std::string hosts_csv(const Outcome& outcome);  // where hosts have a kernel's stack

// The file appears whole or not at all.
Result<void> write_file(const std::string& path, const std::string& text);

}  // namespace tulle::scenario
