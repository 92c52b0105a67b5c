// `tulle sweep`: a scenario with different values of its keys. Each point is simulated in a process
// of its own and has a file of its own, so that a sweep which was interrupted goes on where it was.

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
  std::string file;  // of its results
  json_t identity;   // all that the results depend on
  std::vector<report::Outcome> outcomes;
  std::string failure;  // why there are none
};

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

// Returns all that the results of a point depend on: the keys of its variants, the files that they
// name, and the version that simulates.
json_t identity_of(const Scenario& scenario, const std::vector<std::size_t>& variants,
                   std::map<std::string, std::string>& digests) {
  json_t identity;
  identity["tulle"] = TULLE_VERSION;
  identity["variants"] = json_t::array();
  identity["files"] = json_t::object();
  for (const std::size_t variant : variants) {
    identity["variants"].push_back(
        {{"name", scenario.variants()[variant].name}, {"settings", scenario.settings(variant)}});
    for (const std::string& file : scenario.files(variant)) {
      auto& digest = digests[file];
      if (digest.empty()) digest = digest_of_file(file);
      identity["files"][file] = digest;
    }
  }
  return identity;
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
  Result<Scenario> scenario_of(std::size_t point) const;
  bool load(Point& point) const;
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
  live::UniqueFd lock_;
  std::size_t done_ = 0, begun_with_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

Result<Scenario> Sweep::scenario_of(std::size_t point) const {
  std::vector<std::string> set = options_.set;
  for (std::string& line : grid_.lines(point)) set.push_back(std::move(line));
  return Scenario::read(path_, set);
}

// Reads a point's results, if they are there and are those of this point.
bool Sweep::load(Point& point) const {
  std::ifstream in(point.file, std::ios::binary);
  if (!in) return false;
  const json_t json = json_t::parse(in, nullptr, false);
  if (json.is_discarded() || !json.contains("identity") || json["identity"] != point.identity) {
    return false;
  }
  std::vector<report::Outcome> outcomes;
  for (const json_t& each : json.value("outcomes", json_t::array())) {
    auto outcome = report::stored_outcome(each, experiment::figure_named);
    if (!outcome) return false;
    outcomes.push_back(std::move(*outcome));
  }
  point.outcomes = std::move(outcomes);
  return !point.outcomes.empty();
}

Result<void> Sweep::prepare() {
  const fs::path folder = fs::path(options_.output) / "points";
  if (auto ready = prepare_folder(folder.string()); !ready) return ready;
  lock_.reset(
      open((fs::path(options_.output) / ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!lock_ || flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    return Error{
        errno == EWOULDBLOCK
            ? fmt::format("another sweep writes to the folder {}", options_.output)
            : fmt::format("cannot lock the folder {}: {}", options_.output, std::strerror(errno))};
  }
  std::map<std::string, std::string> digests;
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
    point.identity = identity_of(*scenario, variants, digests);
    constexpr std::size_t name_digits = 24;
    point.file =
        (folder / (digest_of(point.identity.dump()).substr(0, name_digits) + ".json")).string();
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
  Timings timings;
  auto results = simulate({}, *scenario, wanted_variants(*scenario, options_.variant), timings);
  if (!results) return results.error().message;
  if (is_interrupted()) return "interrupted";
  json_t json;
  json["identity"] = point.identity;
  for (const report::Outcome& outcome : results->outcomes) {
    json["outcomes"].push_back(report::stored_json(outcome));
  }
  auto written = report::write_file(point.file, json.dump(1) + "\n");
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
  std::map<std::string, std::size_t> by_file;  // points may be the same
  for (std::size_t i = 0; i < points_.size(); ++i) {
    if (points_[i].outcomes.empty() && by_file.emplace(points_[i].file, i).second) {
      todo.push_back(i);
    }
  }
  catch_interrupts();
  on_processes(
      todo, options_.jobs, [this](std::size_t index) { return simulate_point(index); },
      [&](const WorkEnded& end) {
        for (Point& point : points_) {
          if (point.file != points_[end.index].file) continue;
          point.failure = end.failure;
          if (!end.failure.empty()) continue;
          if (load(point)) ++done_;
          if (point.outcomes.empty()) point.failure = "its file cannot be read";
        }
      },
      [this](std::size_t running) { show(running); }, [] { return !is_interrupted(); });
  if (isatty(STDERR_FILENO) != 0) fmt::print(stderr, "\r\033[K");
}

std::string Sweep::missing() const {
  const std::size_t count = points_.size() - done_;
  if (count == 0) return "";
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

std::string value_for_people(std::string_view toml) {
  const bool is_text = toml.size() >= 2 && (toml.front() == '\'' || toml.front() == '"') &&
                       toml.back() == toml.front();
  return std::string(is_text ? toml.substr(1, toml.size() - 2) : toml);
}

// A row for each point and variant, and for each kind of traffic: its keys' values, then all
// figures that any of them has.
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
      text += csv_cell(value_for_people(value)) + ",";
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
      point["keys"][grid_.keys[k]] = value_for_people(grid_.points[i][k]);
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
  return all.dump(2) + "\n";
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
    for (const json_t& variant : point.identity["variants"]) {
      if (text.variants.size() == shown.outcomes.size() || point.outcomes.empty()) break;
      text.variants.push_back({"", variant["settings"].get<std::string>()});
    }
  }
  if (shown.outcomes.empty()) return {};
  return report::write_file((folder / "report.html").string(), report::html_page(shown, text));
}

Result<void> Sweep::print() const {
  if (options_.json) return cli::print(json());
  const report::Results shown = results();
  if (shown.outcomes.empty()) return {};
  return cli::print(title_ + "\n" +
                    report::plain_text(report::telling_figures("point", shown.outcomes),
                                       isatty(STDOUT_FILENO) != 0));
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
