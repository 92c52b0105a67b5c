#pragma once

// Fabrics by name, from folders of files, and traffic by name, for comparing the fabrics.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "study/scenario/job_keys.h"
#include "study/scenario/scenario.h"

namespace tulle::scenario {

// Reads the text of a fabric: its own `title`, `sources` and `default`, and tables of a scenario's
// keys. `file` is FOLDER/NAME.toml, which need not exist. The fabric has its name, the errors have
// its path, and profiles that the fabric names are in FOLDER/../profiles.
Result<Fabric> parse_fabric(std::string_view text, const std::string& file);

// Reads all fabrics of a folder, in the order of their names.
Result<std::vector<Fabric>> read_fabrics(const std::string& folder);

// Returns the fabrics that `names` lists as "a,b,c", in that order; all of them for "all"; or for
// "" those that are compared by default, and that go with so many planes. FILE.toml is a fabric in
// a separate file. The error lists the names that exist.
Result<std::vector<Fabric>> choose_fabrics(const std::vector<Fabric>& fabrics,
                                           const std::string& names, std::uint32_t planes = 1);

// A job of GPUs, and how many it has.
struct JobOption {
  std::string workload;
  std::optional<std::uint32_t> gpus;
};

// The choice of a workload. Members that are not given have defaults.
struct WorkloadOptions {
  // One of workloads(); a collective with its bytes, such as "allreduce:256MiB", a training step,
  // "step:MODEL", or requests to a model, "serve:MODEL", which run among GPUs, as does a trace's
  // file or folder (study/traces/reader.h); or another file: FILE.toml, a scenario, or FILE.csv,
  // flows.
  std::string workload;
  std::optional<std::uint32_t> gpus;
  std::vector<JobOption> others;  // jobs alongside that one, each on its own GPUs
  std::string placement;          // of several jobs; empty means the default
  std::uint32_t storage = 0;      // servers besides those of the GPUs, for a step's checkpoints
  std::string servers;    // a profile of servers, or a file FILE.toml; empty means the default
  std::string algorithm;  // of a collective; empty means the usual one
  std::string protocol;   // of a collective; empty means simple
  std::string prices;     // a file of prices; empty means none
  // This is a table of links with FILE.csv. With a job of GPUs it is one of rail_topologies, or
  // empty for the first of them.
  std::string topology;
  std::optional<std::uint32_t> planes;  // networks among which adapters split their rate
  std::optional<std::uint32_t> hosts;
  std::string bytes;      // "256KB"; empty means the default
  std::string link_rate;  // "200Gbps"; empty means the default
  std::optional<std::uint64_t> seed;
  std::vector<std::string> set;  // as for Scenario::read
};

// Networks of a job's servers. With "rail-only" each rail is a separate network.
inline constexpr std::array<std::string_view, 2> rail_topologies = {"rail-optimised", "rail-only"};

struct Workload {
  std::string_view name;
  std::string_view title;
  std::string_view bytes;    // default; empty if the workload has none
  std::string_view traffic;  // keys of [traffic]
};
const std::vector<Workload>& workloads();

// Returns the names and titles of the files NAME.toml of a folder, in the order of their names.
std::vector<std::pair<std::string, std::string>> titles_in(const std::string& folder);

// Returns the scenario of these options, for Scenario::on_fabrics. `folder` holds the scenarios
// that come with Tulle. The error is one line that names the option.
Result<Scenario> workload_scenario(const WorkloadOptions& options, const std::string& folder);

}  // namespace tulle::scenario
