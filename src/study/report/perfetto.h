#pragma once

// A run as a trace for Perfetto (https://ui.perfetto.dev), in its TrackEvent format.

#include <string>

#include "study/report/outcome.h"

namespace tulle::report {

// Returns the bytes of a trace: a track for each rank of Outcome::spans, below it one of
// computations and one of the messages of each phase, and counters of Outcome::timeline. Times are
// in whole nanoseconds.
std::string perfetto_trace(const Outcome& outcome);

}  // namespace tulle::report
