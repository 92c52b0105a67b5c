#include "study/compare.h"

#include <fmt/format.h>

#include <cstddef>
#include <filesystem>
#include <string_view>
#include <utility>

#include "study/config/files.h"
#include "study/report/columns.h"
#include "study/report/links.h"
#include "study/report/results.h"
#include "study/workload/collectives.h"
#include "study/workload/experts.h"

namespace tulle::study {
namespace {

namespace fs = std::filesystem;
using scenario::Fabric;
using scenario::Scenario;

// Gives each workload its GPUs.
Result<scenario::WorkloadOptions> pair_jobs(const CompareChoice& choice,
                                            const scenario::Spelling& spell) {
  scenario::WorkloadOptions paired = choice.workload;
  const std::vector<std::string>& names = choice.workloads;
  const std::vector<std::uint32_t>& gpus = choice.gpus;
  paired.workload = names.front();
  if (!gpus.empty()) paired.gpus = gpus.front();
  if (gpus.size() > names.size() || (names.size() > 1 && gpus.size() < names.size())) {
    return Error{fmt::format("{}: is there {} times, and {} {}: each job has its own",
                             spell("gpus"), gpus.size(), spell("workload"), names.size())};
  }
  for (std::size_t i = 1; i < names.size(); ++i) paired.others.push_back({names[i], gpus[i]});
  return paired;
}

}  // namespace

Result<std::vector<Fabric>> shipped_fabrics() {
  return scenario::read_fabrics((fs::path(config::shipped_folder()) / "fabrics").string());
}

std::string choices_text(const std::vector<Fabric>& fabrics) {
  std::string text;
  text += fmt::format("fabrics (* marks the default ones)\n");
  for (const Fabric& fabric : fabrics) {
    text += fmt::format("{} {:<24} {}\n", fabric.by_default ? '*' : ' ', fabric.name, fabric.title);
  }
  text += fmt::format("workloads\n");
  for (const scenario::Workload& workload : scenario::workloads()) {
    text += fmt::format("  {:<24} {}{}{}\n", workload.name, workload.title,
                        workload.bytes.empty() ? "" : ", ", workload.bytes);
  }
  text += fmt::format("collectives among --gpus, with bytes as in allreduce:256MiB\n");
  for (const workload::NamedCollective& each : workload::named_collectives()) {
    text += fmt::format("  {:<24} {}\n", each.name, each.title);
  }
  text += fmt::format(
      "layers of a mixture of experts on --gpus, with more keys by --set traffic.KEY=VALUE\n");
  for (const std::string_view operation : workload::expert_operation_names) {
    text += fmt::format("  moe:{}\n", operation);
  }
  const auto add_files = [&](const char* heading, const char* folder) {
    text += fmt::format("{}\n", heading);
    for (const auto& [name, title] :
         scenario::titles_in((fs::path(config::shipped_folder()) / folder).string())) {
      text += fmt::format("  {:<24} {}\n", name, title);
    }
  };
  add_files("models on --gpus, as in step:llama-3-70b or, where it has [serve], serve:llama-3-70b",
            "models");
  text += fmt::format(
      "traces on --gpus, as in FILE.et: Chakra's (.et, .json), GOAL, SimAI's workloads, htsim's "
      "connections (.cm)\n");
  add_files("servers", "profiles/servers");
  return text;
}

Result<Scenario> comparison(const CompareChoice& choice, const std::vector<Fabric>& fabrics,
                            const scenario::Spelling& spell) {
  auto chosen = scenario::choose_fabrics(fabrics, choice.fabrics, choice.planes());
  if (!chosen) return as_misuse(Error{spell("fabrics") + ": " + chosen.error().message});
  auto jobs = pair_jobs(choice, spell);
  if (!jobs) return as_misuse(jobs.error());
  auto workload = scenario::workload_scenario(*jobs, config::shipped_folder(), spell);
  if (!workload) return as_misuse(workload.error());
  return workload->on_fabrics(std::move(*chosen));
}

std::vector<std::string> left_out(const CompareChoice& choice, const std::vector<Fabric>& fabrics) {
  std::vector<std::string> names;
  if (!choice.fabrics.empty()) return names;
  for (const Fabric& fabric : fabrics) {
    if (fabric.by_default && !fabric.goes_with(choice.planes())) names.push_back(fabric.name);
  }
  return names;
}

std::string comparison_text(const report::Results& results, bool marks_best) {
  std::string text =
      report::plain_text(report::telling_figures("fabric", results.outcomes), marks_best);
  const report::Table worst = report::worst_links_table("fabric", results.outcomes);
  if (worst.rows.empty()) return text;
  return text + "\nthe links that held frames up for longest\n" + plain_text(worst, false);
}

std::string unfinished_text(std::span<const report::Outcome> outcomes) {
  std::string text;
  for (const report::Outcome& outcome : outcomes) {
    const std::string unfinished = report::unfinished(outcome);
    if (unfinished.empty()) continue;
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", outcome.variant, unfinished);
  }
  return text;
}

}  // namespace tulle::study
