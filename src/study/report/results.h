#pragma once

// Writes results as files for programs.

#include <string>

#include "base/result.h"
#include "os/output_folder.h"
#include "study/report/outcome.h"

namespace tulle::report {

// Writes summary.json to the folder: {"scenario", "title", "variants": […]}, or, if there is only
// one variant, its figures next to these. For each variant it writes flows.csv and links.csv,
// samples.csv if there are samples, and hosts.csv if hosts have a kernel's stack. They are in a
// folder of the variant's name if there are several, of which some may have no results. Files
// appear whole or not at all.
Result<void> write_results(const OutputFolder& folder, const Results& results, bool are_several);

// The functions below return the texts of those files.
std::string summary_json(const Results& results);
std::string flows_csv(const Outcome& outcome);
std::string sheet_csv(const Sheet& sheet);

// Writes a file, which appears whole or not at all.
Result<void> write_file(const std::string& path, const std::string& text);

}  // namespace tulle::report
