#pragma once

// Points of a scenario: the scenario with some of its keys changed. Each point is simulated in a
// separate process and has its own file. Work that was interrupted therefore resumes where it
// was. docs/decisions/046-sweeps.md says why.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "os/output_folder.h"
#include "os/unique_fd.h"
#include "study/files_seen.h"
#include "study/level.h"
#include "study/monitor.h"
#include "study/report/outcome.h"
#include "study/results_folder.h"
#include "study/scenario/scenario.h"

namespace tulle::study {

struct Point {
  std::string name;                // for people
  std::vector<std::string> lines;  // lines of TOML that change the scenario
  std::string file;                // of its results: a name in the folder of points
  std::string identity;            // JSON of all that the results depend on, apart from other files
  std::vector<report::Outcome> outcomes;
  std::string failure;     // why there are none; empty: it was not simulated yet
  bool is_misuse = false;  // the scenario refuses its values

  // Returns the TOML of each variant's settings.
  std::vector<std::string> settings() const;
};

// What a sweep or a search needs of its points.
class PointSet {
 public:
  virtual ~PointSet() = default;

  // Adds a point, with its results if they are known. The error is one line: the scenario cannot be
  // read, or has no such variant.
  virtual Result<std::size_t> add(std::string name, std::vector<std::string> lines) = 0;
  // Simulates the points that have neither results nor a failure. `show` is called now and then,
  // with the number of points that are under way.
  virtual void simulate(const std::function<void(std::size_t running)>& show) = 0;
  virtual const std::vector<Point>& all() const = 0;
  // Returns the title of the scenario, once a point was added; empty: it has none.
  virtual const std::string& title() const = 0;
  // Returns why no more points were simulated, such as a full disk; empty if they were.
  virtual const std::string& stopped() const = 0;

  const Point& operator[](std::size_t index) const { return all()[index]; }
  std::size_t done() const;  // points that have results
};

struct PointsOptions {
  std::string scenario;          // a file, or a name of study/scenarios.h
  std::vector<std::string> set;  // lines of TOML that count at all points
  std::string variant;           // empty: all
  std::string folder;            // of the results
  unsigned jobs = 1;             // points that are simulated at the same time; at least 1
  Level level = Level::packet;
  ResultsOf kind = ResultsOf::sweep;
};

class Points final : public PointSet {
 public:
  // The monitor must outlive this object.
  Points(PointsOptions options, Monitor& monitor);

  // Reads the scenario, makes the folder, and locks it, so that no other process writes there. The
  // processes of work that was killed have the lock for a moment more. The error is one line.
  Result<void> open();

  Result<std::size_t> add(std::string name, std::vector<std::string> lines) override;
  void simulate(const std::function<void(std::size_t running)>& show) override;
  const std::vector<Point>& all() const override { return points_; }
  const std::string& stopped() const override { return stopped_; }

  const std::string& title() const override { return title_; }

  // Returns the scenario with these lines of TOML in place of those of its keys.
  Result<scenario::Scenario> scenario_of(const std::vector<std::string>& lines) const;

 private:
  Result<void> lock(const OutputFolder& folder);
  void load(Point& point);
  Result<void> simulate_point(std::size_t index) const;

  PointsOptions options_;
  Monitor& monitor_;
  Result<std::string> path_;  // of the scenario
  std::string title_;
  std::vector<Point> points_;
  OutputFolder folder_;  // of the points' files
  FilesNow now_;
  std::size_t identities_bytes_ = 0;
  std::string stopped_;
  UniqueFd lock_;
};

// Returns JSON with an end of line. A file's name, or what a process has said, may be no UTF-8.
std::string text_of(const nlohmann::ordered_json& json, int indent);
// Returns text as a cell of CSV.
std::string csv_cell(const std::string& text);

}  // namespace tulle::study
