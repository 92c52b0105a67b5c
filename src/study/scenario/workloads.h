#pragma once

// Scenarios that a few choices describe, for comparing fabrics: traffic by name, jobs of GPUs, and
// tables of links and flows.

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "study/scenario/job_keys.h"
#include "study/scenario/scenario.h"

namespace tulle::scenario {

// Returns how the users of a caller write a member of the options below. Errors name members so:
// "hosts", or "--hosts" for users of a command.
using Spelling = std::function<std::string(std::string_view member)>;
std::string as_member(std::string_view member);

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
  std::string prices;     // a price list or a file of one; empty means none
  // This is a table of links with FILE.csv. With a job of GPUs it is one of rail_topologies, or
  // empty for the first of them.
  std::string topology;
  std::optional<std::uint32_t> planes;  // networks among which adapters split their rate
  std::optional<std::uint32_t> hosts;
  std::string bytes;      // "256KB"; empty means the default
  std::string link_rate;  // "200Gbps"; empty means the default
  std::optional<std::uint64_t> seed;
  bool is_alone = false;         // as in Overrides
  std::vector<std::string> set;  // as for Scenario::read
};

// Networks of a job's servers. With "rail-only" each rail is a separate network.
inline constexpr std::array<std::string_view, 2> rail_topologies = {"rail-optimised", "rail-only"};

struct Workload {
  using Value = std::variant<std::string_view, std::int64_t, double>;

  std::string_view name;
  std::string_view title;
  std::string_view bytes;                                     // default; empty: it has none
  std::vector<std::pair<std::string_view, Value>> traffic{};  // keys of [traffic]
};
const std::vector<Workload>& workloads();

// Returns the scenario of these options, for Scenario::on_fabrics. `folder` holds the scenarios
// that come with Tulle. The error is one line that names the member.
Result<Scenario> workload_scenario(const WorkloadOptions& options, const std::string& folder,
                                   const Spelling& spelling = as_member);

// A network and its traffic, from tables.
struct TableOptions {
  std::string topology;            // FILE.csv, a table of links
  std::string flows;               // FILE.csv
  bool is_infiniband = false;      // otherwise it is RoCE
  bool has_dcqcn_of_hpcc = false;  // DCQCN with the settings of HPCC's simulator, for RoCE
  std::vector<std::string> set;    // as for Scenario::read
  Overrides overrides;
};

// Returns the scenario of these tables. The error is one line that names the member.
Result<Scenario> tables_scenario(const TableOptions& options, const Spelling& spelling = as_member);

}  // namespace tulle::scenario
