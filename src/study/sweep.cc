#include "study/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/quoted.h"
#include "study/report/columns.h"
#include "study/report/html_page.h"
#include "study/report/results.h"

namespace tulle::study {

namespace fs = std::filesystem;
using json_t = nlohmann::ordered_json;

namespace {

// A page of more points would be too long for a browser.
constexpr std::size_t page_points_max = 1'000;

}  // namespace

Sweep::Sweep(SweepPlace place, scenario::Grid grid, PointSet& points, Monitor& monitor)
    : place_(std::move(place)), grid_(std::move(grid)), points_(points), monitor_(monitor) {}

Result<void> Sweep::prepare() {
  for (std::size_t i = 0; i < grid_.points.size(); ++i) {
    if (auto added = points_.add(grid_.name(i), grid_.lines(i)); !added) return added.error();
  }
  begun_with_ = points_.done();
  return {};
}

std::string Sweep::progress(std::size_t running) const {
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  const std::size_t since = points_.done() - begun_with_;
  std::string left;
  if (since > 0) {
    left = fmt::format(", about {:.0f} s left",
                       elapsed.count() / static_cast<double>(since) *
                           static_cast<double>(points_.all().size() - points_.done()));
  }
  return fmt::format("{} of {} points, {} running{}", points_.done(), points_.all().size(), running,
                     left);
}

void Sweep::run() {
  points_.simulate([this](std::size_t running) { monitor_.show(progress(running)); });
  monitor_.show("");
}

Result<void> Sweep::check() const {
  const std::size_t count = points_.all().size() - points_.done();
  if (count == 0) return {};
  if (!points_.stopped().empty()) {
    return Error{fmt::format("{}; {} of {} points have results, and the same command resumes it",
                             points_.stopped(), points_.done(), points_.all().size())};
  }
  if (!monitor_.goes_on()) {
    return Error{
        fmt::format("interrupted: {} of {} points have results, and the same command resumes it",
                    points_.done(), points_.all().size())};
  }
  const auto first =
      std::ranges::find_if(points_.all(), [](const Point& p) { return p.outcomes.empty(); });
  Error error{fmt::format("{} of {} points have no results; the first is {}: {}", count,
                          points_.all().size(), first->name, first->failure)};
  error.is_misuse = std::ranges::all_of(points_.all(), &Point::is_misuse);
  return error;
}

report::Results Sweep::results() const {
  report::Results all{place_.scenario, points_.title(), "", {}};
  for (const Point& point : points_.all()) {
    for (const report::Outcome& outcome : point.outcomes) {
      all.outcomes.push_back(outcome);
      const std::string& variant = outcome.variant;
      all.outcomes.back().variant =
          variant.empty()
              ? point.name
              : fmt::format("{}{}{}", point.name, point.name.empty() ? "" : ", ", variant);
    }
  }
  return all;
}

std::string Sweep::csv() const {
  std::vector<const report::Figure*> figures;
  const auto note = [&](const report::Figures& of) {
    for (const report::Measured& each : of) {
      if (std::ranges::find(figures, each.figure) == figures.end()) figures.push_back(each.figure);
    }
  };
  for (const Point& point : points_.all()) {
    for (const report::Outcome& outcome : point.outcomes) {
      note(outcome.figures);
      for (const report::Kind& kind : outcome.kinds) note(kind.figures);
    }
  }
  std::string text;
  for (const std::string& key : grid_.keys) text += csv_cell(key) + ",";
  text += "variant,traffic";
  for (const report::Figure* figure : figures) text += "," + csv_cell(report::csv_key(*figure));
  text += "\n";
  const auto add = [&](std::size_t point, const std::string& variant, const std::string& traffic,
                       const report::Figures& of) {
    for (const std::string& value : grid_.points[point]) {
      text += csv_cell(std::string(scenario::value_text(value))) + ",";
    }
    text += csv_cell(variant) + "," + csv_cell(traffic);
    for (const report::Figure* figure : figures) {
      const report::Measured* found = report::find(of, figure->key);
      text += "," + (found == nullptr ? "" : report::csv_text(found->value));
    }
    text += "\n";
  };
  for (std::size_t i = 0; i < points_.all().size(); ++i) {
    for (const report::Outcome& outcome : points_[i].outcomes) {
      add(i, outcome.variant, "", outcome.figures);
      for (const report::Kind& kind : outcome.kinds) {
        add(i, outcome.variant, kind.name, kind.figures);
      }
    }
  }
  return text;
}

std::string Sweep::json() const {
  json_t all;
  all["scenario"] = place_.scenario;
  all["title"] = points_.title();
  all["points"] = json_t::array();
  for (std::size_t i = 0; i < points_.all().size(); ++i) {
    json_t point;
    for (std::size_t k = 0; k < grid_.keys.size(); ++k) {
      if (grid_.points[i][k].empty()) continue;
      point["keys"][grid_.keys[k]] = scenario::value_text(grid_.points[i][k]);
    }
    for (const report::Outcome& outcome : points_[i].outcomes) {
      json_t one = json_t::parse(report::summary_json({"", "", "", {outcome}}));
      one.erase("scenario");
      one.erase("title");
      point["results"].push_back(std::move(one));
    }
    if (!points_[i].failure.empty()) point["failure"] = points_[i].failure;
    all["points"].push_back(std::move(point));
  }
  return text_of(all, 2);
}

Result<void> Sweep::write(const std::string& again) const {
  const fs::path folder(place_.folder);
  if (auto written = report::write_file((folder / "sweep.csv").string(), csv()); !written) {
    return written;
  }
  if (auto written = report::write_file((folder / "sweep.json").string(), json()); !written) {
    return written;
  }
  report::Results shown = results();
  if (shown.outcomes.size() > page_points_max) {
    shown.title = fmt::format("{} (the first {} of {} results; sweep.csv has all)", points_.title(),
                              page_points_max, shown.outcomes.size());
    shown.outcomes.resize(page_points_max);
  }
  report::PageText text{again, "point", {}};
  for (const Point& point : points_.all()) {
    for (const std::string& settings : point.settings()) {
      if (text.variants.size() == shown.outcomes.size() || point.outcomes.empty()) break;
      text.variants.push_back({"", settings});
    }
  }
  if (shown.outcomes.empty()) {
    std::error_code ignored;
    fs::remove(folder / "report.html", ignored);  // it would be another sweep's
    return {};
  }
  return report::write_file((folder / "report.html").string(), report::html_page(shown, text));
}

std::string Sweep::text(Level level, bool marks_best) const {
  const report::Results shown = results();
  if (shown.outcomes.empty()) return "";
  std::string text =
      (shown.title.empty() ? "" : one_line(shown.title) + "\n") +
      report::plain_text(report::telling_figures("point", shown.outcomes), marks_best);
  if (level == Level::flow) text += flow_level_note(shown.outcomes);
  return text;
}

}  // namespace tulle::study
