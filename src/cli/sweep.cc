// `tulle sweep` (study/sweep.h).

#include <fmt/format.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "cli/large_pages.h"
#include "cli/ranks.h"
#include "cli/simulations.h"
#include "cli/terminal.h"
#include "study/report/columns.h"
#include "study/scenario/grid.h"
#include "study/sweep.h"

namespace tulle::cli {
namespace {

Result<scenario::Grid> grid_of(const SweepOptions& options) {
  if (options.knobs.empty() == options.points.empty()) {
    return Error{"name what is to vary: --knob KEY=VALUE,VALUE, or --points FILE with a list"};
  }
  if (!options.points.empty()) return scenario::read_points(options.points);
  std::vector<scenario::Knob> knobs;
  for (const std::string& text : options.knobs) {
    auto knob = scenario::parse_knob(text);
    if (!knob) return knob.error();
    knobs.push_back(std::move(*knob));
  }
  return scenario::grid_of(knobs);
}

Result<void> print_results(const study::Sweep& sweep, const SweepOptions& options) {
  if (options.json) return print(sweep.json());
  const report::Results shown = sweep.results();
  if (shown.outcomes.empty()) return {};
  std::string text = (shown.title.empty() ? "" : shown.title + "\n") +
                     report::plain_text(report::telling_figures("point", shown.outcomes),
                                        isatty(STDOUT_FILENO) != 0);
  if (options.level == study::flow_level) text += study::flow_level_note(shown.outcomes);
  return print(text);
}

}  // namespace

int sweep(const SweepOptions& options) {
  if (has_ranks()) return refuse(no_ranks_for("a sweep"));
  take_large_pages();
  auto grid = grid_of(options);
  if (!grid) return fail(as_misuse(grid.error()));
  Terminal terminal;
  study::Points points({options.scenario, options.set, options.variant, options.output,
                        options.jobs, study::level_of(options.level)},
                       terminal);
  if (auto opened = points.open(); !opened) return fail(opened.error());
  study::Sweep sweep({options.scenario, options.output}, std::move(*grid), points, terminal);
  if (auto ready = sweep.prepare(); !ready) return fail(ready.error());
  sweep.run();
  if (auto written = sweep.write(options.again); !written) return fail(written.error());
  if (auto printed = print_results(sweep, options); !printed) return fail(printed.error());
  const auto checked = sweep.check();
  return checked ? 0 : fail(checked.error());
}

}  // namespace tulle::cli
