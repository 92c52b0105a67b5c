// `tulle sim`: runs scenarios, with a line of progress.

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "cli/large_pages.h"
#include "cli/layout.h"
#include "cli/ranks.h"
#include "cli/simulations.h"
#include "cli/terminal.h"
#include "study/ranks.h"
#include "study/report/columns.h"
#include "study/report/results.h"
#include "study/results_folder.h"
#include "study/scenario/scenario.h"
#include "study/scenarios.h"
#include "study/simulate.h"

namespace tulle::cli {
namespace {

using scenario::Scenario;

int list_scenarios() {
  const std::vector<std::string> names = study::shipped_scenarios();
  if (names.empty()) return fail(scenarios_missing());
  for (const std::string& name : names) {
    auto scenario = study::read_scenario(name, {});
    if (!scenario) return fail(scenario.error());
    fmt::print("{:<28} {}\n", scenario->name(), scenario->title());
  }
  return 0;
}

// Returns the scenario that --topology, --flows and --fabric describe.
Result<Scenario> from_tables(const SimOptions& options) {
  if (options.topology.empty() || options.flows.empty()) {
    return Error{
        "no scenario is named: choose one from `tulle sim --list`, or give both --topology and "
        "--flows"};
  }
  scenario::TableOptions tables;
  tables.topology = options.topology;
  tables.flows = options.flows;
  tables.is_infiniband = options.fabric == "infiniband";
  tables.has_dcqcn_of_hpcc = options.congestion_control == "dcqcn-hpcc";
  tables.set = options.set;
  tables.overrides = options.overrides;
  if (tables.is_infiniband && tables.has_dcqcn_of_hpcc) {
    return Error{"--congestion-control dcqcn-hpcc works only on RoCE: choose --fabric roce"};
  }
  return scenario::tables_scenario(tables, as_option);
}

Result<void> write_timings(const std::string& path, const study::Timings& timings) {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  nlohmann::ordered_json json;
  json["setup_s"] = timings.setup_s;
  json["run_s"] = timings.run_s;
  json["run_cpu_s"] = timings.run_cpu_s;
  json["user_s"] = static_cast<double>(usage.ru_utime.tv_sec) +
                   static_cast<double>(usage.ru_utime.tv_usec) * 1e-6;
  json["peak_bytes"] = usage.ru_maxrss * 1'024;
  std::ofstream out(path);
  out << json.dump(2) << "\n";
  out.close();
  if (!out) return Error{fmt::format("cannot write {}: {}", path, std::strerror(errno))};
  return {};
}

// The scenario, and the variants of it that are to be simulated.
struct Wanted {
  Scenario scenario;
  std::vector<std::size_t> variants;
};

Result<Wanted> prepare(const SimOptions& options, study::Monitor& monitor) {
  if (options.scenarios.size() > 1) {
    return as_misuse({"several scenarios are named: name one, or add --gallery to run them all"});
  }
  const std::string name = options.scenarios.empty() ? "" : options.scenarios.front();
  auto scenario = name.empty() ? from_tables(options)
                               : study::read_scenario(name, options.set, options.overrides);
  if (!scenario) return as_misuse(scenario.error());
  if (!options.capture.empty() && options.variant.empty() && scenario->variants().size() > 1) {
    return as_misuse(
        {fmt::format("--capture writes one file, but scenario {} has {} variants: choose one with "
                     "--variant",
                     scenario->name(), scenario->variants().size())});
  }
  if (!options.capture.empty() && options.level == study::flow_level) {
    return as_misuse(
        {"--capture writes packets, and the flow level has none: take --level packet"});
  }
  if (auto checked = check_level(options.level, options.unvalidated); !checked) {
    return checked.error();
  }
  std::vector<std::size_t> wanted = study::wanted_variants(*scenario, options.variant);
  if (wanted.empty()) return as_misuse({study::no_such_variant(*scenario, options.variant)});
  if (!options.output.empty() && is_first_rank()) {
    auto ready = study::prepare_results(options.output, study::ResultsOf::run, monitor);
    if (!ready) return ready.error();
  }
  return Wanted{std::move(*scenario), std::move(wanted)};
}

}  // namespace

Result<void> check_level(const std::string& level, bool is_unvalidated) {
  if (is_unvalidated && level != study::flow_level) {
    return as_misuse({"--unvalidated is for --level flow"});
  }
  if (level == study::flow_level && has_ranks()) {
    return as_misuse({"the flow level is simulated by one process: start it without mpirun"});
  }
  return {};
}

unsigned jobs_by_default() { return std::max(1u, std::thread::hardware_concurrency()); }

std::string scenarios_missing() {
  return fmt::format("cannot find Tulle's scenarios from {}; is the installation complete?",
                     executable().string());
}

int sim(const SimOptions& options) {
  if (options.list) return list_scenarios();
  if (options.gallery && has_ranks()) {
    return refuse("a gallery is not made under mpirun: give --jobs or --threads in its place");
  }
  take_large_pages();
  if (options.gallery) return gallery(options);
  if (auto joined = join_ranks(); !joined) return fail(joined.error());
  Terminal beginning;
  auto wanted = prepare(options, beginning);
  if (auto all = study::agree(ranks(), wanted ? Result<void>() : wanted.error()); !all) {
    return fail(all.error());
  }
  // A lambda cannot capture structured bindings in C++20.
  const Scenario& scenario = wanted->scenario;
  const std::vector<std::size_t>& variants = wanted->variants;
  if (auto alike = study::check_alike(ranks(), scenario, variants); !alike)
    return fail(alike.error());
  const auto write = [&](const report::Results& results, bool are_several) {
    return study::write_results(options.output, scenario, variants, results,
                                {"variant", options.again, are_several});
  };
  study::Timings timings;
  study::SimulateOptions simulating;
  simulating.capture = options.capture;
  simulating.capture_at = options.capture_at;
  simulating.timeline = !options.output.empty();
  simulating.jobs = options.jobs;
  simulating.threads = options.threads;
  simulating.level = study::level_of(options.level);
  simulating.ranks = ranks();
  simulating.is_unvalidated = options.unvalidated;
  if (!options.output.empty()) {
    // They are in the same folders as when all are there.
    simulating.keep = [&](const report::Results& results) {
      return write(results, variants.size() > 1);
    };
  }
  simulating.kept_in = options.output;
  Terminal terminal(options.json ? "" : scenario.title());
  auto results = study::simulate(simulating, scenario, variants, terminal, timings);
  if (!results) return fail(results.error());
  if (!is_first_rank()) return 0;
  auto printed = print(options.json ? report::summary_json(*results)
                                    : report::summary_table(results->outcomes));
  if (!printed) return fail(printed.error());
  if (simulating.level == study::Level::flow && !options.json) {
    if (auto noted = print(study::flow_level_note(results->outcomes)); !noted) {
      return fail(noted.error());
    }
  }
  if (!options.output.empty()) {
    if (auto written = write(*results, results->outcomes.size() > 1); !written)
      return fail(written.error());
  }
  if (!options.timings.empty()) {
    if (auto written = write_timings(options.timings, timings); !written) {
      return fail(written.error());
    }
  }
  if (is_interrupted()) return fail(interrupted_results);
  return 0;
}

}  // namespace tulle::cli
