#pragma once

// Runs a setup at flow level: flows are fluids that share links (study/fluid/play.h), on the paths
// that their packets would take. This is hundreds of times as fast as a run of packets, and right
// within some per cent where few things happen that only packets know of. All else is refused.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "fabric/routing.h"
#include "fabric/topology.h"
#include "study/experiment/flow_jobs.h"
#include "study/experiment/run.h"
#include "study/experiment/validated_ranges.h"
#include "study/fluid/play.h"
#include "study/report/outcome.h"
#include "study/scenario/setup.h"
#include "study/workload/player.h"

namespace tulle::experiment {

// Says why a setup cannot be run at flow level: what it has that the level does not model. Returns
// "" if it can.
std::string beyond_flow_level(const scenario::Setup& setup);

class FlowLevel {
 public:
  // Fails if the setup is beyond the flow level. The error is one line.
  static Result<std::unique_ptr<FlowLevel>> prepare(scenario::Setup setup);

  // Runs until all flows are done, or `on_progress` returns false. The error says what the run has
  // shown that the flow level does not model, such as queues at which switches would drop packets.
  Result<void> run(const OnProgress& on_progress);
  // Returns what is known of the flows, and of the error of such runs. Figures of packets, such as
  // marks, are absent, and so are the tables of links and hosts, and samples.
  report::Outcome outcome(const std::optional<ValidatedRange>& range) const;

  // Returns the range that covers a run that has ended. The error says what about it is outside all
  // of them.
  Result<ValidatedRange> range_among(std::span<const ValidatedRange> ranges) const;

  // Returns the bytes of the flows as a share of what the hosts' links carry from the first start
  // of a flow to the last.
  double offered_load() const { return offered_load_; }
  // Returns true if the flows begin all at once, more or less: within half of the time that the
  // hosts' links need for them. Random arrivals at full load hardly ever do.
  bool begins_at_once() const { return offered_load_ > 2; }
  const fluid::Findings& findings() const { return play_->findings(); }

 private:
  FlowLevel(scenario::Setup setup, fabric::Routes routes);
  void trace();
  void measure_load(double bytes, Time between);
  void make_room_for_acknowledgements();
  void note_results();
  double queue_bytes_max() const;
  Result<void> check_findings() const;
  std::string beyond(const ValidatedRange& range) const;

  scenario::Setup setup_;
  fabric::Routes routes_;
  fabric::Wiring wiring_;
  fluid::Settings settings_;
  fluid::Traffic traffic_;
  std::unique_ptr<fluid::Play> play_;    // after run()
  std::vector<FlowJobs::Ideal> ideals_;  // by flow
  std::unique_ptr<FlowJobs> jobs_;       // after run(), if the setup has jobs
  std::vector<workload::FlowResult> results_;
  bool window_is_short_ = false;
  double offered_load_ = 0;
  double mean_bytes_ = 0;  // of a flow, on the links
};

}  // namespace tulle::experiment
