#include "study/experiment/alone.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace tulle::experiment {

// The other jobs stay in the setup, so that all flows keep their numbers, of which their paths
// follow.
Result<void> play_alone(scenario::Setup& setup, std::uint32_t threads, sim::Processes* processes,
                        const OnProgress& on_progress) {
  std::vector<std::optional<Time>> alone(setup.jobs.size());
  for (std::size_t job = 0; job < alone.size(); ++job) {
    scenario::Setup one = setup;
    one.only_job = job;
    one.report.interval = Time::zero();
    one.timeline = false;
    auto run = Run::prepare(std::move(one), threads, processes);
    if (!run) return run.error();
    const bool goes_on = (*run)->run([&](Progress progress) {
      // The jobs take about as long as each other.
      const auto before = static_cast<double>(job);
      progress.share_done = (before + progress.share_done) / static_cast<double>(alone.size());
      return on_progress(progress);
    });
    alone[job] = (*run)->time_of_job(job);
    if (!goes_on) break;
  }
  setup.alone = std::move(alone);
  return {};
}

}  // namespace tulle::experiment
