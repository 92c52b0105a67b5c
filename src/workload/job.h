#pragma once

// A job: a graph of tasks, the servers on which its ranks run, and the task of each flow.

#include <cstdint>
#include <optional>
#include <vector>

#include "base/time.h"
#include "workload/collectives.h"
#include "workload/servers.h"
#include "workload/task_graph.h"

namespace tulle::workload {

struct Job {
  TaskGraph graph;
  Servers servers;
  std::vector<TaskGraph::Index> task_of;  // by flow
  // Present if the job is one collective.
  std::optional<CollectiveSettings> collective;
  // The time of the job if communication cost nothing; zero if it only communicates.
  Time computation;
};

}  // namespace tulle::workload
