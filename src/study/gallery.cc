#include "study/gallery.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <utility>

#include "study/report/chart.h"
#include "study/report/gnuplot.h"
#include "study/report/page.h"
#include "study/report/picture.h"
#include "study/report/results.h"
#include "study/results_folder.h"
#include "study/scenarios.h"
#include "study/simulate.h"

namespace tulle::study {
namespace {

namespace fs = std::filesystem;
using scenario::Scenario;

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
  auto svg = report::run_gnuplot(report::gnuplot_script(*chart, scenario.name()));
  if (!svg) return svg.error();
  return report::write_file((folder / (scenario.name() + ".svg")).string(),
                            without_version(std::move(*svg)));
}

// Runs one scenario and writes its files. If it fails, the error is one line, and existing files
// stay. Returns the seconds that the simulations took.
Result<double> add(const fs::path& folder, const Scenario& scenario, bool with_pictures,
                   Monitor& monitor, unsigned jobs) {
  std::vector<std::size_t> variants(scenario.variants().size());
  std::iota(variants.begin(), variants.end(), 0);
  Timings timings;
  SimulateOptions simulating;
  simulating.jobs = jobs;
  auto results = simulate(simulating, scenario, variants, monitor, timings);
  if (!results) return results.error();
  if (!monitor.goes_on()) return Error{"interrupted"};
  if (with_pictures) {
    if (auto drawn = write_picture(folder, scenario, *results); !drawn) return drawn.error();
  }
  auto written = report::write_file((folder / (scenario.name() + ".md")).string(),
                                    report::gallery_page(*results, with_pictures));
  if (!written) return written.error();
  return timings.setup_s + timings.run_s;
}

// Lists all scenarios that have a page, also one from an earlier run.
Result<void> write_index(const fs::path& folder, std::span<const Scenario> scenarios) {
  std::vector<report::GalleryEntry> entries;
  const auto list = [&](const Scenario& scenario) {
    const std::string& name = scenario.name();
    const bool listed =
        std::ranges::find(entries, name, &report::GalleryEntry::name) != entries.end();
    if (listed || !fs::exists(folder / (name + ".md"))) return;
    entries.push_back({name, scenario.title(), fs::exists(folder / (name + ".svg"))});
  };
  for (const Scenario& scenario : scenarios) list(scenario);
  for (const std::string& name : shipped_scenarios()) {
    if (auto scenario = read_scenario(name, {})) list(*scenario);
  }
  std::ranges::sort(entries, {}, &report::GalleryEntry::name);
  return report::write_file((folder / "README.md").string(), report::gallery_index(entries));
}

}  // namespace

Result<std::vector<Scenario>> read_gallery(std::span<const std::string> names,
                                           const std::vector<std::string>& set,
                                           const scenario::Overrides& overrides) {
  std::vector<Scenario> scenarios;
  const bool all = names.empty();
  for (const std::string& name :
       all ? shipped_scenarios() : std::vector<std::string>(names.begin(), names.end())) {
    auto scenario = read_scenario(name, set, overrides);
    if (!scenario) return scenario.error();
    if (!all || !scenario->description().empty()) scenarios.push_back(std::move(*scenario));
  }
  return scenarios;
}

Result<void> write_gallery(const GalleryOptions& options, std::span<const Scenario> scenarios,
                           GalleryMonitor& monitor) {
  const fs::path folder = options.folder;
  for (std::size_t i = 0; i < scenarios.size() && monitor.goes_on(); ++i) {
    const Scenario& scenario = scenarios[i];
    auto runs = monitor.begin_page(scenario, i, scenarios.size());
    auto added = add(folder, scenario, options.with_pictures, *runs, options.jobs);
    auto made = added ? monitor.end_page(scenario, *added) : Result<void>(added.error());
    runs.reset();
    if (made || !monitor.goes_on()) continue;
    Error error = made.error();
    error.message = fmt::format("{}: {}", scenario.name(), error.message);
    monitor.fail(error);
  }
  return write_index(folder, scenarios);
}

}  // namespace tulle::study
