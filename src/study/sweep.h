#pragma once

// A sweep simulates a scenario with different values of its keys (study/points.h), and puts the
// figures of all points into one table.

#include <chrono>
#include <cstddef>
#include <string>

#include "base/result.h"
#include "study/level.h"
#include "study/points.h"
#include "study/report/outcome.h"
#include "study/scenario/grid.h"

namespace tulle::study {

// What a sweep is called, and where its tables go.
struct SweepPlace {
  std::string scenario;  // as its caller named it
  std::string folder;
};

class Sweep {
 public:
  // The points and the monitor must outlive this object. The points are none yet.
  Sweep(SweepPlace place, scenario::Grid grid, PointSet& points, Monitor& monitor);

  // Adds the grid's points, with the results that are there.
  Result<void> prepare();
  void run();
  // Writes sweep.csv, sweep.json and report.html. `again` is the command that makes them.
  Result<void> write(const std::string& again) const;
  // Fails if results are missing, in one line.
  Result<void> check() const;

  // Returns the results, one for each point and variant, whose names say which values they have.
  report::Results results() const;
  // Returns a row for each point and variant, and for each kind of traffic. It has the keys'
  // values, and then all figures that any of them has.
  std::string csv() const;
  // Returns the telling figures of all points for people, with the best values in bold if
  // `marks_best`; empty: no point has results.
  std::string text(Level level, bool marks_best) const;
  std::string json() const;

 private:
  std::string progress(std::size_t running) const;

  const SweepPlace place_;
  const scenario::Grid grid_;
  PointSet& points_;
  Monitor& monitor_;
  std::size_t begun_with_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace tulle::study
