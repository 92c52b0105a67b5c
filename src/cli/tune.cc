// `tulle tune` searches for the values of a scenario's keys with which a figure is best. It looks
// at some seeds, and says what is gained on others, the validation seeds.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/near_names.h"
#include "base/quoted.h"
#include "cli/flow_level.h"
#include "cli/layout.h"
#include "cli/points.h"
#include "cli/ranks.h"
#include "cli/simulate.h"
#include "cli/simulations.h"
#include "config/files.h"
#include "experiment/figures.h"
#include "report/columns.h"
#include "report/html_page.h"
#include "report/results.h"
#include "scenario/grid.h"
#include "tuning/devices.h"
#include "tuning/knob.h"
#include "tuning/search.h"

namespace tulle::cli {
namespace {

namespace fs = std::filesystem;
using json_t = nlohmann::ordered_json;

constexpr double infinity = std::numeric_limits<double>::infinity();
// A search keeps all of its points in memory.
constexpr std::size_t budget_max = 10'000;
constexpr std::size_t seeds_max = 1'000;

// Returns the row of the table of figures for a name such as "pauses" or "traffic.NAME.fct_us.max";
// null if there is none.
const experiment::Row* row_of(std::string_view name) {
  constexpr std::string_view traffic = "traffic.";
  if (name.starts_with(traffic)) {
    const std::size_t dot = name.find('.', traffic.size());
    if (dot == std::string_view::npos) return nullptr;
    name.remove_prefix(dot + 1);
  }
  const std::span<const experiment::Row> rows = experiment::rows();
  const auto found = std::ranges::find_if(
      rows, [&](const experiment::Row& row) { return row.figure.key == name; });
  return found == rows.end() ? nullptr : &*found;
}

// Returns a figure of an outcome. One that is there only where it is not 0 is 0 where it is absent.
std::optional<double> value_in(const report::Outcome& outcome, const std::string& name) {
  if (const report::Measured* measured = report::find(outcome, name)) {
    return report::exact(measured->value);
  }
  const experiment::Row* row = row_of(name);
  if (row != nullptr && row->when == experiment::When::not_zero) return 0;
  return {};
}

Error no_such_figure(std::string_view option, std::string_view name) {
  std::vector<std::string_view> names;
  for (const experiment::Row& row : experiment::rows()) names.push_back(row.figure.key);
  return Error{
      fmt::format("{}: no figure {}{}", option, tulle::quoted(name),
                  did_you_mean(name, names, "the names are those in a run's summary.json"))};
}

// A figure that a point must keep to, such as "pauses<=0".
struct Limit {
  std::string figure;
  bool at_most = true;
  double bound = 0;

  bool allows(double value) const { return at_most ? value <= bound : value >= bound; }
};

Result<Limit> parse_limit(const std::string& text) {
  const auto wrong = [&] {
    return Error{
        fmt::format("--limit {}: write FIGURE<=NUMBER or FIGURE>=NUMBER, such as pauses<=0",
                    tulle::quoted(text))};
  };
  const std::size_t sign = text.find_first_of("<>");
  if (sign == 0 || sign == std::string::npos || text[sign + 1] != '=') return wrong();
  Limit limit{text.substr(0, sign), text[sign] == '<', 0};
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data() + sign + 2, end, limit.bound);
  if (parsed.ec != std::errc() || parsed.ptr != end) return wrong();
  if (row_of(limit.figure) == nullptr) {
    return no_such_figure("--limit", limit.figure);
  }
  return limit;
}

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

// A setting that breaks a limit costs more than any that keeps to all of them, and the more, the
// further off it is, so that the search finds its way to those that do.
constexpr double limit_cost = 1e200;

// The values of all knobs, or nothing: the scenario as it was.
struct Setting {
  std::vector<std::string> lines;   // TOML
  std::vector<std::string> values;  // by knob; empty: as it was
};

struct Score {
  double mean = infinity;      // of the figure over the seeds; infinity: the setting does not count
  std::vector<double> values;  // by seed
  bool is_missing = false;     // a simulation of it has not run
  double excess = 0;           // by how much it breaks the limits, in parts of their bounds
  std::string failure;         // why it does not count; of a broken limit, which one
};

class Tuning {
 public:
  Tuning(const TuneOptions& options, std::vector<tuning::Knob> knobs, std::vector<Limit> limits,
         std::vector<std::string> seeds, std::vector<std::string> validation_seeds)
      : options_(options),
        knobs_(std::move(knobs)),
        limits_(std::move(limits)),
        seeds_(std::move(seeds)),
        validation_seeds_(std::move(validation_seeds)),
        figure_(options.minimize.empty() ? options.maximize : options.minimize),
        points_({options.scenario, options.set, options.variant, options.output, options.jobs,
                 options.level, ResultsOf::search}) {}

