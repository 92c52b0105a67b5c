#pragma once

// Gathers a timeline during a run, and the phases of its job afterwards. Neither changes the
// results of the run.

#include "sim/network.h"
#include "study/report/timeline.h"
#include "study/workload/jobs_player.h"

namespace tulle::experiment {

class TimelineSampler {
 public:
  // Takes nothing, ever.
  TimelineSampler() = default;
  // Takes moments of a network of that topology whose rounds have that length, at the ends of
  // rounds, and 100 ns apart if rounds are shorter.
  TimelineSampler(const fabric::Topology& topology, Time round);

  // Returns the time of the last events before the next moment; never if none is to be taken.
  Time next() const { return next_.is_never() ? next_ : next_ - Time::picoseconds(1); }
  // Takes a moment, when the network has come to that time.
  void take(const sim::Network& network);
  // Adds the moments that another process has taken of its nodes. Returns false if they are not as
  // many.
  [[nodiscard]] bool add(const std::vector<report::Moment>& others);
  const report::Timeline& timeline() const { return timeline_; }

 private:
  report::Moment totals(const sim::Network& network) const;
  void halve();

  const fabric::Topology* topology_ = nullptr;
  report::Timeline timeline_;
  report::Moment before_;  // the totals at the moment before
  Time next_ = Time::never();
};

// Returns the phases of each job on some of its ranks, evenly chosen. Spans whose gap cannot be
// seen are joined.
report::Spans spans_of(const workload::JobsPlayer& jobs);

}  // namespace tulle::experiment
