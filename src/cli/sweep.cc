// `tulle sweep` simulates a scenario with different values of its keys. Each point is simulated in
// a process of its own and has a file of its own, so that a sweep which was interrupted goes on
// where it was.

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/flow_level.h"
#include "cli/simulate.h"
#include "cli/workers.h"
#include "experiment/figures.h"
#include "live/unique_fd.h"
#include "report/columns.h"
#include "report/html_page.h"
#include "report/results.h"
#include "report/stored.h"
#include "scenario/grid.h"
#include "scenario/scenario.h"

namespace tulle::cli {
namespace {

namespace fs = std::filesystem;
using json_t = nlohmann::ordered_json;
using scenario::Scenario;

// A page of more points would be too long for a browser.
constexpr std::size_t page_points_max = 1'000;

struct Point {
  std::string name;
  std::string file;      // of its results
  std::string identity;  // JSON of all that the results depend on, apart from other files
  std::vector<report::Outcome> outcomes;
  std::string failure;  // why there are none
};

// A file's name, or what a process has said, may be no UTF-8.
std::string text_of(const json_t& json, int indent) {
  return json.dump(indent, ' ', false, json_t::error_handler_t::replace) + "\n";
}

// --- identities ---------------------------------------------------------------------------------

using Digest = std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)>;

std::string hex_of(const Digest& digest) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> hash{};
  EVP_DigestFinal_ex(digest.get(), hash.data(), nullptr);
  std::string text;
  for (const unsigned char byte : hash) text += fmt::format("{:02x}", byte);
  return text;
}

