// `tulle compare` (study/compare.h).

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "cli/layout.h"
#include "cli/simulations.h"
#include "cli/terminal.h"
#include "os/large_pages.h"
#include "study/choice.h"
#include "study/present.h"
#include "study/ranks.h"
#include "study/report/results.h"
#include "study/results_folder.h"

namespace tulle::cli {
namespace {

// Returns true if the best value of a column is to be shown in bold, for a person at a terminal.
// What ranks print goes to mpirun, though that may give them a terminal.
bool marks() {
  if (ranks().are_several()) return false;
  const char* no_color = getenv("NO_COLOR");  // no-color.org
  return isatty(STDOUT_FILENO) != 0 && (no_color == nullptr || *no_color == '\0');
}

// Reads the scenario, and takes the folder of results.
Result<scenario::Scenario> prepare(const CompareOptions& options,
                                   const std::vector<scenario::Fabric>& fabrics) {
  auto scenario = study::comparison(options.choice, fabrics, as_option);
  auto checked =
      study::check_level(options.level, options.unvalidated, ranks().are_several(), as_option);
  if (!checked) return checked.error();
  if (!scenario || options.output.empty() || !ranks().is_first()) return scenario;
  Terminal terminal;
  auto ready = study::prepare_results(options.output, study::ResultsOf::run, terminal);
  if (!ready) return ready.error();
  return scenario;
}

}  // namespace

int compare(const CompareOptions& options) {
  auto fabrics = study::shipped_fabrics();
  if (!fabrics) return fail(fabrics.error());
  if (options.list) {
    const auto printed = print(study::choices_text(*fabrics));
    return printed ? 0 : fail(printed.error());
  }
  take_large_pages();
  if (auto joined = ranks().join(library_folder().string()); !joined) return fail(joined.error());
  auto scenario = prepare(options, *fabrics);
  auto agreed = study::agree(ranks().get(), scenario ? Result<void>() : scenario.error());
  if (!agreed) return fail(agreed.error());
  std::vector<std::size_t> all(scenario->variants().size());
  std::iota(all.begin(), all.end(), 0);
  study::PresentOptions presenting;
  presenting.simulating = simulating(options, options.level, options.unvalidated);
  presenting.folder = options.output;
  presenting.what = "fabric";
  presenting.again = options.again;
  presenting.has_note = !options.json;
  presenting.text = [&](const report::Results& results) {
    for (const std::string& name : study::left_out(options.choice, *fabrics)) {
      fmt::print(stderr, "tulle: {} is left out: it goes with one plane\n", name);
    }
    return options.json ? report::summary_json(results) : study::comparison_text(results, marks());
  };
  Terminal terminal(options.json ? "" : scenario->title());
  auto results = study::present(std::move(presenting), *scenario, all, terminal,
                                options.json ? print_json : print);
  if (!results) return fail(results.error());
  if (!*results) return 0;  // the first rank has them
  if (is_interrupted()) return fail(interrupted_results);
  // A user who compares fabrics wants to know of flows that did not finish.
  const std::string unfinished = study::unfinished_text((*results)->outcomes);
  return unfinished.empty() ? 0 : fail(unfinished);
}

}  // namespace tulle::cli
