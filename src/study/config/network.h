#pragma once

// A network as a file of TOML describes it, by the table [topology] and the list [[machine]]. Both
// are tables of scenarios, and a software fabric is started from them alone.

#include <string>
#include <vector>

#include "base/result.h"
#include "fabric/machines/placement.h"
#include "fabric/topology.h"
#include "study/config/reader.h"

namespace tulle::config {

// Reads [topology]. `folder` is where the file that it may name is looked for.
fabric::Topology build_topology(TableReader table, const std::string& folder);

// Reads the list [[machine]] of the whole file.
std::vector<fabric::Machine> build_machines(TableReader& root);

struct Network {
  fabric::Topology topology;
  // The machines over which the network is spread; none: this one has all of it.
  std::vector<fabric::Machine> machines;
};

// Reads both from a scenario's file. If it has variants, they are those of the first one. The other
// tables are not checked. The error is one line, "FILE:LINE: KEY: fault".
Result<Network> read_network(const std::string& path);

}  // namespace tulle::config
