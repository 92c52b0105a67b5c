#pragma once

// Fabrics by name, as folders of files hold them, and traffic by name, to be compared on them.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "scenario/run.h"
#include "scenario/scenario.h"

namespace tulle::scenario {

// All of a folder, in the order of their names. FOLDER/NAME.toml has `title`, `sources` and
// `default` of its own, and tables of a scenario's keys.
Result<std::vector<Fabric>> read_fabrics(const std::string& folder);

// Of these the ones that "a,b,c" names, in that order; "all"; "": those that are compared by
// default. The error names those that there are.
Result<std::vector<Fabric>> choose_fabrics(const std::vector<Fabric>& fabrics,
                                           const std::string& names);

// What a workload is to be; what is not given has its default.
struct WorkloadOptions {
  std::string workload;  // one of those below, or a file: FILE.toml, a scenario, or FILE.csv, flows
  std::string topology;  // with FILE.csv: a table of links
  std::optional<std::uint32_t> hosts;
  std::string bytes;      // "256KB"; each empty: the default
  std::string link_rate;  // "200Gbps"
  std::optional<std::uint64_t> seed;
  std::vector<std::string> set;  // as Scenario::read has it
};

struct Workload {
  std::string_view name;
  std::string_view title;
  std::string_view bytes;    // default; empty: it has none
  std::string_view traffic;  // keys of [traffic]
};
const std::vector<Workload>& workloads();

// The scenario that they ask for, for Scenario::on_fabrics. `folder` holds the scenarios that come
// along. The error is one line that names the option.
Result<Scenario> workload_scenario(const WorkloadOptions& options, const std::string& folder);

// "3 of 64 flows failed, 2 are not done"; empty: all finished.
std::string unfinished(const Outcome& outcome);

}  // namespace tulle::scenario
