#include "study/tune_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include "base/quoted.h"
#include "study/config/files.h"
#include "study/scenario/grid.h"
#include "study/tuning/knob.h"

namespace tulle::study {
namespace {

namespace fs = std::filesystem;
using scenario::Spelling;

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
Result<std::string> knobs_file(const std::string& name, const Spelling& spell) {
  std::error_code error;
  if (fs::is_regular_file(name, error)) return name;
  auto found = config::find_named_or_file("", "tuning", name, "set of knobs named");
  if (!found) return Error{spell("knobs") + ": " + found.error().message};
  return found;
}

Result<std::vector<tuning::Knob>> knobs_of(const TuneRequest& request, const Spelling& spell) {
  std::vector<tuning::Knob> knobs;
  for (const std::string& name : request.knob_files) {
    auto file = knobs_file(name, spell);
    if (!file) return file.error();
    auto more = tuning::read_knobs(*file);
    if (!more) return more.error();
    std::ranges::move(*more, std::back_inserter(knobs));
  }
  for (const std::string& text : request.knobs) {
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
    return Error{fmt::format("name what is to be tuned: {} dcqcn, or {} KEY=LEAST..MOST",
                             spell("knobs"), spell("knob"))};
  }
  if (std::ranges::find(knobs, std::string("seed"), &tuning::Knob::key) != knobs.end()) {
    return Error{fmt::format("{} seed: seeds are drawn, not tuned: choose them with {}",
                             spell("knob"), spell("seeds"))};
  }
  if (auto checked = tuning::check(knobs); !checked) return checked.error();
  return knobs;
}

}  // namespace

Result<TuneSettings> tune_settings(const TuneRequest& request, const Spelling& spell) {
  if (request.minimize.empty() == request.maximize.empty()) {
    return Error{fmt::format("name the objective: {} fct_us.p99, or {} busbw_gbytes",
                             spell("minimize"), spell("maximize"))};
  }
  if (request.budget < 2 || request.budget > budget_max) {
    return Error{
        fmt::format("{} {}: must be 2 to {}", spell("budget"), request.budget, budget_max)};
  }
  TuneSettings settings;
  settings.budget = request.budget;
  settings.maximizes = request.minimize.empty();
  settings.figure = settings.maximizes ? request.maximize : request.minimize;
  if (!is_figure(settings.figure)) {
    return no_such_figure(spell(settings.maximizes ? "maximize" : "minimize"), settings.figure);
  }
  auto knobs = knobs_of(request, spell);
  if (!knobs) return knobs.error();
  settings.knobs = std::move(*knobs);
  for (const std::string& text : request.limits) {
    auto limit = parse_limit(text);
    if (!limit) return limit.error();
    settings.limits.push_back(std::move(*limit));
  }
  auto seeds = parse_seeds(spell("seeds"), request.seeds);
  if (!seeds) return seeds.error();
  auto validation = parse_seeds(spell("validation_seeds"), request.validation_seeds);
  if (!validation) return validation.error();
  for (const std::string& seed : *validation) {
    if (std::ranges::find(*seeds, seed) == seeds->end()) continue;
    return Error{fmt::format("seed {} is searched on: name others with {}", seed,
                             spell("validation_seeds"))};
  }
  if (request.budget * seeds->size() > simulations_max) {
    return Error{fmt::format("{} settings on {} seeds are too many: at most {} simulations",
                             request.budget, seeds->size(), simulations_max)};
  }
  settings.seeds = std::move(*seeds);
  settings.validation_seeds = std::move(*validation);
  return settings;
}

}  // namespace tulle::study
