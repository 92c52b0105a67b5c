// `tulle tune` (study/tune.h).

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>
#include <vector>

#include "base/quoted.h"
#include "cli/large_pages.h"
#include "cli/ranks.h"
#include "cli/simulations.h"
#include "cli/terminal.h"
#include "study/config/files.h"
#include "study/scenario/grid.h"
#include "study/tune.h"
#include "study/tune_report.h"
#include "study/tuning/knob.h"

namespace tulle::cli {
namespace {

namespace fs = std::filesystem;

// A search keeps all of its points in memory.
constexpr std::size_t budget_max = 10'000;
constexpr std::size_t seeds_max = 1'000;
constexpr std::size_t simulations_max = 100'000;

Result<std::vector<std::string>> parse_seeds(const std::string& option, const std::string& text) {
  auto knob = scenario::parse_knob("seed=" + text);
  const bool is_list =
      knob && knob->values.size() <= seeds_max &&
      std::ranges::all_of(knob->values, [](const std::string& value) {
        return !value.empty() && value.find_first_not_of("0123456789") == std::string::npos;
      });
  if (is_list) return std::move(knob->values);
  return Error{fmt::format("{} {}: write whole numbers, such as 1..3 or 1,2,7; at most {} of them",
                           option, tulle::quoted(text), seeds_max)};
}

// Finds a file of knobs, given as a path or as the name of one that comes with Tulle.
Result<std::string> knobs_file(const std::string& name) {
  if (fs::is_regular_file(name)) return name;
  auto found = config::find_named_or_file("", "tuning", name, "set of knobs named");
  if (!found) return Error{"--knobs: " + found.error().message};
  return found;
}

Result<std::vector<tuning::Knob>> knobs_of(const TuneOptions& options) {
  std::vector<tuning::Knob> knobs;
  for (const std::string& name : options.knob_files) {
    auto file = knobs_file(name);
    if (!file) return file.error();
    auto more = tuning::read_knobs(*file);
    if (!more) return more.error();
    std::ranges::move(*more, std::back_inserter(knobs));
  }
  for (const std::string& text : options.knobs) {
    auto knob = tuning::parse_range(text);
    if (!knob) return knob.error();
    // A range on the command line replaces the one in a file.
    const auto same = std::ranges::find(knobs, knob->key, &tuning::Knob::key);
    if (same != knobs.end()) {
      *same = std::move(*knob);
    } else {
      knobs.push_back(std::move(*knob));
    }
  }
  if (knobs.empty()) {
    return Error{"name what is to be tuned: --knobs dcqcn, or --knob KEY=LEAST..MOST"};
  }
  if (std::ranges::find(knobs, std::string("seed"), &tuning::Knob::key) != knobs.end()) {
    return Error{"--knob seed: seeds are drawn, not tuned: choose them with --seeds"};
  }
  if (auto checked = tuning::check(knobs); !checked) return checked.error();
  return knobs;
}

Result<study::TuneSettings> settings_of(const TuneOptions& options) {
  if (options.minimize.empty() == options.maximize.empty()) {
    return Error{"name the objective: --minimize fct_us.p99, or --maximize busbw_gbytes"};
  }
  if (options.budget < 2 || options.budget > budget_max) {
    return Error{fmt::format("--budget {}: must be 2 to {}", options.budget, budget_max)};
  }
  study::TuneSettings settings;
  settings.budget = options.budget;
  settings.maximizes = options.minimize.empty();
  settings.figure = settings.maximizes ? options.maximize : options.minimize;
  if (!study::is_figure(settings.figure)) {
    return study::no_such_figure(settings.maximizes ? "--maximize" : "--minimize", settings.figure);
  }
  auto knobs = knobs_of(options);
  if (!knobs) return knobs.error();
  settings.knobs = std::move(*knobs);
  for (const std::string& text : options.limits) {
    auto limit = study::parse_limit(text);
    if (!limit) return limit.error();
    settings.limits.push_back(std::move(*limit));
  }
  auto seeds = parse_seeds("--seeds", options.seeds);
  if (!seeds) return seeds.error();
  auto validation = parse_seeds("--validation-seeds", options.validation_seeds);
  if (!validation) return validation.error();
  for (const std::string& seed : *validation) {
    if (std::ranges::find(*seeds, seed) == seeds->end()) continue;
    return Error{fmt::format("seed {} is searched on: name others with --validation-seeds", seed)};
  }
  if (options.budget * seeds->size() > simulations_max) {
    return Error{fmt::format("{} settings on {} seeds are too many: at most {} simulations",
                             options.budget, seeds->size(), simulations_max)};
  }
  settings.seeds = std::move(*seeds);
  settings.validation_seeds = std::move(*validation);
  return settings;
}

// Searches and writes. Returns what was found.
Result<study::Tuned> search(const TuneOptions& options, const study::TuneSettings& settings) {
  Terminal terminal;
  const study::Level level = study::level_of(options.level);
  study::Points points({options.scenario, options.set, options.variant, options.output,
                        options.jobs, level, study::ResultsOf::search},
                       terminal);
  if (auto opened = points.open(); !opened) return opened.error();
  study::TuneReport report(
      {options.scenario, options.variant, options.output, options.again, level}, settings, points);
  if (auto opened = report.open(); !opened) return opened.error();
  study::Tuner tuner(settings, points, terminal);
  if (auto searched = tuner.search(); !searched) return searched.error();
  const study::Tuned& found = tuner.found();
  if (auto written = report.write_evaluations(found); !written) return written.error();
  if (auto checked = tuner.check(); !checked) return checked.error();
  if (auto validated = tuner.validate(); !validated) return validated.error();
  if (auto written = report.write(found); !written) return written.error();
  auto printed = print(options.json ? report.json(found) : report.table(found));
  if (!printed) return printed.error();
  return found;
}

}  // namespace

int tune(const TuneOptions& options) {
  if (has_ranks()) return refuse(no_ranks_for("a search"));
  take_large_pages();
  auto settings = settings_of(options);
  if (!settings) return fail(as_misuse(settings.error()));
  auto found = search(options, *settings);
  if (!found) return fail(found.error());
  return found->is_gained() ? 0 : 1;
}

}  // namespace tulle::cli
