#include "study/points.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_text.h"
#include "config/files.h"
#include "experiment/figures.h"
#include "report/results.h"
#include "report/stored.h"
#include "study/digest.h"
#include "study/scenarios.h"
#include "study/simulate.h"
#include "study/workers.h"

namespace tulle::study {
namespace {

namespace fs = std::filesystem;
using json_t = nlohmann::ordered_json;
using scenario::Scenario;

// --- identities ---------------------------------------------------------------------------------

std::string absolute(const std::string& path) {
  std::error_code ignored;
  const fs::path whole = fs::absolute(path, ignored);
  return ignored ? path : whole.lexically_normal().string();
}

// Returns what the results of a point depend on: the keys of its variants, the level, and the
// version that simulates. The files that they name are recorded with the results, once they have
// been read.
std::string identity_of(const Scenario& scenario, const std::vector<std::size_t>& variants,
                        Level level) {
  json_t identity;
  identity["tulle"] = build_version();
  // Files are named from there.
  identity["folder"] = absolute(scenario.folder().empty() ? "." : scenario.folder());
  if (level != Level::packet) identity["level"] = name_of(level);
  identity["variants"] = json_t::array();
  for (const std::size_t variant : variants) {
    identity["variants"].push_back(
        {{"name", scenario.variants()[variant].name}, {"settings", scenario.settings(variant)}});
  }
  return text_of(identity, -1);
}

// Passes on in a worker whether the work continues, and no more: a worker has nobody to speak to.
class WorkersMonitor final : public Monitor {
 public:
  explicit WorkersMonitor(Monitor& of_parent) : of_parent_(of_parent) {}
  bool goes_on() const override { return of_parent_.goes_on(); }
  void ready() override { of_parent_.ready(); }

 private:
  Monitor& of_parent_;
};

json_t variants_of(const Point& point) { return json_t::parse(point.identity)["variants"]; }

}  // namespace

std::string text_of(const json_t& json, int indent) {
  return json.dump(indent, ' ', false, json_t::error_handler_t::replace) + "\n";
}

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::vector<std::string> Point::settings() const {
  std::vector<std::string> texts;
  for (const json_t& variant : variants_of(*this)) {
    texts.push_back(variant["settings"].get<std::string>());
  }
  return texts;
}

std::size_t PointSet::done() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(all(), [](const Point& point) { return !point.outcomes.empty(); }));
}

Points::Points(PointsOptions options, Monitor& monitor)
    : options_(std::move(options)), monitor_(monitor), path_(find_scenario(options_.scenario)) {}

Result<Scenario> Points::scenario_of(const std::vector<std::string>& lines) const {
  std::vector<std::string> set = options_.set;
  set.insert(set.end(), lines.begin(), lines.end());
  auto path = path_;
  if (!path) return path.error();
  auto scenario = Scenario::read(*path, set);
  if (!scenario) return as_misuse(scenario.error());
  return scenario;
}

// Returns true if the files that were read for a point are still as they were.
bool Points::is_unchanged(const json_t& files) {
  if (!files.is_object()) return false;
  for (const auto& [path, digest] : files.items()) {
    auto& now = digests_[path];
    if (now.empty()) now = digest_of_file(path);
    if (digest != now) return false;
  }
  return true;
}

// Reads a point's results, if they are there and are those of this point.
void Points::load(Point& point) {
  const auto text = read_results_file(point.file);
  if (!text) return;
  const auto json = parse_json<json_t>(*text);
  const bool is_of_point = json.is_object() && json.contains("identity") &&
                           text_of(json["identity"], -1) == point.identity &&
                           json.contains("files") && json.contains("outcomes") &&
                           json["outcomes"].is_array();
  const json_t variants = variants_of(point);
  if (!is_of_point || json["outcomes"].size() != variants.size() || !is_unchanged(json["files"])) {
    return;
  }
  std::vector<report::Outcome> outcomes;
  for (std::size_t i = 0; i < variants.size(); ++i) {
    auto outcome = report::stored_outcome(json["outcomes"][i], experiment::figure_named);
    if (!outcome || variants[i]["name"] != outcome->variant) return;
    outcomes.push_back(std::move(*outcome));
  }
  point.outcomes = std::move(outcomes);
}

