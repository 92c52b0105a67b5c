#pragma once

// A job: a graph of tasks, the servers on which its ranks run, and the task of each flow.

#include <cstdint>
#include <optional>
#include <vector>

#include "base/time.h"
#include "workload/servers.h"
#include "workload/task_graph.h"

namespace tulle::workload {

// The amounts from which bandwidths follow.
struct Bandwidth {
  std::uint64_t bytes = 0;  // over the time: the algorithm's bandwidth
  double bus_factor = 0;    // times that: the bus bandwidth; 0 means that there is none
};

struct Job {
  TaskGraph graph;
  Servers servers;
  std::vector<TaskGraph::Index> task_of;  // by flow
  // Present if the job is one collective, or one dispatch or combine.
  std::optional<Bandwidth> bandwidth;
  // The time of the job if communication cost nothing; zero if it only communicates.
  Time computation;
};

}  // namespace tulle::workload
