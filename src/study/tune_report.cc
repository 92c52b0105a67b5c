#include "study/tune_report.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/quoted.h"
#include "study/report/html_page.h"
#include "study/report/results.h"
#include "study/scenario/grid.h"
#include "study/scenarios.h"
#include "study/tuning/devices.h"

namespace tulle::study {

namespace fs = std::filesystem;
using json_t = nlohmann::ordered_json;

TuneReport::TuneReport(TuneReportOptions options, const TuneSettings& settings,
                       const Points& points)
    : options_(std::move(options)), settings_(settings), points_(points) {}

Result<void> TuneReport::open() {
  auto scenario = points_.scenario_of({});
  if (!scenario) return scenario.error();
  // Files that are there are another search's, unless this one comes to the same.
  for (const char* name :
       {"tuned.toml", "tune.json", "report.html", "evaluations.csv", "sonic.json", "adapter.sh"}) {
    std::error_code ignored;
    fs::remove(fs::path(options_.folder) / name, ignored);
  }
  if (options_.variant.empty() && scenario->variants().size() > 1) {
    return as_misuse(
        {fmt::format("scenario {} has {} variants, and one is tuned: name it with --variant",
                     options_.scenario, scenario->variants().size())});
  }
  const auto variants = wanted_variants(*scenario, options_.variant);
  for (const tuning::Knob& knob : settings_.knobs) {
    const std::string value = variants.empty() ? "" : scenario->setting(variants.front(), knob.key);
    were_.push_back(value.empty() ? "default" : std::string(scenario::value_text(value)));
  }
  return {};
}

Result<void> TuneReport::write_evaluations(const Tuned& found) const {
  return report::write_file((fs::path(options_.folder) / "evaluations.csv").string(),
                            evaluations_csv(found));
}

std::string TuneReport::table(const Tuned& found) const {
  const std::string& name = points_.title().empty() ? options_.scenario : points_.title();
  const std::string title = options_.variant.empty() ? name : name + ", " + options_.variant;
  std::string text = fmt::format("{}\n{} settings tried to {} {}\n\n", one_line(title),
                                 found.tried.size(), settings_.direction(), settings_.figure);
  text += fmt::format("{:34}{:>14}{:>14}{:>9}\n", "", "as it was", "tuned", "gain");
  const auto row = [&](const std::string& what, double before, double after) {
    text += fmt::format("{:34}{:14.6g}{:14.6g}{:8.1f} %\n", what, before, after,
                        settings_.gain(before, after) * 100);
  };
  row(fmt::format("mean of the search seeds ({})", settings_.seeds.size()), found.baseline.mean,
      settings_.cost(found.best_cost));
  row(fmt::format("mean of the validation seeds ({})", settings_.validation_seeds.size()),
      found.validated_was.mean, found.validated_is.mean);
  for (std::size_t i = 0; i < settings_.validation_seeds.size(); ++i) {
    row(fmt::format("  seed {}", settings_.validation_seeds[i]), found.validated_was.values[i],
        found.validated_is.values[i]);
  }
  text += "\n";
  for (std::size_t i = 0; i < settings_.knobs.size(); ++i) {
    text += fmt::format("{:34}{:>14}{:>14}\n", settings_.knobs[i].key, were_[i],
                        scenario::value_text(found.best.values[i]));
  }
  for (const std::string& difference : differences_) {
    text += fmt::format("\nsonic.json: {}.\n", difference);
  }
  if (found.is_gained() && found.validated_was.excess > 0) {
    text += fmt::format("\nOn the validation seeds, the scenario as it was breaks a limit: {}.\n",
                        found.validated_was.failure);
  }
  if (options_.level == Level::flow) {
    std::vector<std::string> settings;
    text += "\n" + flow_level_note(validated_results(found, settings).outcomes);
  }
  if (!found.is_gained()) {
    text += fmt::format(
        "\nKeep the scenario as it is: on the validation seeds, {}.\n"
        "Therefore there is no tuned.toml, sonic.json or adapter.sh.\n",
        found.keep_because);
  }
  return text;
}

std::string TuneReport::json(const Tuned& found) const {
  json_t all;
  all["scenario"] = options_.scenario;
  all["variant"] = options_.variant;
  if (options_.level != Level::packet) all["level"] = name_of(options_.level);
  all["figure"] = settings_.figure;
  all["objective"] = settings_.direction();
  all["settings_tried"] = found.tried.size();
  for (std::size_t i = 0; i < settings_.knobs.size(); ++i) {
    all["knobs"][settings_.knobs[i].key] = {{"was", were_[i]},
                                            {"tuned", scenario::value_text(found.best.values[i])}};
  }
  for (std::size_t i = 0; i < settings_.validation_seeds.size(); ++i) {
    all["validation"].push_back({{"seed", std::stoull(settings_.validation_seeds[i])},
                                 {"was", found.validated_was.values[i]},
                                 {"tuned", found.validated_is.values[i]}});
  }
  all["validation_gain"] = settings_.gain(found.validated_was.mean, found.validated_is.mean);
  if (!found.validated_is.failure.empty()) all["limit_broken"] = found.validated_is.failure;
  all["recommended"] = found.is_gained();
  if (!found.is_gained()) all["reason"] = found.keep_because;
  return text_of(all, 2);
}

std::string TuneReport::evaluations_csv(const Tuned& found) const {
  std::string text;
  for (const tuning::Knob& knob : settings_.knobs) text += csv_cell(knob.key) + ",";
  text += "mean";
  for (const std::string& seed : settings_.seeds) text += ",seed " + seed;
  text += ",failure\n";
  const auto add = [&](const Setting& setting, const Score& score) {
    for (std::size_t i = 0; i < settings_.knobs.size(); ++i) {
      const std::string value =
          setting.values.empty() ? were_[i] : std::string(scenario::value_text(setting.values[i]));
      text += csv_cell(value) + ",";
    }
    text += std::isfinite(score.mean) ? fmt::format("{:.9g}", score.mean) : "";
    for (std::size_t i = 0; i < settings_.seeds.size(); ++i) {
      const bool has = i < score.values.size() && std::isfinite(score.values[i]);
      text += has ? fmt::format(",{:.9g}", score.values[i]) : ",";
    }
    text += "," + csv_cell(score.failure) + "\n";
  };
  add({}, found.baseline);
  for (const Tried& each : found.tried) add(each.setting, each.score);
  return text;
}

// Returns a complete scenario: the variant's settings, with those that were found.
Result<std::string> TuneReport::tuned_scenario(const Setting& best,
                                               const std::string& gained) const {
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

Result<void> TuneReport::write_devices(const scenario::Scenario& tuned, std::size_t variant) {
  auto setup = tuned.build(variant);
  if (!setup) return setup.error();
  differences_ = tuning::sonic_differences(*setup);
  const fs::path folder(options_.folder);
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

report::Results TuneReport::validated_results(const Tuned& found,
                                              std::vector<std::string>& settings) const {
  report::Results results{options_.scenario, points_.title(), "", {}};
  for (const std::size_t index : found.validated_points) {
    const Point& point = points_[index];
    results.outcomes.push_back(point.outcomes.front());
    results.outcomes.back().variant = point.name;
    settings.push_back(point.settings().front());
  }
  return results;
}

// Writes the files whose settings a person is to take.
Result<void> TuneReport::write_tuned(const Tuned& found) {
  auto tuned = points_.scenario_of(found.best.lines);
  if (!tuned) return tuned.error();
  const std::string gained = fmt::format(
      "The mean {} on {} validation seeds is {:.6g}; it was {:.6g}.", settings_.figure,
      settings_.validation_seeds.size(), found.validated_is.mean, found.validated_was.mean);
  auto alone = tuned_scenario(found.best, gained);
  if (!alone) return alone.error();
  const std::string path = (fs::path(options_.folder) / "tuned.toml").string();
  if (auto written = report::write_file(path, *alone); !written) return written;
  return write_devices(*tuned, wanted_variants(*tuned, options_.variant).front());
}

Result<void> TuneReport::write(const Tuned& found) {
  const fs::path folder(options_.folder);
  std::vector<std::string> settings;
  const report::Results shown = validated_results(found, settings);
  report::PageText page{options_.again, "point", {}};
  for (const std::string& each : settings) page.variants.push_back({"", each});
  for (const auto& [name, text] : {std::pair("tune.json", json(found)),
                                   std::pair("report.html", report::html_page(shown, page))}) {
    auto written = report::write_file((folder / name).string(), text);
    if (!written) return written;
  }
  return found.is_gained() ? write_tuned(found) : Result<void>();
}

Result<Searched> search(const TuneReportOptions& options, const TuneSettings& settings,
                        Points& points, Monitor& monitor) {
  if (auto opened = points.open(); !opened) return opened.error();
  TuneReport report(options, settings, points);
  if (auto opened = report.open(); !opened) return opened.error();
  Tuner tuner(settings, points, monitor);
  if (auto searched = tuner.search(); !searched) return searched.error();
  const Tuned& found = tuner.found();
  if (auto written = report.write_evaluations(found); !written) return written.error();
  if (auto checked = tuner.check(); !checked) return checked.error();
  if (auto validated = tuner.validate(); !validated) return validated.error();
  if (auto written = report.write(found); !written) return written.error();
  return Searched{found, report.table(found), report.json(found)};
}

}  // namespace tulle::study
