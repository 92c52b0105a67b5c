#pragma once

// Makes an outcome of what a run has left behind.

#include "experiment/measured.h"
#include "fabric/routing.h"
#include "fabric/topology.h"
#include "report/outcome.h"
#include "scenario/setup.h"
#include "workload/jobs_player.h"
#include "workload/player.h"

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

}  // namespace tulle::experiment