Digest begin_digest() {
  Digest digest(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  EVP_DigestInit_ex(digest.get(), EVP_sha256(), nullptr);
  return digest;
}

std::string digest_of(const std::string& text) {
  const Digest digest = begin_digest();
  EVP_DigestUpdate(digest.get(), text.data(), text.size());
  return hex_of(digest);
}

std::string digest_of_file(const std::string& path) {
  const Digest digest = begin_digest();
  std::ifstream in(path, std::ios::binary);
  std::array<char, 65'536> some{};
  while (in.read(some.data(), some.size()) || in.gcount() > 0) {
    EVP_DigestUpdate(digest.get(), some.data(), static_cast<std::size_t>(in.gcount()));
  }
  return hex_of(digest);
}

// Returns the version that simulates. Its number alone does not tell two builds apart.
const std::string& version() {
  constexpr std::size_t digits = 16;
  static const std::string text =
      fmt::format("{} {}", TULLE_VERSION, digest_of_file("/proc/self/exe").substr(0, digits));
  return text;
}

// Returns what the results of a point depend on: the keys of its variants, the level, and the
// version that simulates. The files that they name stand beside the results, once they have been read.
std::string identity_of(const Scenario& scenario, const std::vector<std::size_t>& variants,
                        const std::string& level) {
  json_t identity;
  identity["tulle"] = version();
  if (level != packet_level) identity["level"] = level;
  identity["variants"] = json_t::array();
  for (const std::size_t variant : variants) {
    identity["variants"].push_back(
        {{"name", scenario.variants()[variant].name}, {"settings", scenario.settings(variant)}});
  }
  return text_of(identity, -1);
}

json_t variants_of(const Point& point) { return json_t::parse(point.identity)["variants"]; }

std::string absolute(const std::string& path) {
  std::error_code ignored;
  const fs::path whole = fs::absolute(path, ignored);
  return ignored ? path : whole.lexically_normal().string();
}

// --- points -------------------------------------------------------------------------------------

Result<scenario::Grid> grid_of(const SweepOptions& options) {
  if (options.knobs.empty() == options.points.empty()) {
    return Error{"name what is to vary: --knob KEY=VALUE,VALUE, or --points FILE with a list"};
  }
  if (!options.points.empty()) return scenario::read_points(options.points);
  std::vector<scenario::Knob> knobs;
  for (const std::string& text : options.knobs) {
    auto knob = scenario::parse_knob(text);
    if (!knob) return knob.error();
    knobs.push_back(std::move(*knob));
  }
  return scenario::grid_of(knobs);
}

class Sweep {
 public:
  Sweep(const SweepOptions& options, scenario::Grid grid)
      : options_(options), grid_(std::move(grid)), path_(find_scenario(options.scenario)) {}

  Result<void> prepare();
  void run();
  Result<void> write(const std::string& again) const;
  Result<void> print() const;
  // Returns what is missing, as one line, or nothing.
  std::string missing() const;

 private:
  Result<void> lock();
  Result<Scenario> scenario_of(std::size_t point) const;
  bool load(Point& point);
  bool is_unchanged(const json_t& files);
  std::string simulate_point(std::size_t index) const;
  void show(std::size_t running);
  report::Results results() const;
  std::string csv() const;
  std::string json() const;

  const SweepOptions& options_;
  const scenario::Grid grid_;
  const std::string path_;
  std::string title_;
  std::vector<Point> points_;
  std::map<std::string, std::string> digests_;  // by path: of files as they are now
  std::string stopped_;                         // why no more points were simulated; empty: none
  live::UniqueFd lock_;
  std::size_t done_ = 0, begun_with_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

Result<Scenario> Sweep::scenario_of(std::size_t point) const {
  std::vector<std::string> set = options_.set;
  for (std::string& line : grid_.lines(point)) set.push_back(std::move(line));
  return Scenario::read(path_, set);
}

// Returns true if the files that were read for a point are still as they were.
bool Sweep::is_unchanged(const json_t& files) {
  if (!files.is_object()) return false;
  for (const auto& [path, digest] : files.items()) {
    auto& now = digests_[path];
    if (now.empty()) now = digest_of_file(path);
    if (digest != now) return false;
  }
  return true;
}

// Reads a point's results, if they are there and are those of this point.
bool Sweep::load(Point& point) {
  std::ifstream in(point.file, std::ios::binary);
  if (!in) return false;
  const json_t json = json_t::parse(in, nullptr, false);
  const bool is_of_point = json.is_object() && json.contains("identity") &&
                           text_of(json["identity"], -1) == point.identity &&
                           json.contains("files") && json.contains("outcomes") &&
                           json["outcomes"].is_array();
  const json_t variants = variants_of(point);
  if (!is_of_point || json["outcomes"].size() != variants.size() || !is_unchanged(json["files"])) {
    return false;
  }
  std::vector<report::Outcome> outcomes;
  for (std::size_t i = 0; i < variants.size(); ++i) {
    auto outcome = report::stored_outcome(json["outcomes"][i], experiment::figure_named);
    if (!outcome || variants[i]["name"] != outcome->variant) return false;
    outcomes.push_back(std::move(*outcome));
  }
  point.outcomes = std::move(outcomes);
  return true;
}

// Locks the folder. The processes of a sweep that was killed have the lock for a moment more.
Result<void> Sweep::lock() {
  const std::string path = (fs::path(options_.output) / ".lock").string();
  constexpr mode_t mode = 0644;
  lock_.reset(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, mode));
  constexpr int tries_max = 50;
  constexpr unsigned microseconds_between = 100'000;
  for (int tries = 0; lock_ && flock(lock_.get(), LOCK_EX | LOCK_NB) != 0; ++tries) {
    if (errno != EWOULDBLOCK) {
      lock_.reset();
    } else if (tries == tries_max) {
      return Error{fmt::format("another sweep writes to the folder {}", options_.output)};
    } else {
      usleep(microseconds_between);
    }
  }
  if (lock_) return {};
  return Error{fmt::format("cannot lock {}: {}", path, std::strerror(errno))};
}

Result<void> Sweep::prepare() {
  const fs::path folder = fs::path(options_.output) / "points";
  if (auto ready = prepare_folder(folder.string()); !ready) return ready;
  if (auto locked = lock(); !locked) return locked;
  // Files that were being written when a process was killed are of no use.
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().extension() == ".part") fs::remove(entry.path(), ignored);
  }
  for (std::size_t i = 0; i < grid_.points.size(); ++i) {
    auto scenario = scenario_of(i);
    if (!scenario) return scenario.error();
    title_ = scenario->title();
    const auto variants = wanted_variants(*scenario, options_.variant);
    if (variants.empty()) {
      return Error{no_such_variant(*scenario, options_.variant)};
    }
    Point point;
    point.name = grid_.name(i);
    point.identity = identity_of(*scenario, variants, options_.level);
    constexpr std::size_t name_digits = 24;
    point.file = (folder / (digest_of(point.identity).substr(0, name_digits) + ".json")).string();
    if (load(point)) ++done_;
    points_.push_back(std::move(point));
  }
  begun_with_ = done_;
  return {};
}

// Runs in a process of its own. Returns why there are no results.
std::string Sweep::simulate_point(std::size_t index) const {
  const Point& point = points_[index];
  auto scenario = scenario_of(index);
  if (!scenario) return scenario.error().message;
  const auto variants = wanted_variants(*scenario, options_.variant);
  if (identity_of(*scenario, variants, options_.level) != point.identity) {
    return "the scenario has changed since the sweep began";
  }
  json_t files = json_t::object();
  scenario::observe_files([&](const std::string& path, const std::string& text) {
    files[absolute(path)] = digest_of(text);
  });
  Timings timings;
  SimulateOptions simulating;
  simulating.at_flow_level = options_.level == flow_level;
  auto results = simulate(simulating, *scenario, variants, timings);
  if (!results) return results.error().message;
  if (is_interrupted()) return "interrupted";
  json_t json;
  json["identity"] = json_t::parse(point.identity);
  json["files"] = files;
  for (const report::Outcome& outcome : results->outcomes) {
    json["outcomes"].push_back(report::stored_json(outcome));
  }
  auto written = report::write_file(point.file, text_of(json, 1));
  return written ? "" : written.error().message;
}

void Sweep::show(std::size_t running) {
  if (isatty(STDERR_FILENO) == 0) return;
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  const std::size_t since = done_ - begun_with_;
  std::string left;
  if (since > 0) {
    left = fmt::format(", about {:.0f} s left", elapsed.count() / static_cast<double>(since) *
                                                    static_cast<double>(points_.size() - done_));
  }
  fmt::print(stderr, "\r\033[K{} of {} points, {} running{}", done_, points_.size(), running, left);
  std::fflush(stderr);
}