  Result<void> run();
  // Returns true if the best setting is better than the scenario as it was.
  bool is_gained() const { return keep_because_.empty(); }

 private:
  struct Tried {
    Setting setting;
    Score score;
  };

  Setting setting_at(const tuning::Place& place) const;
  Result<std::vector<Score>> scores_of(std::span<const Setting> settings,
                                       const std::vector<std::string>& seeds);
  Score score_of(std::span<const std::size_t> points) const;
  double value_of(const Point& point, std::string& failure) const;
  void look_at_limits(const Point& point, Score& score) const;
  std::vector<double> search_scores(std::span<const tuning::Place> places);
  // Returns what the search minimizes, and of a cost the value.
  double cost(double value) const { return options_.minimize.empty() ? -value : value; }
  const char* direction() const { return options_.minimize.empty() ? "maximize" : "minimize"; }
  // Returns by how much the figure is better, as a share of what it was.
  double gain(double was, double is) const {
    if (was == 0) return is == was ? 0 : std::copysign(1.0, cost(was) - cost(is));
    return (cost(was) - cost(is)) / std::abs(was);
  }
  std::string reason_to_keep(const Score& validated_was, const Score& validated_is) const;
  bool goes_on() const { return !is_interrupted() && points_.stopped().empty() && !error_; }
  std::string failure_of(const Setting& setting) const;
  Result<void> check_baseline();
  Result<void> write(const Setting& best, const Score& validated_was, const Score& validated_is);
  Result<void> write_tuned(const Setting& best, const Score& validated_was,
                           const Score& validated_is);
  Result<void> write_devices(const scenario::Scenario& tuned, std::size_t variant);
  std::string evaluations_csv() const;
  Result<std::string> tuned_scenario(const Setting& best, const std::string& gained) const;
  std::string table(const Setting& best, const Score& validated_was,
                    const Score& validated_is) const;
  std::string json(const Setting& best, const Score& validated_was,
                   const Score& validated_is) const;
  report::Results validated_results(std::vector<std::string>& settings) const;
  void note_values(const scenario::Scenario& scenario);
  void show(std::size_t running) const;

