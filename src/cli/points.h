#pragma once

// Points of a scenario: the scenario with some of its keys changed. Each point is simulated in a
// process of its own and has a file of its own, so that work which was interrupted goes on where it
// was. docs/decisions/046-sweeps.md says why.

#include <cstddef>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/results_folder.h"
#include "cli/simulations.h"
#include "live/unique_fd.h"
#include "report/outcome.h"
#include "scenario/scenario.h"

namespace tulle::cli {

struct Point {
  std::string name;                // for people
  std::vector<std::string> lines;  // lines of TOML that change the scenario
  std::string file;                // of its results
  std::string identity;            // JSON of all that the results depend on, apart from other files
  std::vector<report::Outcome> outcomes;
  std::string failure;     // why there are none; empty: it was not simulated yet
  bool is_misuse = false;  // the scenario refuses its values

  // Returns the TOML of each variant's settings.
  std::vector<std::string> settings() const;
};

struct PointsOptions {
  std::string scenario;          // a file, or a name from --list
  std::vector<std::string> set;  // lines of TOML that count at all points
  std::string variant;           // empty: all
  std::string folder;            // of the results
  unsigned jobs = 1;             // points that are simulated at the same time
  std::string level = packet_level;
  ResultsOf kind = ResultsOf::sweep;
};

class Points {
 public:
  explicit Points(PointsOptions options);

  // Makes the folder, and locks it, so that no other process writes there. The processes of work
  // that was killed have the lock for a moment more. The error is one line.
  Result<void> open();
  // Adds a point, with its results if they are there. The error is one line: the scenario cannot be
  // read, or has no such variant.
  Result<std::size_t> add(std::string name, std::vector<std::string> lines);
  // Simulates the points that have neither results nor a failure. `show` is called now and then,
  // with the number of points that are under way.
  void simulate(const std::function<void(std::size_t running)>& show);

  const std::vector<Point>& all() const { return points_; }
  const Point& operator[](std::size_t index) const { return points_[index]; }
  std::size_t done() const { return done_; }
  const std::string& title() const { return title_; }  // of the scenario
  // Returns why no more points were simulated, such as a full disk; empty if they were.
  const std::string& stopped() const { return stopped_; }
  Result<scenario::Scenario> scenario_of(const std::vector<std::string>& lines) const;

 private:
  Result<void> lock();
  bool load(Point& point);
  bool is_unchanged(const nlohmann::ordered_json& files);
  Result<void> simulate_point(std::size_t index) const;

  PointsOptions options_;
  Result<std::string> path_;  // of the scenario
  std::string title_;
  std::vector<Point> points_;
  std::map<std::string, std::string> digests_;  // by path: of files as they are now
  std::string stopped_;
  live::UniqueFd lock_;
  std::size_t done_ = 0;
};

// Returns JSON with an end of line. A file's name, or what a process has said, may be no UTF-8.
std::string text_of(const nlohmann::ordered_json& json, int indent);
// Returns an error message: what makes points does not run under mpirun.
std::string no_ranks_for(const std::string& what);
// Returns text as a cell of CSV.
std::string csv_cell(const std::string& text);

}  // namespace tulle::cli
