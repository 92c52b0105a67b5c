#include "study/present.h"

#include <utility>

#include "study/level.h"
#include "study/ranks.h"

namespace tulle::study {

Result<std::optional<report::Results>> present(PresentOptions options,
                                               const scenario::Scenario& scenario,
                                               std::span<const std::size_t> variants,
                                               Monitor& monitor, const Print& print) {
  SimulateOptions& simulating = options.simulating;
  if (!options.folder.empty() || simulating.ranks != nullptr) {
    auto checked = agree(simulating.ranks, scenario.check_settings(variants));
    if (!checked) return checked.error();
  }
  if (auto alike = check_alike(simulating.ranks, scenario, variants); !alike) return alike.error();
  const auto write = [&](const report::Results& results, bool are_several) {
    return write_results(options.folder, scenario, variants, results,
                         {options.what, options.again, are_several});
  };
  simulating.timeline = !options.folder.empty();
  if (!options.folder.empty()) {
    // They are in the same folders as when all are there.
    simulating.keep = [&](const report::Results& results) {
      return write(results, variants.size() > 1);
    };
  }
  simulating.kept_in = options.folder;
  Timings timings;
  auto results = simulate(simulating, scenario, variants, monitor, timings);
  if (!results) return results.error();
  if (!is_first(simulating.ranks)) return std::optional<report::Results>();
  if (auto printed = print(options.text(*results)); !printed) return printed.error();
  if (simulating.level == Level::flow && options.has_note) {
    auto noted = print(flow_level_note(results->outcomes));
    if (!noted) return noted.error();
  }
  if (!options.folder.empty()) {
    auto written = write(*results, results->outcomes.size() > 1);
    if (!written) return written.error();
  }
  if (!options.timings.empty()) {
    auto written = write_timings(options.timings, timings);
    if (!written) return written.error();
  }
  return std::optional<report::Results>(std::move(*results));
}

}  // namespace tulle::study
