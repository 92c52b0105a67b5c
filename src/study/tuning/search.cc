#include "study/tuning/search.h"

#include <nlopt.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/random.h"

namespace tulle::tuning {
namespace {

// The first step downhill, as a share of each knob's range. A place of the first half represents a
// part of the cube that is wider than this with up to some hundred places.
constexpr double first_step = 0.15;
// Subplex divides by differences of scores, which infinity has none of.
constexpr double no_score = 1e300;

// Returns so many places, of which each knob has one in each of as many equal parts of its range.
std::vector<Place> latin_hypercube(const SearchSettings& settings, std::size_t count) {
  Random random(settings.seed);
  std::vector<Place> places(count, Place(settings.dimensions));
  std::vector<std::size_t> order(count);
  for (std::size_t knob = 0; knob < settings.dimensions; ++knob) {
    for (std::size_t i = 0; i < count; ++i) order[i] = i;
    for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    for (std::size_t i = 0; i < count; ++i) {
      places[i][knob] =
          (static_cast<double>(order[i]) + random.unit()) / static_cast<double>(count);
    }
  }
  return places;
}

class Search {
 public:
  Search(const SearchSettings& settings, const Scores& scores, const std::function<bool()>& goes_on)
      : settings_(settings), scores_(scores), goes_on_(goes_on) {}

  Found run() {
    spread();
    if (!found_.place.empty() && found_.scored < settings_.budget && goes_on_()) descend();
    if (thrown_) std::rethrow_exception(thrown_);
    return std::move(found_);
  }

 private:
  void spread() {
    const std::size_t count = (settings_.budget + 1) / 2;
    const std::vector<Place> places = latin_hypercube(settings_, count);
    if (!goes_on_()) return;
    const std::vector<double> scores = scores_(places);
    for (std::size_t i = 0; i < places.size(); ++i) take(places[i], scores[i]);
  }

  void descend() {
    const std::unique_ptr<nlopt_opt_s, decltype(&nlopt_destroy)> optimizer(
        nlopt_create(NLOPT_LN_SBPLX, static_cast<unsigned>(settings_.dimensions)), nlopt_destroy);
    TULLE_CHECK(optimizer != nullptr);
    optimizer_ = optimizer.get();
    nlopt_set_lower_bounds1(optimizer_, 0);
    nlopt_set_upper_bounds1(optimizer_, 1);
    nlopt_set_initial_step1(optimizer_, first_step);
    // Subplex first asks for the score of the place where it begins, which is known.
    begin_ = found_;
    nlopt_set_maxeval(optimizer_, static_cast<int>(settings_.budget - found_.scored + 1));
    nlopt_set_min_objective(
        optimizer_,
        [](unsigned, const double* x, double*, void* self) {
          return static_cast<Search*>(self)->score(x);
        },
        this);
    Place place = found_.place;
    double score = 0;
    nlopt_optimize(optimizer_, place.data(), &score);
  }

  // Called by C, which no exception may pass.
  double score(const double* x) noexcept {
    try {
      if (!goes_on_()) {
        nlopt_force_stop(optimizer_);
        return no_score;
      }
      const Place place(x, x + settings_.dimensions);
      if (place == begin_.place) return begin_.score;
      const double score = scores_(std::span(&place, 1)).front();
      take(place, score);
      return std::isfinite(score) ? score : no_score;
    } catch (...) {
      thrown_ = std::current_exception();
      nlopt_force_stop(optimizer_);
      return no_score;
    }
  }

  void take(const Place& place, double score) {
    ++found_.scored;
    if (!std::isfinite(score) || (!found_.place.empty() && score >= found_.score)) return;
    found_.place = place;
    found_.score = score;
  }

  const SearchSettings& settings_;
  const Scores& scores_;
  const std::function<bool()>& goes_on_;
  nlopt_opt optimizer_ = nullptr;
  Found found_;
  Found begin_;  // of the way downhill
  std::exception_ptr thrown_;
};

}  // namespace

Found search(const SearchSettings& settings, const Scores& scores,
             const std::function<bool()>& goes_on) {
  TULLE_CHECK(settings.dimensions >= 1 && settings.budget >= 1);
  return Search(settings, scores, goes_on).run();
}

}  // namespace tulle::tuning
