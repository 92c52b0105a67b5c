// `tulle sweep` and `tulle tune`, which simulate many points (study/sweep.h, study/tune.h).

#include <unistd.h>

#include <utility>

#include "cli/simulations.h"
#include "cli/terminal.h"
#include "os/large_pages.h"
#include "study/level.h"
#include "study/scenario/grid.h"
#include "study/sweep.h"
#include "study/tune_report.h"

namespace tulle::cli {
namespace {

int refuse_ranks(const std::string& what) {
  return refuse(what +
                " does not run under mpirun: it starts a process for each point; set "
                "TULLE_MPI=none to start it in a batch job anyway");
}

Result<scenario::Grid> grid_of(const SweepOptions& options) {
  if (options.knobs.empty() == options.points.empty()) {
    return Error{"name what is to vary: --knob KEY=VALUE,VALUE, or --points FILE with a list"};
  }
  return options.points.empty() ? scenario::grid_of_texts(options.knobs)
                                : scenario::read_points(options.points);
}

}  // namespace

int sweep(const SweepOptions& options) {
  if (ranks().are_several()) return refuse_ranks("a sweep");
  take_large_pages();
  auto grid = grid_of(options);
  if (!grid) return fail(as_misuse(grid.error()));
  Terminal terminal;
  const study::Level level = study::level_of(options.level);
  study::Points points(
      {options.scenario, options.set, options.variant, options.output, options.jobs, level},
      terminal);
  if (auto opened = points.open(); !opened) return fail(opened.error());
  study::Sweep sweep({options.scenario, options.output}, std::move(*grid), points, terminal);
  if (auto ready = sweep.prepare(); !ready) return fail(ready.error());
  sweep.run();
  if (auto written = sweep.write(options.again); !written) return fail(written.error());
  auto printed = options.json ? print_json(sweep.json())
                              : print(sweep.text(level, isatty(STDOUT_FILENO) != 0));
  if (!printed) return fail(printed.error());
  const auto checked = sweep.check();
  return checked ? 0 : fail(checked.error());
}

int tune(const TuneOptions& options) {
  if (ranks().are_several()) return refuse_ranks("a search");
  take_large_pages();
  auto settings = study::tune_settings(options, as_option);
  if (!settings) return fail(as_misuse(settings.error()));
  const study::Level level = study::level_of(options.level);
  Terminal terminal;
  study::Points points({options.scenario, options.set, options.variant, options.output,
                        options.jobs, level, study::ResultsOf::search},
                       terminal);
  auto searched =
      study::search({options.scenario, options.variant, options.output, options.again, level},
                    *settings, points, terminal);
  if (!searched) return fail(searched.error());
  auto printed = options.json ? print_json(searched->json) : print(searched->table);
  if (!printed) return fail(printed.error());
  return searched->found.is_gained() ? 0 : 1;
}

}  // namespace tulle::cli
