#pragma once

// A job: a graph of tasks, the servers on which its ranks run, and the task of each flow. Several
// jobs share one network, and each has its own flows, connections and tasks.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "study/workload/batches.h"
#include "study/workload/checkpoint.h"
#include "study/workload/collectives.h"
#include "study/workload/servers.h"
#include "study/workload/task_graph.h"

namespace tulle::workload {

// The amounts from which bandwidths follow.
struct Bandwidth {
  std::uint64_t bytes = 0;  // over the time: the algorithm's bandwidth
  double bus_factor = 0;    // times that: the bus bandwidth; 0 means that there is none
};

// The way in which a collective goes, chosen by its settings or for them.
struct Method {
  Algorithm algorithm = Algorithm::ring;
  Protocol protocol = Protocol::simple;
};

// A request to a model that is served (study/workload/serving.h).
struct Request {
  // Computations of this processor last until the next request arrives.
  static constexpr std::uint8_t arrivals_processor = 1;
  Time arrival;
  TaskGraph::Index prefill = 0;  // ends when the keys and values of the prompt are computed
  TaskGraph::Index decode = 0;   // makes a token in each round
  std::uint32_t tokens = 0;      // that it makes
};

struct Job {
  TaskGraph graph;
  Servers servers;
  std::vector<TaskGraph::Index> task_of;  // by flow
  // Present if the job is one collective, or one dispatch or combine.
  std::optional<Bandwidth> bandwidth;
  // The time of the job if communication cost nothing; zero if it only communicates.
  Time computation;
  std::optional<BatchSettings> batches{};  // of tasks with rounds
  std::vector<Request> requests{};         // if the job serves a model
  // If the job trains for several steps (study/workload/training.h).
  std::vector<TaskRange> step_ends{};
  std::vector<TaskRange> checkpoints{};
  std::uint64_t checkpoint_bytes = 0;  // of each
  std::optional<Method> method{};      // present if the job is one collective
  std::string name{};                  // empty if the job is the only one
  Time arrival{};                      // its tasks begin then
  // The jobs of a run are counted through: this one's first flow, shared connection and task.
  std::uint32_t first_flow = 0;
  std::uint32_t first_connection = 0;
  std::uint32_t first_task = 0;
  std::uint32_t connections = 0;  // that its flows share

  std::uint32_t end_flow() const { return first_flow + static_cast<std::uint32_t>(task_of.size()); }
  std::uint32_t end_connection() const { return first_connection + connections; }
  std::uint32_t end_task() const { return first_task + static_cast<std::uint32_t>(graph.size()); }
};

}  // namespace tulle::workload
