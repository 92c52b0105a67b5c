#pragma once

// Brings together, in process 0, what several processes know of a run.

#include "sim/processes.h"
#include "study/experiment/measured.h"
#include "study/experiment/sampler.h"
#include "study/experiment/timeline.h"
#include "study/workload/jobs_player.h"
#include "study/workload/player.h"

namespace tulle::experiment {

// The parts of a run that each process has. All processes have the same setup.
struct Findings {
  Measured& measured;
  workload::Player& player;
  workload::JobsPlayer* jobs = nullptr;  // null: the setup has no jobs
  Sampler& sampler;
  TimelineSampler& timeline;
};

// Returns what this process knows, as bytes.
Bytes packed(const Findings& findings);
// Adds what another process knows. Returns false if that is damaged.
[[nodiscard]] bool add(std::uint32_t process, std::span<const std::byte> bytes, Findings& findings);
// Adds what all processes know to the findings of process 0. All of them call this. Throws as
// sim::Processes::exchange() does, and if something is damaged.
void collect(sim::Processes& processes, Findings findings);

}  // namespace tulle::experiment
