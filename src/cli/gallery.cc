// `tulle sim --gallery`: writes a page with a table and a picture for each scenario.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <numeric>

#include "cli/plot.h"
#include "cli/simulations.h"
#include "cli/terminal.h"
#include "study/report/chart.h"
#include "study/report/page.h"
#include "study/report/picture.h"
#include "study/report/results.h"
#include "study/results_folder.h"
#include "study/scenarios.h"
#include "study/simulate.h"

namespace tulle::cli {
namespace {

namespace fs = std::filesystem;
using scenario::Scenario;

constexpr char folder_default[] = "docs/gallery";

// Reads the scenarios that are named. If none is, reads all that come with Tulle and say in words
// what they show, which the reference does not.
Result<std::vector<Scenario>> read_scenarios(const SimOptions& options) {
  std::vector<Scenario> scenarios;
  const bool all = options.scenarios.empty();
  for (const std::string& name : all ? study::shipped_scenarios() : options.scenarios) {
    auto scenario = study::read_scenario(name, options.set, options.overrides);
    if (!scenario) return scenario.error();
    if (!all || !scenario->description().empty()) scenarios.push_back(std::move(*scenario));
  }
  if (scenarios.empty()) return Error{scenarios_missing()};
  return scenarios;
}

// Removes the version of gnuplot, which does not belong in the picture.
std::string without_version(std::string svg) {
  const std::size_t begin = svg.find("<desc>Produced by GNUPLOT");
  const std::size_t end = svg.find("</desc>", begin);
  if (begin == std::string::npos || end == std::string::npos) return svg;
  return svg.erase(begin, end + 7 - begin);
}

Result<void> write_picture(const fs::path& folder, const Scenario& scenario,
                           const report::Results& results) {
  auto chart = report::draw(scenario.picture(), results);
  if (!chart) return chart.error();
  auto svg = run_gnuplot(report::gnuplot_script(*chart, scenario.name()));
  if (!svg) return svg.error();
  return report::write_file((folder / (scenario.name() + ".svg")).string(),
                            without_version(std::move(*svg)));
}

// Runs one scenario and writes its files. If it fails, the error is one line, and existing files
// stay.
Result<void> add(const fs::path& folder, const Scenario& scenario, bool with_pictures,
                 const std::string& progress, unsigned jobs) {
  std::vector<std::size_t> variants(scenario.variants().size());
  std::iota(variants.begin(), variants.end(), 0);
  study::Timings timings;
  study::SimulateOptions simulating;
  simulating.jobs = jobs;
  Terminal terminal("", progress);
  auto results = study::simulate(simulating, scenario, variants, terminal, timings);
  if (!results) return results.error();
  if (is_interrupted()) return Error{"interrupted"};
  if (with_pictures) {
    if (auto drawn = write_picture(folder, scenario, *results); !drawn) return drawn;
  }
  auto written = report::write_file((folder / (scenario.name() + ".md")).string(),
                                    report::gallery_page(*results, with_pictures));
  if (!written) return written;
  return print(fmt::format("{:<28} {:>3} variants {:>7.1f} s\n", scenario.name(), variants.size(),
                           timings.setup_s + timings.run_s));
}

// Lists all scenarios that have a page, also one from an earlier run.
Result<void> write_index(const fs::path& folder, const std::vector<Scenario>& scenarios) {
  std::vector<report::GalleryEntry> entries;
  const auto list = [&](const Scenario& scenario) {
    const std::string& name = scenario.name();
    const bool listed =
        std::ranges::find(entries, name, &report::GalleryEntry::name) != entries.end();
    if (listed || !fs::exists(folder / (name + ".md"))) return;
    entries.push_back({name, scenario.title(), fs::exists(folder / (name + ".svg"))});
  };
  for (const Scenario& scenario : scenarios) list(scenario);
  for (const std::string& name : study::shipped_scenarios()) {
    if (auto scenario = study::read_scenario(name, {})) list(*scenario);
  }
  std::ranges::sort(entries, {}, &report::GalleryEntry::name);
  return report::write_file((folder / "README.md").string(), report::gallery_index(entries));
}

}  // namespace

int gallery(const SimOptions& options) {
  auto scenarios = read_scenarios(options);
  if (!scenarios) return fail(scenarios.error());
  const fs::path folder = options.output.empty() ? folder_default : options.output;
  Terminal terminal;
  auto ready = study::prepare_results(folder.string(), study::ResultsOf::gallery, terminal);
  if (!ready) return fail(ready.error());
  const bool with_pictures = has_gnuplot();
  catch_interrupts();
  int status = 0;
  for (std::size_t i = 0; i < scenarios->size() && !is_interrupted(); ++i) {
    const Scenario& scenario = (*scenarios)[i];
    const std::string progress =
        fmt::format("{} of {}, {}: ", i + 1, scenarios->size(), scenario.name());
    auto added = add(folder, scenario, with_pictures, progress, options.jobs);
    if (added || is_interrupted()) continue;
    Error error = added.error();
    error.message = fmt::format("{}: {}", scenario.name(), error.message);
    const int failed = fail(error);
    status = status == 0 || status == failed ? failed : 1;
  }
  if (auto written = write_index(folder, *scenarios); !written) {
    return fail(written.error());
  }
  fmt::print("The pages are in {}.\n", folder.string());
  if (!with_pictures) {
    fmt::print(stderr,
               "tulle: the pages have no pictures, because gnuplot is missing: install {}\n",
               gnuplot_package);
  }
  if (is_interrupted())
    return fail("interrupted: only the scenarios that were finished by then have a new page");
  return status;
}

}  // namespace tulle::cli
