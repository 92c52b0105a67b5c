#pragma once

// Jobs that share a network are compared with themselves alone: on the same servers, by the same
// paths, from the same seed.

#include "base/result.h"
#include "study/experiment/run.h"
#include "study/scenario/setup.h"

namespace tulle::experiment {

// Runs each job of the setup alone, with so many threads and these processes, as Run::prepare() has
// them, and notes their times in it. Stops early
// if `on_progress` returns false; the jobs that were not done then have no times.
Result<void> play_alone(scenario::Setup& setup, std::uint32_t threads, sim::Processes* processes,
                        const OnProgress& on_progress);

}  // namespace tulle::experiment
