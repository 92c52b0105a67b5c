#pragma once

// What a search found, as tables for people and files for programs, switches and adapters.

#include <cstddef>
#include <string>
#include <vector>

#include "base/result.h"
#include "study/level.h"
#include "study/monitor.h"
#include "study/points.h"
#include "study/report/outcome.h"
#include "study/scenario/scenario.h"
#include "study/tune.h"

namespace tulle::study {

struct TuneReportOptions {
  std::string scenario;  // as its caller named it
  std::string variant;   // empty: the only one
  std::string folder;
  std::string again;  // the command that has the same results, for people
  Level level = Level::packet;
};

class TuneReport {
 public:
  // The settings and the points must outlive this object.
  TuneReport(TuneReportOptions options, const TuneSettings& settings, const Points& points);

  // Takes the folder: removes the files of another search, and notes what the knobs' values were.
  // Fails if the scenario has several variants and none is named.
  Result<void> open();
  // Writes evaluations.csv: all settings that were tried, with their scores.
  Result<void> write_evaluations(const Tuned& found) const;
  // Writes the other files. Those whose settings a person is to take are written if the best
  // setting is better.
  Result<void> write(const Tuned& found);

  std::string evaluations_csv(const Tuned& found) const;
  std::string table(const Tuned& found) const;
  std::string json(const Tuned& found) const;

 private:
  Result<void> write_tuned(const Tuned& found);
  Result<void> write_devices(const scenario::Scenario& tuned, std::size_t variant);
  Result<std::string> tuned_scenario(const Setting& best, const std::string& gained) const;
  report::Results validated_results(const Tuned& found, std::vector<std::string>& settings) const;

  const TuneReportOptions options_;
  const TuneSettings& settings_;
  const Points& points_;
  std::vector<std::string> were_;         // by knob: its value in the scenario as it was
  std::vector<std::string> differences_;  // between sonic.json and what was simulated
};

struct Searched {
  Tuned found;
  std::string table;  // as of TuneReport
  std::string json;
};
// Searches in a scenario, validates what was found, and writes the files into the folder. The
// points have their results in the folder, too, and are not opened yet.
Result<Searched> search(const TuneReportOptions& options, const TuneSettings& settings,
                        Points& points, Monitor& monitor);

}  // namespace tulle::study
