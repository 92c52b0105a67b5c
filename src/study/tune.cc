#include "study/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "study/report/results.h"

namespace tulle::study {
namespace {

// A setting that breaks a limit costs more than any that keeps to all of them, and the more, the
// further off it is, so that the search finds its way to those that do.
constexpr double limit_cost = 1e200;
constexpr char resumes[] = "interrupted: the same command resumes it";

}  // namespace

double TuneSettings::gain(double was, double is) const {
  if (was == 0) return is == was ? 0 : std::copysign(1.0, cost(was) - cost(is));
  return (cost(was) - cost(is)) / std::abs(was);
}

Setting Tuner::setting_at(const tuning::Place& place) const {
  Setting setting;
  setting.values = tuning::values_at(settings_.knobs, place);
  for (std::size_t i = 0; i < settings_.knobs.size(); ++i) {
    setting.lines.push_back(fmt::format("{} = {}", settings_.knobs[i].key, setting.values[i]));
  }
  return setting;
}

// Returns a point's figure; not a number, with the reason, if it does not count.
double Tuner::value_of(const Point& point, std::string& failure) const {
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
  if (const auto value = value_in(outcome, settings_.figure)) return *value;
  failure = fmt::format("it has no figure {}", settings_.figure);
  return none;
}

void Tuner::look_at_limits(const Point& point, Score& score) const {
  for (const Limit& limit : settings_.limits) {
    const double value = value_in(point.outcomes.front(), limit.figure).value_or(0);
    if (limit.allows(value)) continue;
    score.excess += std::abs(value - limit.bound) / std::max(std::abs(limit.bound), 1.0);
    score.failure = fmt::format("{} is {:.6g}", limit.figure, value);
  }
}

Score Tuner::score_of(std::span<const std::size_t> points) const {
  Score score;
  for (const std::size_t index : points) {
    const Point& point = points_[index];
    if (point.outcomes.empty() && point.failure.empty()) score.is_missing = true;
    score.values.push_back(value_of(point, score.failure));
    if (!score.failure.empty()) return score;
  }
  for (const std::size_t index : points) look_at_limits(points_[index], score);
  score.mean = std::accumulate(score.values.begin(), score.values.end(), 0.0) /
               static_cast<double>(score.values.size());
  return score;
}

// Simulates the settings on the seeds, and returns each setting's points.
Result<std::vector<std::vector<std::size_t>>> Tuner::simulate(
    std::span<const Setting> settings, const std::vector<std::string>& seeds) {
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
  points_.simulate([this](std::size_t running) { monitor_.show(progress(running)); });
  return points;
}

std::vector<double> Tuner::costs_at(std::span<const tuning::Place> places) {
  std::vector<Setting> settings;
  for (const tuning::Place& place : places) settings.push_back(setting_at(place));
  auto points = simulate(settings, settings_.seeds);
  std::vector<double> costs(places.size(), Score::none);
  if (!points) {
    error_ = points.error();
    return costs;
  }
  for (std::size_t i = 0; i < places.size(); ++i) {
    const Score score = score_of((*points)[i]);
    if (score.is_missing) continue;  // it was interrupted before it ran
    if (score.failure.empty()) {
      costs[i] = settings_.cost(score.mean);
      found_.best_cost = std::min(found_.best_cost, costs[i]);
    } else if (score.excess > 0) {
      costs[i] = limit_cost * (1 + std::min(score.excess, 1e6));
    }
    found_.tried.push_back({std::move(settings[i]), score});
  }
  return costs;
}

std::string Tuner::progress(std::size_t running) const {
  std::string best;
  if (std::isfinite(found_.best_cost)) {
    best = fmt::format(", best {} so far {:.6g} (was {:.6g})", settings_.figure,
                       settings_.cost(found_.best_cost), found_.baseline.mean);
  }
  return fmt::format("{} of {} settings, {} simulations running{}", found_.tried.size(),
                     settings_.budget, running, best);
}

// The scenario as it was must itself have the figure. It may break the limits: to keep to them is
// what is searched for.
Result<void> Tuner::check_baseline() {
  const Setting as_it_was;
  auto points = simulate(std::span(&as_it_was, 1), settings_.seeds);
  if (!points) return points.error();
  found_.baseline = score_of(points->front());
  if (!monitor_.goes_on()) return Error{resumes};
  if (found_.baseline.counts()) return {};
  Error error{
      fmt::format("the scenario as it is cannot be compared with: {}", found_.baseline.failure)};
  error.is_misuse = std::ranges::all_of(points_.all(), &Point::is_misuse);
  return error;
}

Result<void> Tuner::search() {
  if (auto checked = check_baseline(); !checked) return checked;
  const tuning::SearchSettings settings{settings_.knobs.size(), settings_.budget, 1};
  place_ = tuning::search(
      settings, [this](std::span<const tuning::Place> places) { return costs_at(places); },
      [this] { return goes_on(); });
  monitor_.show("");
  if (error_) return *error_;
  if (!points_.stopped().empty()) return Error{points_.stopped()};
  if (!monitor_.goes_on()) {
    return Error{fmt::format("interrupted after {} of {} settings; the same command resumes it",
                             found_.tried.size(), settings_.budget)};
  }
  if (!place_.place.empty()) found_.best = setting_at(place_.place);
  return {};
}

Result<void> Tuner::check() const {
  const std::vector<Tried>& tried = found_.tried;
  if (place_.place.empty()) {
    return Error{fmt::format("none of {} settings counts; the first: {}", tried.size(),
                             tried.front().score.failure)};
  }
  if (place_.score < limit_cost) return {};
  const auto nearest = std::ranges::find(
      tried, found_.best.lines, [](const Tried& each) -> auto& { return each.setting.lines; });
  return Error{fmt::format("none of {} settings keeps to the limits; with the nearest, {}",
                           tried.size(), nearest->score.failure)};
}

Result<void> Tuner::validate() {
  const std::vector<Setting> both = {{}, found_.best};
  auto points = simulate(both, settings_.validation_seeds);
  monitor_.show("");
  if (!points) return points.error();
  if (!monitor_.goes_on()) return Error{resumes};
  found_.validated_was = score_of(points->front());
  found_.validated_is = score_of(points->back());
  for (const auto& each : *points) {
    found_.validated_points.insert(found_.validated_points.end(), each.begin(), each.end());
  }
  if (!found_.validated_was.counts()) {
    return Error{fmt::format("on a validation seed, the scenario as it was fails: {}",
                             found_.validated_was.failure)};
  }
  if (!found_.validated_is.counts()) {
    return Error{fmt::format("on a validation seed, the best setting does not count: {}",
                             found_.validated_is.failure)};
  }
  found_.keep_because = reason_to_keep();
  return {};
}

// Returns why the scenario is to be kept as it was. Empty means that the best setting is better: on
// the validation seeds it keeps to the limits, and the scenario breaks one of them or has a worse
// mean. The search does not answer this. The best of what it tried may still be worse than the
// scenario, and it may be the best by the luck of the seeds searched.
std::string Tuner::reason_to_keep() const {
  const Score& was = found_.validated_was;
  const Score& is = found_.validated_is;
  if (is.excess > 0) return fmt::format("the best setting breaks a limit, {}", is.failure);
  const bool is_better = was.excess > 0 || settings_.cost(is.mean) < settings_.cost(was.mean);
  return is_better ? "" : "the best setting is no better";
}

}  // namespace tulle::study
