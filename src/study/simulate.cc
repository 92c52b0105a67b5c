#include "study/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

#include "study/experiment/alone.h"
#include "study/experiment/capture.h"
#include "study/experiment/flow_level.h"
#include "study/experiment/run.h"
#include "study/ranks.h"
#include "study/report/html_page.h"
#include "study/report/perfetto.h"
#include "study/report/results.h"
#include "study/results_folder.h"
#include "study/scenario/fingerprint.h"

namespace tulle::study {
namespace {

using report::Outcome;
using scenario::Scenario;
using Clock = std::chrono::steady_clock;

constexpr char captures_all[] = "a capture has all frames in their order";

// Returns the error of a result, or nothing to complain of.
template <typename Value>
Result<void> outcome_of(Result<Value>& result) {
  if (result) return {};
  return result.error();
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

Result<std::unique_ptr<experiment::Capture>> open_capture(const SimulateOptions& options,
                                                          const scenario::Setup& setup) {
  if (options.capture.empty()) return std::unique_ptr<experiment::Capture>();
  return experiment::Capture::open(options.capture, options.capture_at, setup.topology,
                                   setup.network);
}

// Runs each job of the setup alone, to be compared with its time among the others. Jobs that
// are interrupted have no times.
Result<void> simulate_alone(scenario::Setup& setup, const std::string& name, unsigned threads,
                            sim::Processes* processes, Monitor& monitor,
                            const std::function<bool()>& goes_on) {
  const auto shown = monitor.begin(name.empty() ? "each job alone" : name + ", each job alone");
  return experiment::play_alone(setup, threads, processes,
                                [&](const experiment::Progress& progress) {
                                  shown->show(progress);
                                  return goes_on();
                                });
}

// Returns the processes that simulate a setup together; null if one does.
Result<sim::Processes*> ranks_for(const SimulateOptions& options, const scenario::Setup& setup,
                                  const std::string& name, Monitor& monitor) {
  sim::Processes* all = options.ranks;
  if (all == nullptr) return all;
  std::string why = experiment::Run::why_undivided(setup);
  if (!options.capture.empty()) why = captures_all;
  if (!why.empty()) {
    monitor.note(fmt::format("{} is simulated by rank 0 alone, because {}", name, why));
    return static_cast<sim::Processes*>(nullptr);
  }
  if (all->count() > setup.topology.hosts) {
    return as_misuse(
        {fmt::format("{} has {} hosts, and at most {} ranks can simulate it: there are {}", name,
                     setup.topology.hosts, setup.topology.hosts, all->count())});
  }
  return all;
}

// Returns an error with the variant that it concerns, if the scenario has several.
Error of_variant(const Scenario& scenario, std::size_t variant, Error error) {
  const std::string& name = scenario.variants()[variant].name;
  if (!name.empty()) error.message = fmt::format("{}: {}", name, error.message);
  return error;
}

// Does the same as simulate() below at flow level.
Result<Outcome> simulate_flows(scenario::Setup setup, const std::string& name, bool is_unvalidated,
                               Monitor& monitor, Timings& timings,
                               const std::function<void()>& begins,
                               const std::function<bool()>& goes_on) {
  const Clock::time_point start = Clock::now();
  auto run = experiment::FlowLevel::prepare(std::move(setup));
  if (!run) return as_misuse(run.error());
  timings.setup_s += seconds_since(start);
  begins();
  const Clock::time_point begin = Clock::now();
  const double cpu_begin = cpu_seconds();
  Result<void> played;
  {
    const auto shown = monitor.begin(name);
    played = (*run)->run([&](const experiment::Progress& progress) {
      shown->show(progress);
      return goes_on();
    });
  }
  timings.run_s += seconds_since(begin);
  timings.run_cpu_s += cpu_seconds() - cpu_begin;
  if (!monitor.goes_on()) return (*run)->outcome({});
  if (is_unvalidated) return (*run)->outcome({});
  if (!played) return played.error();
  auto ranges = validated_ranges();
  if (!ranges) return ranges.error();
  auto range = (*run)->range_among(*ranges);
  if (!range) return as_misuse(range.error());
  return (*run)->outcome(*range);
}

// Runs one variant. It calls `begins` when nothing can be refused any more, and ends early if
// `goes_on` returns false. All ranks call this. Those that have no part in it, or are not the first
// one, return nothing of worth.
Result<Outcome> simulate(const SimulateOptions& options, const Scenario& scenario,
                         std::size_t variant, Monitor& monitor, Timings& timings,
                         const std::function<void()>& begins,
                         const std::function<bool()>& goes_on) {
  const Clock::time_point start = Clock::now();
  const std::string& variant_name = scenario.variants()[variant].name;
  const std::string& name = variant_name.empty() ? scenario.name() : variant_name;
  auto setup = scenario.build(variant, options.level == Level::packet);
  if (auto built = agree(options.ranks, setup ? Result<void>() : as_misuse(setup.error()));
      !built) {
    return built.error();
  }
  if (options.ranks != nullptr) {
    const std::string drawn = fmt::format("{:x}", scenario::fingerprint(*setup));
    if (auto alike = check_alike(options.ranks, "traffic or topology", drawn); !alike)
      return alike.error();
  }
  if (options.level == Level::flow) {
    timings.setup_s += seconds_since(start);
    auto outcome = simulate_flows(std::move(*setup), variant_name, options.is_unvalidated, monitor,
                                  timings, begins, goes_on);
    if (outcome) return outcome;
    return of_variant(scenario, variant, outcome.error());
  }
  setup->timeline = options.timeline;
  auto processes = ranks_for(options, *setup, name, monitor);
  if (!processes) return processes.error();
  if (*processes == nullptr && !is_first(options.ranks)) return Outcome();
  if (setup->wants_alone) {
    if (auto played =
            simulate_alone(*setup, variant_name, options.threads, *processes, monitor, goes_on);
        !played)
      return played.error();
  }
  auto capture = open_capture(options, *setup);
  if (!capture)
    return capture.error().error_number == 0 ? as_misuse(capture.error()) : capture.error();
  const unsigned threads = options.capture.empty() ? options.threads : 1;
  auto run = experiment::Run::prepare(std::move(*setup), threads, *processes);
  if (!run) return run.error();
  if ((*run)->threads() < options.threads) {
    const unsigned used = (*run)->threads();
    monitor.note(fmt::format("{} is simulated by {} {}{}, because {}", name, used,
                             used == 1 ? "thread" : "threads",
                             *processes == nullptr ? "" : " of each rank",
                             options.capture.empty() ? (*run)->why_fewer_threads() : captures_all));
  }
  if (*capture) (*run)->show_to(**capture);
  timings.setup_s += seconds_since(start);
  begins();
  const Clock::time_point begin = Clock::now();
  const double cpu_begin = cpu_seconds();
  {
    const auto shown = monitor.begin(variant_name);
    (*run)->run([&](const experiment::Progress& progress) {
      shown->show(progress);
      return goes_on();
    });
  }
  timings.run_s += seconds_since(begin);
  timings.run_cpu_s += cpu_seconds() - cpu_begin;
  if (*capture) {
    if (auto written = (*capture)->finish(); !written) return written.error();
  }
  if (!is_first(options.ranks)) return Outcome();
  if (auto intact = (*run)->check_payloads(); !intact) return intact.error();
  return (*run)->outcome();
}

// Does the work on so many threads, this one among them. If the system does not let it start all of
// the others, those that could be started do the work.
template <typename Work>
void on_threads(std::size_t threads, const Work& work) {
  std::vector<std::jthread> others;
  try {
    while (others.size() + 1 < threads) others.emplace_back(work);
  } catch (const std::system_error&) {
  }
  work();
}

// The result of checking a variant.
struct Checked {
  bool is_long = false;
  std::optional<Error> error;
  std::exception_ptr thrown;
};

Checked check(const SimulateOptions& options, const Scenario& scenario, std::size_t variant) {
  Checked checked;
  try {
    auto setup = scenario.build(variant, options.level == Level::packet);
    if (!setup) checked.error = as_misuse(setup.error());
    if (setup && options.level == Level::flow) {
      std::string why = experiment::beyond_flow_level(*setup);
      if (!why.empty()) checked.error = of_variant(scenario, variant, as_misuse({why}));
    }
    checked.is_long = setup && setup->network.host.stack.cores > 0;
  } catch (...) {
    checked.thrown = std::current_exception();
  }
  return checked;
}

// Checks the variants, and returns the order in which to run them, as indices. Where several run at
// the same time, those with a kernel at each host go first: they take several times as long as the
// others, and the last one may have to run alone.
Result<std::vector<std::size_t>> order_of(const SimulateOptions& options, const Scenario& scenario,
                                          std::span<const std::size_t> variants) {
  const unsigned jobs = options.jobs;
  if (variants.size() == 1) return std::vector<std::size_t>{0};  // it is checked when it is run
  std::vector<Checked> checked(variants.size());
  std::atomic<std::size_t> next = 0;
  on_threads(std::min<std::size_t>(jobs, variants.size()), [&] {
    for (std::size_t i = next++; i < checked.size(); i = next++) {
      checked[i] = check(options, scenario, variants[i]);
    }
  });
  std::vector<std::size_t> order;
  std::vector<std::size_t> short_ones;
  for (std::size_t i = 0; i < checked.size(); ++i) {
    if (checked[i].thrown) std::rethrow_exception(checked[i].thrown);
    if (checked[i].error) return *checked[i].error;
    (jobs > 1 && checked[i].is_long ? order : short_ones).push_back(i);
  }
  order.insert(order.end(), short_ones.begin(), short_ones.end());
  return order;
}

// One of several runs at the same time has come to this.
struct Ended {
  std::optional<Result<Outcome>> outcome;  // empty: it never began
  std::exception_ptr thrown;
  Timings timings;
};

// Simulates a variant, of which the number is given.
using RunVariant = std::function<Result<Outcome>(std::size_t variant, Timings& timings,
                                                 const std::function<bool()>& goes_on)>;

// Simulates the variants in that order, several at the same time, and returns their outcomes in
// theirs.
Result<std::vector<Outcome>> simulate_in_threads(const SimulateOptions& options,
                                                 const std::vector<std::size_t>& order,
                                                 const RunVariant& run, const Monitor& monitor,
                                                 Timings& timings) {
  std::vector<Ended> runs(order.size());
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> has_failed = false;
  const auto goes_on = [&] { return monitor.goes_on() && !has_failed; };
  const auto work = [&] {
    while (goes_on()) {
      const std::size_t turn = next++;
      if (turn >= runs.size()) return;
      const std::size_t i = order[turn];
      try {
        runs[i].outcome = run(i, runs[i].timings, goes_on);
        if (!*runs[i].outcome) has_failed = true;
      } catch (...) {
        runs[i].thrown = std::current_exception();
        has_failed = true;
      }
    }
  };
  on_threads(std::min<std::size_t>(options.jobs, order.size()), work);
  for (Ended& ended : runs) {
    if (ended.thrown) std::rethrow_exception(ended.thrown);
    if (!ended.outcome) continue;
    if (!*ended.outcome) return ended.outcome->error();
    timings.setup_s += ended.timings.setup_s;
    timings.run_s += ended.timings.run_s;
    timings.run_cpu_s += ended.timings.run_cpu_s;
  }
  std::vector<Outcome> outcomes;
  for (Ended& ended : runs) {
    if (ended.outcome) outcomes.push_back(std::move(**ended.outcome));
  }
  return outcomes;
}

// Simulates one variant after the other, by all ranks together. An exception of one rank ends all.
Result<report::Results> simulate_in_ranks(const SimulateOptions& options, std::size_t variants,
                                          const RunVariant& run, Monitor& monitor, Timings& timings,
                                          report::Results results) {
  const auto goes_on = [&] { return monitor.goes_on(); };
  const auto note_done = [&](std::size_t done) {
    monitor.say_when_ended(fmt::format(
        "ended by SIGTERM, as mpirun does when another rank has died; {} of {} variants were "
        "simulated{}",
        done, variants,
        done == 0 || options.kept_in.empty() ? "" : ", and are in " + options.kept_in));
  };
  note_done(0);
  for (std::size_t i = 0; i < variants; ++i) {
    auto outcome = run(i, timings, goes_on);
    Result<void> kept = outcome_of(outcome);
    if (kept && is_first(options.ranks)) {
      results.outcomes.push_back(std::move(*outcome));
      if (options.keep && i + 1 < variants) kept = options.keep(results);
      if (kept && i + 1 < variants) note_done(i + 1);
    }
    if (auto all = agree(options.ranks, kept); !all) return all.error();
    // One that was interrupted stops all others, though they may not have been told yet.
    if (!agree(options.ranks, goes_on() ? Result<void>() : Error{"interrupted"})) break;
  }
  return results;
}

}  // namespace

Result<report::Results> simulate(const SimulateOptions& options, const Scenario& scenario,
                                 std::span<const std::size_t> variants, Monitor& monitor,
                                 Timings& timings) {
  auto order = order_of(options, scenario, variants);
  if (auto all = agree(options.ranks, outcome_of(order)); !all) return all.error();
  report::Results results{scenario.name(), scenario.title(), scenario.description(), {}};
  std::once_flag has_begun;
  const auto begins = [&] { std::call_once(has_begun, [&] { monitor.ready(); }); };
  const auto run = [&](std::size_t i, Timings& time, const std::function<bool()>& goes_on) {
    return simulate(options, scenario, variants[i], monitor, time, begins, goes_on);
  };
  if (options.ranks != nullptr) {
    return simulate_in_ranks(options, variants.size(), run, monitor, timings, results);
  }
  auto outcomes = simulate_in_threads(options, *order, run, monitor, timings);
  if (!outcomes) return outcomes.error();
  results.outcomes = std::move(*outcomes);
  return results;
}

Result<void> write_results(const std::string& folder, const Scenario& scenario,
                           std::span<const std::size_t> variants, const report::Results& results,
                           const ResultsText& beside) {
  auto at = OutputFolder::open(folder);
  if (!at) return at.error();
  remove_run(*at);
  auto written = report::write_results(*at, results, beside.are_several);
  if (!written) return written;
  report::PageText text{beside.again, beside.what, {}};
  for (const std::size_t variant : variants.first(results.outcomes.size())) {
    text.variants.push_back({scenario.variants()[variant].title, scenario.settings(variant)});
  }
  for (const report::Outcome& outcome : results.outcomes) {
    const std::string name = (outcome.variant.empty() ? "run" : outcome.variant) + ".pftrace";
    written = at->write(name, report::perfetto_trace(outcome));
    if (!written) return written;
  }
  return at->write("report.html", report::html_page(results, text));
}

}  // namespace tulle::study
