#pragma once

// Searches for the values of a scenario's keys with which a figure is best. The search looks at
// some seeds, and the gain is measured on others, the validation seeds.

#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "study/monitor.h"
#include "study/objective.h"
#include "study/points.h"
#include "study/tuning/knob.h"
#include "study/tuning/search.h"

namespace tulle::study {

struct TuneSettings {
  std::vector<tuning::Knob> knobs;  // at least one
  std::string figure;               // the objective
  bool maximizes = false;           // the objective; or else it is minimized
  std::vector<Limit> limits;
  // Whole numbers, as text: those that the search looks at, and others. Neither is empty.
  std::vector<std::string> seeds, validation_seeds;
  std::size_t budget = 100;  // settings to try, at least 2

  // Returns what the search minimizes, and of a cost the value.
  double cost(double value) const { return maximizes ? -value : value; }
  const char* direction() const { return maximizes ? "maximize" : "minimize"; }
  // Returns by how much the figure is better, as a share of what it was.
  double gain(double was, double is) const;
};

// The values of all knobs, or nothing: the scenario as it was.
struct Setting {
  std::vector<std::string> lines;   // TOML
  std::vector<std::string> values;  // by knob; empty: as it was
};

struct Score {
  static constexpr double none = std::numeric_limits<double>::infinity();

  double mean = none;          // of the figure over the seeds; none: the setting does not count
  std::vector<double> values;  // by seed
  bool is_missing = false;     // a simulation of it has not run
  double excess = 0;           // by how much it breaks the limits, in parts of their bounds
  std::string failure;         // why it does not count; of a broken limit, which one

  bool counts() const { return !std::isinf(mean); }
};

struct Tried {
  Setting setting;
  Score score;
};

// What a search has found.
struct Tuned {
  std::vector<Tried> tried;        // in this order
  Score baseline;                  // of the scenario as it was, on the search seeds
  double best_cost = Score::none;  // of the best setting, on the search seeds
  Setting best;
  Score validated_was, validated_is;          // of the two, on the validation seeds
  std::vector<std::size_t> validated_points;  // of the one, and then of the other
  std::string keep_because;  // why the scenario is kept as it was; empty: it is not

  bool is_gained() const { return keep_because.empty(); }
};

class Tuner {
 public:
  // The settings, the points and the monitor must outlive this object. The points are none yet.
  Tuner(const TuneSettings& settings, PointSet& points, Monitor& monitor)
      : settings_(settings), points_(points), monitor_(monitor) {}

  // Tries settings until the budget is spent or the monitor ends it. The error is one line.
  Result<void> search();
  // Fails if no setting counts, or none keeps to the limits.
  Result<void> check() const;
  // Simulates the scenario as it was, and the best setting, on the validation seeds.
  Result<void> validate();

  const Tuned& found() const { return found_; }

 private:
  Setting setting_at(const tuning::Place& place) const;
  Result<std::vector<std::vector<std::size_t>>> simulate(std::span<const Setting> settings,
                                                         const std::vector<std::string>& seeds);
  Score score_of(std::span<const std::size_t> points) const;
  double value_of(const Point& point, std::string& failure) const;
  void look_at_limits(const Point& point, Score& score) const;
  std::vector<double> costs_at(std::span<const tuning::Place> places);
  Result<void> check_baseline();
  std::string reason_to_keep() const;
  std::string progress(std::size_t running) const;
  bool goes_on() const { return monitor_.goes_on() && points_.stopped().empty() && !error_; }

  const TuneSettings& settings_;
  PointSet& points_;
  Monitor& monitor_;
  std::map<std::vector<std::string>, std::size_t> known_;  // by a point's lines: its index
  Tuned found_;
  tuning::Found place_;
  std::optional<Error> error_;
};

}  // namespace tulle::study
