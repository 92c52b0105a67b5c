#pragma once

// Makes an outcome of what a run has left behind.

#include <span>

#include "fabric/routing.h"
#include "fabric/topology.h"
#include "study/experiment/figures.h"
#include "study/experiment/measured.h"
#include "study/report/outcome.h"
#include "study/scenario/setup.h"
#include "study/workload/jobs_player.h"
#include "study/workload/player.h"

namespace tulle::experiment {

struct Remains {
  const scenario::Setup& setup;
  const fabric::Wiring& wiring;
  const fabric::Routes& routes;
  const Measured& measured;
  const workload::Player& player;
  const workload::JobsPlayer* jobs = nullptr;  // null: the setup has no jobs
};

// Returns the outcome without its samples.
report::Outcome gather(const Remains& remains);

// The remains of flows that no network has carried.
struct FlowRemains {
  const scenario::Setup& setup;
  const fabric::Wiring& wiring;
  const fabric::Routes& routes;
  std::span<const workload::FlowResult> results;
  const workload::JobsPlayer* jobs = nullptr;  // null: the setup has no jobs
};

// Returns the outcome of flows alone: with their figures, and without those of packets, links and
// hosts.
report::Outcome gather_flows(const FlowRemains& remains, const FlowLevelView& level);

}  // namespace tulle::experiment
