#pragma once

// Reads traces of any known format. docs/reference/simulator/traces.md says how each field is
// understood.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "study/traces/trace.h"
#include "study/workload/servers.h"
#include "study/workload/task_graph.h"

namespace tulle::traces {

enum class Format : std::uint8_t {
  chakra,             // MLCommons' execution traces, protobuf
  chakra_json,        // the same as JSON
  goal,               // LogGOPSim's and ATLAHS' schedules
  simai,              // SimAI's and AICB's workloads
  connection_matrix,  // htsim's
};

// A trace's file: its name, for errors, and its content.
struct File {
  std::string name;
  std::string_view text;
  // Chakra: the rank whose trace it is. Nothing: every rank does the same.
  std::optional<std::uint32_t> rank;
};

// Chakra's ctrl_deps have two meanings. In generated traces they order nodes, as data_deps do. In
// traces that PyTorch collected they name the operation that called this one, which ends later.
enum class ControlDependencies : std::uint8_t {
  automatic,  // they order the nodes of a file, unless one of them names a node that is not there
  order,
  ignore,
};

using Groups = std::map<std::string, std::vector<std::uint32_t>, std::less<>>;

struct Settings {
  workload::Servers servers;
  // Chakra: how many operations a second a computation does that has num_ops and no duration. 0:
  // such a computation is an error.
  double operations_per_second = 0;
  ControlDependencies control_dependencies = ControlDependencies::automatic;
  Groups groups;  // Chakra: ranks by pg_name; nodes of the trace may add to them
  Limits limits;
};

// Returns a file's format by its suffix, or else by how it begins. Returns nothing if it is none.
std::optional<Format> format_of(std::string_view name, std::string_view text);

// Reads a trace as a graph, which the caller checks. Only Chakra's formats may have several files,
// one for each rank from 0. Ranks run on the first GPUs of the servers. The error is one line:
// "FILE:LINE: fault; remedy" or "FILE: node N: fault; remedy".
Result<workload::TaskGraph> read_trace(std::span<const File> files, const Settings& settings);

// Reads groups of ranks in ASTRA-sim's form, a JSON object {"NAME": [0, 1, …], …}. Ranks are below
// `ranks`. The error begins with the file's name.
Result<Groups> parse_groups(std::string_view text, std::string_view file, std::uint32_t ranks);

}  // namespace tulle::traces
