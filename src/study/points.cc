#include "study/points.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_text.h"
#include "study/digest.h"
#include "study/experiment/figures.h"
#include "study/report/results.h"
#include "study/report/stored.h"
#include "study/scenarios.h"
#include "study/simulate.h"
#include "study/workers.h"

namespace tulle::study {
namespace {

namespace fs = std::filesystem;
using json_t = nlohmann::ordered_json;
using scenario::Scenario;

// --- identities ---------------------------------------------------------------------------------

// Returns what the results of a point depend on: the keys of its variants, the level, and the
// version that simulates. The files that they name are recorded with the results, once they have
// been read.
std::string identity_of(const Scenario& scenario, const std::vector<std::size_t>& variants,
                        Level level) {
  json_t identity;
  identity["tulle"] = build_version();
  // Files are named from there.
  identity["folder"] = absolute_path(scenario.folder().empty() ? "." : scenario.folder());
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

// Identities have the settings of each variant at each point.
constexpr std::size_t identities_bytes_max = std::size_t{4} << 30;

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

// Reads a point's results, if they are there and are those of this point.
void Points::load(Point& point) {
  const auto text = folder_.read(point.file, results_bytes_max);
  if (!text) return;
  const auto json = parse_json<json_t>(*text);
  const bool is_of_point = json.is_object() && json.contains("identity") &&
                           text_of(json["identity"], -1) == point.identity &&
                           json.contains("outcomes") && json["outcomes"].is_array();
  const json_t variants = variants_of(point);
  if (!is_of_point || json["outcomes"].size() != variants.size()) return;
  if (!now_.is_as(json, [this] { return monitor_.goes_on(); })) return;
  std::vector<report::Outcome> outcomes;
  for (std::size_t i = 0; i < variants.size(); ++i) {
    auto outcome = report::stored_outcome(json["outcomes"][i], experiment::figure_named);
    if (!outcome || variants[i]["name"] != outcome->variant) return;
    outcomes.push_back(std::move(*outcome));
  }
  point.outcomes = std::move(outcomes);
}

Result<void> Points::lock(const OutputFolder& folder) {
  constexpr mode_t mode = 0644;
  lock_ = folder.open_file(".lock", O_RDWR | O_CREAT | O_NONBLOCK, mode);
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
  return Error{fmt::format("cannot lock {}/.lock: {}", folder.path(), std::strerror(errno))};
}

Result<void> Points::open() {
  if (auto scenario = scenario_of({}); !scenario) return scenario.error();
  if (auto ready = prepare_results(options_.folder, options_.kind, monitor_, options_.scenario);
      !ready) {
    return ready;
  }
  auto folder = OutputFolder::open(options_.folder);
  if (!folder) return folder.error();
  auto points = folder->inner("points", true);
  if (!points) return points.error();
  folder_ = std::move(*points);
  if (auto locked = lock(*folder); !locked) return locked;
  // Files that were being written when a process was killed are of no use.
  for (const std::string& name : folder_.names()) {
    if (name.ends_with(".part")) folder_.remove(name);
  }
  return {};
}

Result<std::size_t> Points::add(std::string name, std::vector<std::string> lines) {
  auto scenario = scenario_of(lines);
  if (!scenario) return scenario.error();
  title_ = scenario->title();
  const auto variants = wanted_variants(*scenario, options_.variant);
  if (variants.empty()) return as_misuse({no_such_variant(*scenario, options_.variant)});
  if (auto checked = scenario->check_settings(variants); !checked) return checked.error();
  Point point;
  point.name = std::move(name);
  point.lines = std::move(lines);
  point.identity = identity_of(*scenario, variants, options_.level);
  identities_bytes_ += point.identity.size();
  if (identities_bytes_ > identities_bytes_max) {
    return as_misuse(
        {fmt::format("the settings of these points take more than {} GiB: name fewer "
                     "points or variants",
                     identities_bytes_max >> 30)});
  }
  constexpr std::size_t name_digits = 24;
  point.file = digest_of(point.identity).substr(0, name_digits) + ".json";
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
  json_t json;
  json["identity"] = json_t::parse(point.identity);
  observe_files(json);
  Timings timings;
  SimulateOptions simulating;
  simulating.level = options_.level;
  WorkersMonitor monitor(monitor_);
  auto results = study::simulate(simulating, *scenario, variants, monitor, timings);
  if (!results) return results.error();
  if (!monitor_.goes_on()) return Error{"interrupted"};
  for (const report::Outcome& outcome : results->outcomes) {
    json["outcomes"].push_back(report::stored_json(outcome));
  }
  return folder_.write(point.file, text_of(json, 1));
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
    now_ = FilesNow();  // a file may have changed meanwhile
    for (const std::size_t index : by_file[points_[end.index].file]) {
      Point& point = points_[index];
      point.failure = end.failure;
      point.is_misuse = end.is_misuse;
      // The disk may be full. All points after it would be simulated in vain.
      const std::string path = (fs::path(folder_.path()) / point.file).string();
      if (end.failure.starts_with(path)) stopped_ = end.failure;
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