void Sweep::run() {
  std::vector<std::size_t> todo;
  std::map<std::string, std::vector<std::size_t>> by_file;  // points may be the same
  for (std::size_t i = 0; i < points_.size(); ++i) {
    if (!points_[i].outcomes.empty()) continue;
    auto& same = by_file[points_[i].file];
    if (same.empty()) todo.push_back(i);
    same.push_back(i);
  }
  catch_interrupts();
  const auto take = [&](const WorkEnded& end) {
    digests_.clear();  // a file may have changed meanwhile
    for (const std::size_t index : by_file[points_[end.index].file]) {
      Point& point = points_[index];
      point.failure = end.failure;
      // The disk may be full. All points after it would be simulated in vain.
      if (end.failure.starts_with(point.file)) stopped_ = end.failure;
      if (!end.failure.empty()) continue;
      if (load(point)) ++done_;
      if (point.outcomes.empty()) point.failure = "a file that it names has changed meanwhile";
    }
  };
  on_processes(
      todo, options_.jobs, [this](std::size_t index) { return simulate_point(index); }, take,
      [this](std::size_t running) { show(running); },
      [this] { return !is_interrupted() && stopped_.empty(); });
  if (isatty(STDERR_FILENO) != 0) fmt::print(stderr, "\r\033[K");
}

std::string Sweep::missing() const {
  const std::size_t count = points_.size() - done_;
  if (count == 0) return "";
  if (!stopped_.empty()) {
    return fmt::format("{}; {} of {} points have results, and the same command goes on", stopped_,
                       done_, points_.size());
  }
  if (is_interrupted()) {
    return fmt::format("interrupted: {} of {} points have results, and the same command goes on",
                       done_, points_.size());
  }
  const auto first =
      std::ranges::find_if(points_, [](const Point& p) { return p.outcomes.empty(); });
  return fmt::format("{} of {} points have no results; the first is {}: {}", count, points_.size(),
                     first->name, first->failure);
}

// --- tables -------------------------------------------------------------------------------------

report::Results Sweep::results() const {
  report::Results all{options_.scenario, title_, "", {}};
  for (const Point& point : points_) {
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

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

// Returns a row for each point and variant, and for each kind of traffic. It has the keys' values,
// and then all figures that any of them has.
std::string Sweep::csv() const {
  std::vector<const report::Figure*> figures;
  const auto note = [&](const report::Figures& of) {
    for (const report::Measured& each : of) {
      if (std::ranges::find(figures, each.figure) == figures.end()) figures.push_back(each.figure);
    }
  };
  for (const Point& point : points_) {
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
  for (std::size_t i = 0; i < points_.size(); ++i) {
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
  all["scenario"] = options_.scenario;
  all["title"] = title_;
  all["points"] = json_t::array();
  for (std::size_t i = 0; i < points_.size(); ++i) {
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
  const fs::path folder(options_.output);
  if (auto written = report::write_file((folder / "sweep.csv").string(), csv()); !written) {
    return written;
  }
  if (auto written = report::write_file((folder / "sweep.json").string(), json()); !written) {
    return written;
  }
  report::Results shown = results();
  if (shown.outcomes.size() > page_points_max) {
    shown.title = fmt::format("{} (the first {} of {} results; sweep.csv has all)", title_,
                              page_points_max, shown.outcomes.size());
    shown.outcomes.resize(page_points_max);
  }
  report::PageText text{again, "point", {}};
  for (const Point& point : points_) {
    for (const json_t& variant : variants_of(point)) {
      if (text.variants.size() == shown.outcomes.size() || point.outcomes.empty()) break;
      text.variants.push_back({"", variant["settings"].get<std::string>()});
    }
  }
  if (shown.outcomes.empty()) {
    std::error_code ignored;
    fs::remove(folder / "report.html", ignored);  // it would be another sweep's
    return {};
  }
  return report::write_file((folder / "report.html").string(), report::html_page(shown, text));
}

Result<void> Sweep::print() const {
  if (options_.json) return cli::print(json());
  const report::Results shown = results();
  if (shown.outcomes.empty()) return {};
  std::string text = title_ + "\n" +
                     report::plain_text(report::telling_figures("point", shown.outcomes),
                                        isatty(STDOUT_FILENO) != 0);
  if (options_.level == flow_level) text += flow_level_note(shown.outcomes);
  return cli::print(text);
}

}  // namespace

int sweep(const SweepOptions& options) {
  take_large_pages();
  auto grid = grid_of(options);
  if (!grid) return fail(grid.error().message);
  Sweep sweep(options, std::move(*grid));
  if (auto ready = sweep.prepare(); !ready) return fail(ready.error().message);
  sweep.run();
  if (auto written = sweep.write(options.again); !written) return fail(written.error().message);
  if (auto printed = sweep.print(); !printed) return fail(printed.error().message);
  const std::string missing = sweep.missing();
  return missing.empty() ? 0 : fail(missing);
}

}  // namespace tulle::cli
