// `tulle sim` and its gallery (study/present.h, study/gallery.h).

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "cli/layout.h"
#include "cli/simulations.h"
#include "cli/terminal.h"
#include "os/large_pages.h"
#include "study/gallery.h"
#include "study/present.h"
#include "study/ranks.h"
#include "study/report/columns.h"
#include "study/report/gnuplot.h"
#include "study/report/results.h"
#include "study/results_folder.h"
#include "study/scenarios.h"

namespace tulle::cli {
namespace {

// Returns an error for the case that no scenario came with this program.
Error scenarios_missing() {
  return {fmt::format("cannot find Tulle's scenarios from {}; is the installation complete?",
                      executable().string())};
}

int list_scenarios() {
  auto text = study::shipped_scenarios_text();
  if (text && text->empty()) return fail(scenarios_missing());
  if (!text) return fail(text.error());
  const auto printed = print(*text);
  return printed ? 0 : fail(printed.error());
}

// Chooses what is to be simulated, and takes the folder of results.
Result<study::Chosen> prepare(const SimOptions& options) {
  auto chosen = study::choose(options.choice, ranks().are_several(), as_option);
  if (!chosen || options.output.empty() || !ranks().is_first()) return chosen;
  Terminal terminal;
  auto ready = study::prepare_results(options.output, study::ResultsOf::run, terminal);
  if (!ready) return ready.error();
  return chosen;
}

// A line for each page that was made, and one for each that was not.
class Pages final : public study::GalleryMonitor {
 public:
  int status() const { return status_; }

  bool goes_on() const override { return !is_interrupted(); }
  std::unique_ptr<study::Monitor> begin_page(const scenario::Scenario& scenario, std::size_t index,
                                             std::size_t pages) override {
    return std::make_unique<Terminal>(
        "", fmt::format("{} of {}, {}: ", index + 1, pages, scenario.name()));
  }
  Result<void> end_page(const scenario::Scenario& scenario, double seconds) override {
    return print(fmt::format("{:<28} {:>3} variants {:>7.1f} s\n", scenario.name(),
                             scenario.variants().size(), seconds));
  }
  void fail(const Error& error) override {
    const int failed = cli::fail(error);
    status_ = status_ == 0 || status_ == failed ? failed : 1;
  }

 private:
  int status_ = 0;
};

int gallery(const SimOptions& options) {
  const study::Choice& choice = options.choice;
  auto scenarios = study::read_gallery(choice.scenarios, choice.set, choice.overrides);
  if (!scenarios) return fail(scenarios.error());
  if (scenarios->empty()) return fail(scenarios_missing());
  study::GalleryOptions to;
  to.folder = options.output.empty() ? "docs/gallery" : options.output;
  Terminal terminal;
  auto ready = study::prepare_results(to.folder, study::ResultsOf::gallery, terminal);
  if (!ready) return fail(ready.error());
  to.with_pictures = report::has_gnuplot();
  to.jobs = options.jobs;
  catch_interrupts();
  Pages pages;
  if (auto written = study::write_gallery(to, *scenarios, pages); !written) {
    return fail(written.error());
  }
  if (auto printed = print(fmt::format("The pages are in {}.\n", to.folder)); !printed) {
    return fail(printed.error());
  }
  if (!to.with_pictures) {
    fmt::print(stderr,
               "tulle: the pages have no pictures, because gnuplot is missing: install {}\n",
               report::gnuplot_package);
  }
  if (is_interrupted())
    return fail("interrupted: only the scenarios that were finished by then have a new page");
  return pages.status();
}

}  // namespace

study::SimulateOptions simulating(const Work& work, const std::string& level, bool unvalidated) {
  study::SimulateOptions options;
  options.jobs = work.jobs;
  options.threads = work.threads;
  options.level = study::level_of(level);
  options.ranks = ranks().get();
  options.is_unvalidated = unvalidated;
  return options;
}

int sim(const SimOptions& options) {
  if (options.list) return list_scenarios();
  if (options.gallery && ranks().are_several()) {
    return refuse("a gallery is not made under mpirun: give --jobs in its place");
  }
  take_large_pages();
  if (options.gallery) return gallery(options);
  if (auto joined = ranks().join(library_folder().string()); !joined) return fail(joined.error());
  auto chosen = prepare(options);
  auto agreed = study::agree(ranks().get(), chosen ? Result<void>() : chosen.error());
  if (!agreed) return fail(agreed.error());
  study::PresentOptions presenting;
  presenting.simulating = simulating(options, options.choice.level, options.choice.unvalidated);
  presenting.simulating.capture = options.choice.capture;
  presenting.simulating.capture_at = options.capture_at;
  presenting.folder = options.output;
  presenting.what = "variant";
  presenting.again = options.again;
  presenting.timings = options.timings;
  presenting.has_note = !options.json;
  presenting.text = [&](const report::Results& results) {
    return options.json ? report::summary_json(results) : report::summary_table(results.outcomes);
  };
  Terminal terminal(options.json ? "" : chosen->scenario.title());
  auto results = study::present(std::move(presenting), chosen->scenario, chosen->variants, terminal,
                                options.json ? print_json : print);
  if (!results) return fail(results.error());
  return *results && is_interrupted() ? fail(interrupted_results) : 0;
}

}  // namespace tulle::cli
