// `tulle compare`: runs the same traffic on several fabrics.

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "cli/large_pages.h"
#include "cli/layout.h"
#include "cli/ranks.h"
#include "cli/simulations.h"
#include "cli/terminal.h"
#include "study/ranks.h"
#include "study/report/columns.h"
#include "study/report/links.h"
#include "study/report/results.h"
#include "study/results_folder.h"
#include "study/scenario/fabrics.h"
#include "study/scenario/workloads.h"
#include "study/simulate.h"
#include "study/workload/experts.h"

namespace tulle::cli {
namespace {

using report::Outcome;
using scenario::Fabric;
using scenario::Scenario;

int list(const std::vector<Fabric>& fabrics) {
  fmt::print("fabrics (* marks the default ones)\n");
  for (const Fabric& fabric : fabrics) {
    fmt::print("{} {:<24} {}\n", fabric.by_default ? '*' : ' ', fabric.name, fabric.title);
  }
  fmt::print("workloads\n");
  for (const scenario::Workload& workload : scenario::workloads()) {
    fmt::print("  {:<24} {}{}{}\n", workload.name, workload.title,
               workload.bytes.empty() ? "" : ", ", workload.bytes);
  }
  fmt::print("collectives among --gpus, with bytes as in allreduce:256MiB\n");
  for (const scenario::NamedCollective& each : scenario::collectives()) {
    fmt::print("  {:<24} {}\n", each.name, each.title);
  }
  fmt::print(
      "layers of a mixture of experts on --gpus, with more keys by --set traffic.KEY=VALUE\n");
  for (const std::string_view operation : workload::expert_operation_names) {
    fmt::print("  moe:{}\n", operation);
  }
  const auto print_files = [](const char* heading, const char* folder) {
    fmt::print("{}\n", heading);
    for (const auto& [name, title] : scenario::titles_in((scenario_folder() / folder).string())) {
      fmt::print("  {:<24} {}\n", name, title);
    }
  };
  print_files(
      "models on --gpus, as in step:llama-3-70b or, where it has [serve], serve:llama-3-70b",
      "models");
  fmt::print(
      "traces on --gpus, as in FILE.et: Chakra's (.et, .json), GOAL, SimAI's workloads, htsim's "
      "connections (.cm)\n");
  print_files("servers", "profiles/servers");
  return 0;
}

// Returns true if the best value of a column is to be shown in bold, for a person at a terminal.
// What ranks print goes to mpirun, though that may give them a terminal.
bool marks() {
  if (has_ranks()) return false;
  const char* no_color = getenv("NO_COLOR");  // no-color.org
  return isatty(STDOUT_FILENO) != 0 && (no_color == nullptr || *no_color == '\0');
}

// Gives each workload its GPUs.
Result<scenario::WorkloadOptions> pair_jobs(const CompareOptions& options) {
  scenario::WorkloadOptions paired = options.workload;
  const std::vector<std::string>& names = options.workloads;
  const std::vector<std::uint32_t>& gpus = options.gpus;
  paired.workload = names.front();
  if (!gpus.empty()) paired.gpus = gpus.front();
  if (gpus.size() > names.size() || (names.size() > 1 && gpus.size() < names.size())) {
    return Error{fmt::format("--gpus: is there {} times, and --workload {}: each job has its own",
                             gpus.size(), names.size())};
  }
  for (std::size_t i = 1; i < names.size(); ++i) paired.others.push_back({names[i], gpus[i]});
  return paired;
}

Result<Scenario> read_comparison(const CompareOptions& options,
                                 const std::vector<Fabric>& fabrics) {
  const std::uint32_t planes = options.workload.planes.value_or(1);
  auto chosen = scenario::choose_fabrics(fabrics, options.fabrics, planes);
  if (!chosen) return as_misuse(Error{"--fabrics: " + chosen.error().message});
  auto jobs = pair_jobs(options);
  if (!jobs) return as_misuse(jobs.error());
  auto workload = scenario::workload_scenario(*jobs, scenario_folder().string(), as_option);
  if (!workload) return as_misuse(workload.error());
  return workload->on_fabrics(std::move(*chosen));
}

// Says which of the usual fabrics cannot have the planes that were asked for.
void say_what_is_left_out(const std::vector<Fabric>& fabrics, const CompareOptions& options) {
  const std::uint32_t planes = options.workload.planes.value_or(1);
  for (const Fabric& fabric : fabrics) {
    if (!fabric.by_default || fabric.goes_with(planes)) continue;
    fmt::print(stderr, "tulle: {} is left out: it goes with one plane\n", fabric.name);
  }
}

// Fails if a fabric did not finish its flows: a user who compares fabrics wants to know.
int status_of(const std::vector<Outcome>& outcomes) {
  std::string said;
  for (const Outcome& outcome : outcomes) {
    const std::string unfinished = report::unfinished(outcome);
    if (unfinished.empty()) continue;
    said += fmt::format("{}{}: {}", said.empty() ? "" : "; ", outcome.variant, unfinished);
  }
  return said.empty() ? 0 : fail(said);
}

}  // namespace

int compare(const CompareOptions& options) {
  auto fabrics = scenario::read_fabrics((scenario_folder() / "fabrics").string());
  if (!fabrics) return fail(fabrics.error());
  if (options.list) return list(*fabrics);
  take_large_pages();
  if (auto joined = join_ranks(); !joined) return fail(joined.error());
  auto scenario = read_comparison(options, *fabrics);
  Result<void> ready;
  if (auto checked = check_level(options.level, options.unvalidated); !checked) {
    ready = checked;
  } else if (!scenario) {
    ready = scenario.error();
  } else if (!options.output.empty() && is_first_rank()) {
    Terminal terminal;
    ready = study::prepare_results(options.output, study::ResultsOf::run, terminal);
  }
  if (auto agreed = study::agree(ranks(), ready); !agreed) return fail(agreed.error());
  std::vector<std::size_t> all(scenario->variants().size());
  std::iota(all.begin(), all.end(), 0);
  if (auto alike = study::check_alike(ranks(), *scenario, all); !alike) return fail(alike.error());
  const auto write = [&](const report::Results& results, bool are_several) {
    return study::write_results(options.output, *scenario, all, results,
                                {"fabric", options.again, are_several});
  };
  study::Timings timings;
  study::SimulateOptions simulating;
  simulating.timeline = !options.output.empty();
  simulating.jobs = options.jobs;
  simulating.threads = options.threads;
  simulating.level = study::level_of(options.level);
  simulating.ranks = ranks();
  simulating.is_unvalidated = options.unvalidated;
  if (!options.output.empty()) {
    // They are in the same folders as when all are there.
    simulating.keep = [&](const report::Results& results) {
      return write(results, all.size() > 1);
    };
  }
  simulating.kept_in = options.output;
  Terminal terminal(options.json ? "" : scenario->title());
  auto results = study::simulate(simulating, *scenario, all, terminal, timings);
  if (!results) return fail(results.error());
  if (!is_first_rank()) return 0;
  if (options.fabrics.empty()) say_what_is_left_out(*fabrics, options);
  auto printed =
      print(options.json ? report::summary_json(*results)
                         : report::plain_text(report::telling_figures("fabric", results->outcomes),
                                              marks()));
  if (!printed) return fail(printed.error());
  if (!options.json) {
    const report::Table worst = report::worst_links_table("fabric", results->outcomes);
    if (!worst.rows.empty()) {
      auto links =
          print("\nthe links that held frames up for longest\n" + plain_text(worst, false));
      if (!links) return fail(links.error());
    }
  }
  if (simulating.level == study::Level::flow && !options.json) {
    if (auto noted = print(study::flow_level_note(results->outcomes)); !noted) {
      return fail(noted.error());
    }
  }
  if (!options.output.empty()) {
    if (auto written = write(*results, results->outcomes.size() > 1); !written)
      return fail(written.error());
  }
  if (is_interrupted()) return fail(interrupted_results);
  return status_of(results->outcomes);
}

}  // namespace tulle::cli
