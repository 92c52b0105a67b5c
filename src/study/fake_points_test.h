#pragma once

// Test support: points whose outcomes a function makes, in place of simulations, and a monitor that
// remembers.

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "study/experiment/figures.h"
#include "study/monitor.h"
#include "study/points.h"

namespace tulle::study {

// What a point comes to: the value of a figure, or why there is none.
struct FakeResult {
  std::vector<std::pair<std::string, double>> figures;
  std::string failure = {};
  std::uint64_t unfinished_flows = 0;
};

class FakePoints final : public PointSet {
 public:
  using Lines = std::vector<std::string>;

  explicit FakePoints(std::function<FakeResult(const Lines&)> result)
      : result_(std::move(result)) {}

  Result<std::size_t> add(std::string name, Lines lines) override {
    if (refuses && refuses(lines)) return as_misuse(Error{"it is refused"});
    Point point;
    point.name = std::move(name);
    point.lines = std::move(lines);
    point.identity = R"({"variants":[{"name":"","settings":"x = 1"}]})";
    points_.push_back(std::move(point));
    return points_.size() - 1;
  }
  void simulate(const std::function<void(std::size_t running)>& show) override {
    for (Point& point : points_) {
      if (!point.outcomes.empty() || !point.failure.empty()) continue;
      if (before_each && !before_each(*this)) return;
      ++simulated;
      const FakeResult result = result_(point.lines);
      point.failure = result.failure;
      if (!result.failure.empty()) {
        point.is_misuse = are_misuse;
        continue;
      }
      report::Outcome outcome;
      for (const auto& [key, value] : result.figures) {
        outcome.figures.push_back({experiment::figure_named(key), value});
      }
      outcome.tally = report::Tally{1, 1 - result.unfinished_flows, 0, 1};
      point.outcomes.push_back(std::move(outcome));
      show(1);
    }
  }
  const std::vector<Point>& all() const override { return points_; }
  const std::string& title() const override { return title_; }
  const std::string& stopped() const override { return stopped_because; }

  std::function<bool(const Lines&)> refuses = {};
  // Called before each simulation. If it returns false, no more begin.
  std::function<bool(FakePoints&)> before_each = {};
  std::string stopped_because;
  bool are_misuse = false;  // the failures
  std::size_t simulated = 0;

 private:
  std::function<FakeResult(const Lines&)> result_;
  std::string title_ = "Fake";
  std::vector<Point> points_;
};

// Returns the value of "KEY = VALUE" among the lines, if it is there.
inline std::optional<double> value_of(const std::vector<std::string>& lines,
                                      const std::string& key) {
  for (const std::string& line : lines) {
    if (line.starts_with(key + " = ")) return std::stod(line.substr(key.size() + 3));
  }
  return {};
}

class FakeMonitor final : public Monitor {
 public:
  bool goes_on() const override { return continues; }
  void ready() override { events.emplace_back("ready"); }
  std::unique_ptr<Run> begin(const std::string& name) override {
    events.push_back("begin " + name);
    return std::make_unique<Run>();
  }
  void note(const std::string& text) override { events.push_back("note " + text); }
  void show(const std::string& text) override { shown.push_back(text); }

  bool continues = true;
  std::vector<std::string> events;
  std::vector<std::string> shown;
};

}  // namespace tulle::study
