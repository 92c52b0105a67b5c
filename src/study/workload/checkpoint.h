#pragma once

// A checkpoint as tasks: each GPU writes its part of a model's state to a storage server, as an
// initiator of NVMe over Fabrics by RDMA writes to a target. It sends a command, the target reads
// the data, writes them to its drives, and sends a completion (NVMe over Fabrics 1.1, 7.3; NVM
// Express base specification for the sizes of commands and completions).
//
// The storage servers are the last ones of a job. Each of their adapters is a target, and has an
// equal part of the drives' rate.

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "study/workload/ring.h"
#include "study/workload/servers.h"
#include "study/workload/task_graph.h"

namespace tulle::workload {

struct CheckpointSettings {
  static constexpr std::uint64_t command_bytes = 64;
  static constexpr std::uint64_t completion_bytes = 16;
  // The READ request of the target names the data (IBTA 9.3: RETH).
  static constexpr std::uint64_t request_bytes = 16;

  std::uint32_t storage = 0;  // servers that store; 0: there are no checkpoints
  std::uint32_t every = 1;    // steps from one checkpoint to the next
  bool overlaps = false;      // the next step runs while a checkpoint is written
  // The rate at which a storage server's drives write, all together; 0: as fast as data come.
  std::int64_t drive_bits_per_second = 0;
  std::uint64_t piece_bytes = 128u << 10;  // that one command writes
  std::uint32_t depth = 32;                // commands of a GPU that are under way
};

// Returns how many GPUs of the servers do not store.
std::uint32_t gpus_that_compute(const Servers& servers, const CheckpointSettings& settings);

// Returns an error if checkpoints of so many bytes cannot be written.
Result<void> check_checkpoint(const Servers& servers, const CheckpointSettings& settings);

// Returns at least as many tasks as a checkpoint has, and at least the time for which drives write.
double checkpoint_tasks(const Servers& servers, const CheckpointSettings& settings, double bytes);
double checkpoint_seconds(const Servers& servers, const CheckpointSettings& settings, double bytes);

// The numbers of phases and channels of a checkpoint's messages and writes.
struct CheckpointPhases {
  std::uint32_t data = 0;
  std::uint32_t drives = 0;
};

// Adds the tasks by which all GPUs that compute write `bytes` together. `ready` has by rank what it
// waits for before it begins. Returns by rank the completions after which its part is written.
std::vector<Waits> add_checkpoint(TaskGraph& graph, const Servers& servers,
                                  const CheckpointSettings& settings,
                                  const CheckpointPhases& phases, std::uint64_t bytes,
                                  const std::vector<Waits>& ready);

}  // namespace tulle::workload