Result<void> Points::lock() {
  const std::string path = (fs::path(options_.folder) / ".lock").string();
  constexpr mode_t mode = 0644;
  lock_.reset(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, mode));
  constexpr int tries_max = 50;
  constexpr unsigned microseconds_between = 100'000;
  for (int tries = 0; lock_ && flock(lock_.get(), LOCK_EX | LOCK_NB) != 0; ++tries) {
    if (errno != EWOULDBLOCK) {
      lock_.reset();
    } else if (tries == tries_max) {
      return Error{fmt::format("another sweep or search writes to the folder {}", options_.folder)};
    } else {
      usleep(microseconds_between);
    }
  }
  if (lock_) return {};
  return Error{fmt::format("cannot lock {}: {}", path, std::strerror(errno))};
}

Result<void> Points::open() {
  if (auto scenario = scenario_of({}); !scenario) return scenario.error();
  if (auto ready = prepare_results(options_.folder, options_.kind, monitor_, options_.scenario);
      !ready) {
    return ready;
  }
  const fs::path folder = fs::path(options_.folder) / "points";
  if (auto ready = prepare_folder(folder.string()); !ready) return ready;
  if (auto locked = lock(); !locked) return locked;
  // Files that were being written when a process was killed are of no use.
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().extension() == ".part") fs::remove(entry.path(), ignored);
  }
  return {};
}

Result<std::size_t> Points::add(std::string name, std::vector<std::string> lines) {
  auto scenario = scenario_of(lines);
  if (!scenario) return scenario.error();
  title_ = scenario->title();
  const auto variants = wanted_variants(*scenario, options_.variant);
  if (variants.empty()) return as_misuse({no_such_variant(*scenario, options_.variant)});
  Point point;
  point.name = std::move(name);
  point.lines = std::move(lines);
  point.identity = identity_of(*scenario, variants, options_.level);
  constexpr std::size_t name_digits = 24;
  const std::string file = digest_of(point.identity).substr(0, name_digits) + ".json";
  point.file = (fs::path(options_.folder) / "points" / file).string();
  load(point);
  points_.push_back(std::move(point));
  return points_.size() - 1;
}

// Runs in a separate process.
Result<void> Points::simulate_point(std::size_t index) const {
  const Point& point = points_[index];
  auto scenario = scenario_of(point.lines);
  if (!scenario) return scenario.error();
  const auto variants = wanted_variants(*scenario, options_.variant);
  if (identity_of(*scenario, variants, options_.level) != point.identity) {
    return Error{"the scenario has changed meanwhile"};
  }
  json_t files = json_t::object();
  config::observe_files([&](const std::string& path, const std::string& text) {
    files[absolute(path)] = digest_of(text);
  });
  Timings timings;
  SimulateOptions simulating;
  simulating.level = options_.level;
  WorkersMonitor monitor(monitor_);
  auto results = study::simulate(simulating, *scenario, variants, monitor, timings);
  if (!results) return results.error();
  if (!monitor_.goes_on()) return Error{"interrupted"};
  json_t json;
  json["identity"] = json_t::parse(point.identity);
  json["files"] = files;
  for (const report::Outcome& outcome : results->outcomes) {
    json["outcomes"].push_back(report::stored_json(outcome));
  }
  return report::write_file(point.file, text_of(json, 1));
}

void Points::simulate(const std::function<void(std::size_t running)>& show) {
  std::vector<std::size_t> todo;
  std::map<std::string, std::vector<std::size_t>> by_file;  // points may be the same
  for (std::size_t i = 0; i < points_.size(); ++i) {
    if (!points_[i].outcomes.empty() || !points_[i].failure.empty()) continue;
    auto& same = by_file[points_[i].file];
    if (same.empty()) todo.push_back(i);
    same.push_back(i);
  }
  monitor_.ready();
  const auto take = [&](const WorkEnded& end) {
    digests_.clear();  // a file may have changed meanwhile
    for (const std::size_t index : by_file[points_[end.index].file]) {
      Point& point = points_[index];
      point.failure = end.failure;
      point.is_misuse = end.is_misuse;
      // The disk may be full. All points after it would be simulated in vain.
      if (end.failure.starts_with(point.file)) stopped_ = end.failure;
      if (!end.failure.empty()) continue;
      load(point);
      if (point.outcomes.empty()) point.failure = "a file that it names has changed meanwhile";
    }
  };
  on_processes(
      todo, options_.jobs, [this](std::size_t index) { return simulate_point(index); }, take, show,
      [this] { return monitor_.goes_on() && stopped_.empty(); });
}

}  // namespace tulle::study