  const TuneOptions& options_;
  const std::vector<tuning::Knob> knobs_;
  const std::vector<Limit> limits_;
  const std::vector<std::string> seeds_, validation_seeds_;
  const std::string figure_;
  Points points_;
  std::map<std::vector<std::string>, std::size_t> known_;  // by a point's lines: its index
  std::vector<Tried> tried_;                               // what was tried, in this order
  Score baseline_;
  double best_ = infinity;                 // cost of the best setting so far
  std::vector<std::size_t> shown_points_;  // those of the validation seeds
  std::vector<std::string> differences_;   // between sonic.json and what was simulated
  std::string keep_because_;               // why the scenario is kept as it was; empty: it is not
  std::vector<std::string> were_;          // by knob: its value in the scenario as it was
  std::optional<Error> error_;
};

Setting Tuning::setting_at(const tuning::Place& place) const {
  Setting setting;
  setting.values = tuning::values_at(knobs_, place);
  for (std::size_t i = 0; i < knobs_.size(); ++i) {
    setting.lines.push_back(fmt::format("{} = {}", knobs_[i].key, setting.values[i]));
  }
  return setting;
}

// Returns a point's figure; not a number, with the reason, if it does not count.
double Tuning::value_of(const Point& point, std::string& failure) const {
  constexpr double none = std::numeric_limits<double>::quiet_NaN();
  if (point.outcomes.empty()) {
    failure = point.failure.empty() ? "it was not simulated" : point.failure;
    return none;
  }
  const report::Outcome& outcome = point.outcomes.front();
  if (std::string unfinished = report::unfinished(outcome); !unfinished.empty()) {
    failure = std::move(unfinished);
    return none;
  }
  if (const auto value = value_in(outcome, figure_)) return *value;
  failure = fmt::format("it has no figure {}", figure_);
  return none;
}

void Tuning::look_at_limits(const Point& point, Score& score) const {
  for (const Limit& limit : limits_) {
    const double value = value_in(point.outcomes.front(), limit.figure).value_or(0);
    if (limit.allows(value)) continue;
    score.excess += std::abs(value - limit.bound) / std::max(std::abs(limit.bound), 1.0);
    score.failure = fmt::format("{} is {:.6g}", limit.figure, value);
  }
}

Score Tuning::score_of(std::span<const std::size_t> points) const {
  Score score;
  for (const std::size_t index : points) {
    const Point& point = points_[index];
    if (point.outcomes.empty() && point.failure.empty()) score.is_missing = true;
    score.values.push_back(value_of(points_[index], score.failure));
    if (!score.failure.empty()) return score;
  }
  for (const std::size_t index : points) look_at_limits(points_[index], score);
  score.mean = std::accumulate(score.values.begin(), score.values.end(), 0.0) /
               static_cast<double>(score.values.size());
  return score;
}

Result<std::vector<Score>> Tuning::scores_of(std::span<const Setting> settings,
                                             const std::vector<std::string>& seeds) {
  std::vector<std::vector<std::size_t>> points(settings.size());
  for (std::size_t i = 0; i < settings.size(); ++i) {
    for (const std::string& seed : seeds) {
      std::vector<std::string> lines = settings[i].lines;
      lines.push_back("seed = " + seed);
      const auto [at, is_new] = known_.try_emplace(lines, points_.all().size());
      if (is_new) {
        std::string name =
            fmt::format("seed={}, {}", seed, settings[i].lines.empty() ? "as it was" : "tuned");
        if (auto added = points_.add(std::move(name), std::move(lines)); !added) {
          return added.error();
        }
      }
      points[i].push_back(at->second);
    }
  }
  points_.simulate([this](std::size_t running) { show(running); });
  std::vector<Score> scores;
  scores.reserve(points.size());
  for (const auto& each : points) scores.push_back(score_of(each));
  if (&seeds == &validation_seeds_) {
    for (const auto& each : points) {
      shown_points_.insert(shown_points_.end(), each.begin(), each.end());
    }
  }
  return scores;
}

std::vector<double> Tuning::search_scores(std::span<const tuning::Place> places) {
  std::vector<Setting> settings;
  for (const tuning::Place& place : places) settings.push_back(setting_at(place));
  auto scores = scores_of(settings, seeds_);
  std::vector<double> costs(places.size(), infinity);
  if (!scores) {
    error_ = scores.error();
    return costs;
  }
  for (std::size_t i = 0; i < places.size(); ++i) {
    const Score& score = (*scores)[i];
    if (score.is_missing) continue;  // it was interrupted before it ran
    if (score.failure.empty()) {
      costs[i] = cost(score.mean);
      best_ = std::min(best_, costs[i]);
    } else if (score.excess > 0) {
      costs[i] = limit_cost * (1 + std::min(score.excess, 1e6));
    }
    tried_.push_back({std::move(settings[i]), score});
  }
  return costs;
}

void Tuning::show(std::size_t running) const {
  if (isatty(STDERR_FILENO) == 0) return;
  std::string best;
  if (std::isfinite(best_)) {
    best =
        fmt::format(", best {} so far {:.6g} (was {:.6g})", figure_, cost(best_), baseline_.mean);
  }
  fmt::print(stderr, "\r\033[K{} of {} settings, {} simulations running{}", tried_.size(),
             options_.budget, running, best);
  std::fflush(stderr);
}

// The scenario as it was must itself have the figure. It may break the limits: to keep to them is
// what is searched for.
Result<void> Tuning::check_baseline() {
  const Setting as_it_was;
  auto scores = scores_of(std::span(&as_it_was, 1), seeds_);
  if (!scores) return scores.error();
  baseline_ = scores->front();
  if (is_interrupted()) return Error{"interrupted: the same command resumes it"};
  if (std::isinf(baseline_.mean)) {
    Error error{
        fmt::format("the scenario as it is cannot be compared with: {}", baseline_.failure)};
    error.is_misuse = std::ranges::all_of(points_.all(), &Point::is_misuse);
    return error;
  }
  return {};
}

Result<void> Tuning::run() {
  auto scenario = points_.scenario_of({});
  if (!scenario) return scenario.error();
  if (auto opened = points_.open(); !opened) return opened;
  // Files that are there are another search's, unless this one comes to the same.
  for (const char* name :
       {"tuned.toml", "tune.json", "report.html", "evaluations.csv", "sonic.json", "adapter.sh"}) {
    std::error_code ignored;
    fs::remove(fs::path(options_.output) / name, ignored);
  }
  if (options_.variant.empty() && scenario->variants().size() > 1) {
    return as_misuse(
        {fmt::format("scenario {} has {} variants, and one is tuned: name it with --variant",
                     options_.scenario, scenario->variants().size())});
  }
  note_values(*scenario);
  if (auto checked = check_baseline(); !checked) return checked;
  const tuning::SearchSettings settings{knobs_.size(), options_.budget, 1};
  const tuning::Found found = tuning::search(
      settings, [this](std::span<const tuning::Place> places) { return search_scores(places); },
      [this] { return goes_on(); });
  if (isatty(STDERR_FILENO) != 0) fmt::print(stderr, "\r\033[K");
  if (error_) return *error_;
  if (!points_.stopped().empty()) return Error{points_.stopped()};
  if (is_interrupted()) {
    return Error{fmt::format("interrupted after {} of {} settings; the same command resumes it",
                             tried_.size(), options_.budget)};
  }
  const fs::path folder(options_.output);
  auto written = report::write_file((folder / "evaluations.csv").string(), evaluations_csv());
  if (!written) return written;
  if (found.place.empty()) {
    return Error{fmt::format("none of {} settings counts; the first: {}", tried_.size(),
                             tried_.front().score.failure)};
  }
  if (found.score >= limit_cost) {
    return Error{fmt::format("none of {} settings keeps to the limits; with the nearest, {}",
                             tried_.size(), failure_of(setting_at(found.place)))};
  }
  const std::vector<Setting> both = {{}, setting_at(found.place)};
  auto validated = scores_of(both, validation_seeds_);
  if (!validated) return validated.error();
  if (is_interrupted()) return Error{"interrupted: the same command resumes it"};
  for (const Score& score : *validated) {
    if (std::isinf(score.mean)) {
      return Error{fmt::format("on a validation seed, {}: {}",
                               &score == &validated->front() ? "the scenario as it was fails"
                                                             : "the best setting does not count",
                               score.failure)};
    }
  }
  keep_because_ = reason_to_keep((*validated)[0], (*validated)[1]);
  if (auto wrote = write(both[1], (*validated)[0], (*validated)[1]); !wrote) return wrote;
  return cli::print(options_.json ? json(both[1], (*validated)[0], (*validated)[1])
                                  : table(both[1], (*validated)[0], (*validated)[1]));
}

// Returns why the scenario is to be kept as it was. Empty means that the best setting is better: on
// the validation seeds it keeps to the limits, and the scenario breaks one of them or has a worse
// mean. The search does not answer this. The best of what it tried may still be worse than the
// scenario, and it may be the best by the luck of the seeds searched.
std::string Tuning::reason_to_keep(const Score& validated_was, const Score& validated_is) const {
  if (validated_is.excess > 0) {
    return fmt::format("the best setting breaks a limit, {}", validated_is.failure);
  }
  const bool is_better =
      validated_was.excess > 0 || cost(validated_is.mean) < cost(validated_was.mean);
  return is_better ? "" : "the best setting is no better";
}

std::string Tuning::failure_of(const Setting& setting) const {
  return std::ranges::find(
             tried_, setting.lines, [](const Tried& each) -> auto& { return each.setting.lines; })
      ->score.failure;
}

// --- results ------------------------------------------------------------------------------------

void Tuning::note_values(const scenario::Scenario& scenario) {
  const auto variants = wanted_variants(scenario, options_.variant);
  for (const tuning::Knob& knob : knobs_) {
    const std::string value = variants.empty() ? "" : scenario.setting(variants.front(), knob.key);
    were_.push_back(value.empty() ? "default" : std::string(scenario::value_text(value)));
  }
}

std::string Tuning::table(const Setting& best, const Score& validated_was,
                          const Score& validated_is) const {
  const std::string& name = points_.title().empty() ? options_.scenario : points_.title();
  const std::string title = options_.variant.empty() ? name : name + ", " + options_.variant;
  std::string text =
      fmt::format("{}\n{} settings tried to {} {}\n\n", title, tried_.size(), direction(), figure_);
  text += fmt::format("{:34}{:>14}{:>14}{:>9}\n", "", "as it was", "tuned", "gain");
  const auto row = [&](const std::string& what, double before, double after) {
    text += fmt::format("{:34}{:14.6g}{:14.6g}{:8.1f} %\n", what, before, after,
                        gain(before, after) * 100);
  };
  row(fmt::format("mean of the search seeds ({})", seeds_.size()), baseline_.mean, cost(best_));
  row(fmt::format("mean of the validation seeds ({})", validation_seeds_.size()),
      validated_was.mean, validated_is.mean);
  for (std::size_t i = 0; i < validation_seeds_.size(); ++i) {
    row(fmt::format("  seed {}", validation_seeds_[i]), validated_was.values[i],
        validated_is.values[i]);
  }
  text += "\n";
  for (std::size_t i = 0; i < knobs_.size(); ++i) {
    text += fmt::format("{:34}{:>14}{:>14}\n", knobs_[i].key, were_[i],
                        scenario::value_text(best.values[i]));
  }
  for (const std::string& difference : differences_) {
    text += fmt::format("\nsonic.json: {}.\n", difference);
  }
  if (is_gained() && validated_was.excess > 0) {
    text += fmt::format("\nOn the validation seeds, the scenario as it was breaks a limit: {}.\n",
                        validated_was.failure);
  }
  if (options_.level == flow_level) {
    std::vector<std::string> settings;
    text += "\n" + flow_level_note(validated_results(settings).outcomes);
  }
  if (!is_gained()) {
    text += fmt::format(
        "\nKeep the scenario as it is: on the validation seeds, {}.\n"
        "Therefore there is no tuned.toml, sonic.json or adapter.sh.\n",
        keep_because_);
  }
  return text;
}

std::string Tuning::json(const Setting& best, const Score& validated_was,
                         const Score& validated_is) const {
  json_t all;
  all["scenario"] = options_.scenario;
  all["variant"] = options_.variant;
  if (options_.level != packet_level) all["level"] = options_.level;
  all["figure"] = figure_;
  all["objective"] = direction();
  all["settings_tried"] = tried_.size();
  for (std::size_t i = 0; i < knobs_.size(); ++i) {
    all["knobs"][knobs_[i].key] = {{"was", were_[i]},
                                   {"tuned", scenario::value_text(best.values[i])}};
  }
  for (std::size_t i = 0; i < validation_seeds_.size(); ++i) {
    all["validation"].push_back({{"seed", std::stoull(validation_seeds_[i])},
                                 {"was", validated_was.values[i]},
                                 {"tuned", validated_is.values[i]}});
  }
  all["validation_gain"] = gain(validated_was.mean, validated_is.mean);
  if (!validated_is.failure.empty()) all["limit_broken"] = validated_is.failure;
  all["recommended"] = is_gained();
  if (!is_gained()) all["reason"] = keep_because_;
  return text_of(all, 2);
}

std::string Tuning::evaluations_csv() const {
  std::string text;
  for (const tuning::Knob& knob : knobs_) text += csv_cell(knob.key) + ",";
  text += "mean";
  for (const std::string& seed : seeds_) text += ",seed " + seed;
  text += ",failure\n";
  const auto add = [&](const Setting& setting, const Score& score) {
    for (std::size_t i = 0; i < knobs_.size(); ++i) {
      const std::string value =
          setting.values.empty() ? were_[i] : std::string(scenario::value_text(setting.values[i]));
      text += csv_cell(value) + ",";
    }
    text += std::isfinite(score.mean) ? fmt::format("{:.9g}", score.mean) : "";
    for (std::size_t i = 0; i < seeds_.size(); ++i) {
      const bool has = i < score.values.size() && std::isfinite(score.values[i]);
      text += has ? fmt::format(",{:.9g}", score.values[i]) : ",";
    }
    text += "," + csv_cell(score.failure) + "\n";
  };
  add({}, baseline_);
  for (const Tried& each : tried_) add(each.setting, each.score);
  return text;
}

// Returns a scenario that stands by itself: the variant's settings, with those that were found.
Result<std::string> Tuning::tuned_scenario(const Setting& best, const std::string& gained) const {
  auto scenario = points_.scenario_of(best.lines);
  if (!scenario) return scenario.error();
  std::error_code failed;
  const std::string& named = scenario->folder();
  const fs::path whole = fs::absolute(named.empty() ? "." : named, failed);
  if (failed) return Error{fmt::format("cannot find the folder {}: {}", named, failed.message())};
  const std::string folder = whole.lexically_normal().string();
  std::vector<std::string> lines = best.lines;
  const std::string& name = scenario->title().empty() ? scenario->name() : scenario->title();
  for (const auto& [key, value] : {std::pair("title", name + ", tuned"),
                                   std::pair("description", gained), std::pair("folder", folder)}) {
    lines.push_back(fmt::format("{} = {}", key, text_of(json_t(value), -1)));
  }
  scenario = points_.scenario_of(lines);
  if (!scenario) return scenario.error();
  const std::size_t variant = wanted_variants(*scenario, options_.variant).front();
  return fmt::format("# Made by: {}\n{}\n", one_line(options_.again), scenario->settings(variant));
}

Result<void> Tuning::write_devices(const scenario::Scenario& tuned, std::size_t variant) {
  auto setup = tuned.build(variant);
  if (!setup) return setup.error();
  differences_ = tuning::sonic_differences(*setup);
  const fs::path folder(options_.output);
  for (const auto& [name, text] : {std::pair("sonic.json", tuning::sonic_config(*setup)),
                                   std::pair("adapter.sh", tuning::adapter_script(*setup))}) {
    const std::string path = (folder / name).string();
    std::error_code ignored;
    if (text.empty()) {
      fs::remove(path, ignored);  // it would be another search's
    } else if (auto written = report::write_file(path, text); !written) {
      return written;
    }
  }
  return {};
}

report::Results Tuning::validated_results(std::vector<std::string>& settings) const {
  report::Results results{options_.scenario, points_.title(), "", {}};
  for (const std::size_t index : shown_points_) {
    const Point& point = points_[index];
    results.outcomes.push_back(point.outcomes.front());
    results.outcomes.back().variant = point.name;
    settings.push_back(point.settings().front());
  }
  return results;
}

// Writes the files whose settings a person is to take.
Result<void> Tuning::write_tuned(const Setting& best, const Score& validated_was,
                                 const Score& validated_is) {
  auto tuned = points_.scenario_of(best.lines);
  if (!tuned) return tuned.error();
  const std::string gained =
      fmt::format("The mean {} on {} validation seeds is {:.6g}; it was {:.6g}.", figure_,
                  validation_seeds_.size(), validated_is.mean, validated_was.mean);
  auto alone = tuned_scenario(best, gained);
  if (!alone) return alone.error();
  const std::string path = (fs::path(options_.output) / "tuned.toml").string();
  if (auto written = report::write_file(path, *alone); !written) return written;
  return write_devices(*tuned, wanted_variants(*tuned, options_.variant).front());
}

Result<void> Tuning::write(const Setting& best, const Score& validated_was,
                           const Score& validated_is) {
  const fs::path folder(options_.output);
  std::vector<std::string> settings;
  const report::Results shown = validated_results(settings);
  report::PageText page{options_.again, "point", {}};
  for (const std::string& each : settings) page.variants.push_back({"", each});
  for (const auto& [name, text] : {std::pair("tune.json", json(best, validated_was, validated_is)),
                                   std::pair("report.html", report::html_page(shown, page))}) {
    auto written = report::write_file((folder / name).string(), text);
    if (!written) return written;
  }
  return is_gained() ? write_tuned(best, validated_was, validated_is) : Result<void>();
}

}  // namespace

int tune(const TuneOptions& options) {
  if (has_ranks()) return refuse(no_ranks_for("a search"));
  take_large_pages();
  if (options.minimize.empty() == options.maximize.empty()) {
    return refuse("name the objective: --minimize fct_us.p99, or --maximize busbw_gbytes");
  }
  if (options.budget < 2 || options.budget > budget_max) {
    return refuse(fmt::format("--budget {}: must be 2 to {}", options.budget, budget_max));
  }
  const std::string& figure = options.minimize.empty() ? options.maximize : options.minimize;
  if (row_of(figure) == nullptr) {
    return fail(
        as_misuse(no_such_figure(options.minimize.empty() ? "--maximize" : "--minimize", figure)));
  }
  auto knobs = knobs_of(options);
  if (!knobs) return fail(as_misuse(knobs.error()));
  std::vector<Limit> limits;
  for (const std::string& text : options.limits) {
    auto limit = parse_limit(text);
    if (!limit) return fail(as_misuse(limit.error()));
    limits.push_back(std::move(*limit));
  }
  auto seeds = parse_seeds("--seeds", options.seeds);
  if (!seeds) return fail(as_misuse(seeds.error()));
  auto validation = parse_seeds("--validation-seeds", options.validation_seeds);
  if (!validation) return fail(as_misuse(validation.error()));
  for (const std::string& seed : *validation) {
    if (std::ranges::find(*seeds, seed) == seeds->end()) continue;
    return refuse(fmt::format("seed {} is searched on: name others with --validation-seeds", seed));
  }
  constexpr std::size_t simulations_max = 100'000;
  if (options.budget * seeds->size() > simulations_max) {
    return refuse(fmt::format("{} settings on {} seeds are too many: at most {} simulations",
                              options.budget, seeds->size(), simulations_max));
  }
  Tuning tuning(options, std::move(*knobs), std::move(limits), std::move(*seeds),
                std::move(*validation));
  if (const auto done = tuning.run(); !done) return fail(done.error());
  return tuning.is_gained() ? 0 : 1;
}

}  // namespace tulle::cli
