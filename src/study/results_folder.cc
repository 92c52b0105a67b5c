#include "study/results_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include "base/json_text.h"
#include "base/quoted.h"
#include "study/report/page.h"

namespace tulle::study {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// The files of a run, and of each variant in its own folder.
constexpr std::array<std::string_view, 6> run_files = {
    "summary.json", "flows.csv", "links.csv", "hosts.csv", "samples.csv", "report.html"};

bool is_run_file(const fs::path& path) {
  const std::string name = path.filename().string();
  const fs::path ending = path.extension();
  return std::ranges::find(run_files, name) != run_files.end() || ending == ".pftrace" ||
         ending == ".part";
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// Returns true if everything in a folder, except for hidden files, is as wanted. A folder that does
// not exist is empty.
template <typename Wanted>
bool has_only(const fs::path& folder, const Wanted& is_wanted) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const bool is_hidden = entry.path().filename().string().starts_with('.');
    // Another user may have put a link there, and results have none.
    if (!is_hidden && (entry.is_symlink() || !is_wanted(entry))) return false;
  }
  return true;
}

json read_json(const fs::path& path) {
  json read = parse_json<json>(read_results_file(path).value_or(""));
  return read.is_object() ? read : json::object();
}

std::string scenario_in(const json& results) {
  const auto found = results.find("scenario");
  return found != results.end() && found->is_string() ? found->get<std::string>() : "";
}

bool has_run(const fs::path& folder) {
  const json summary = read_json(folder / "summary.json");
  if (summary.contains("scenario") && summary.contains("title")) return true;
  // One that was killed while it wrote its files has no summary.
  return has_only(folder, [](const fs::directory_entry& entry) {
    std::error_code error;
    return entry.is_directory(error)
               ? has_only(entry.path(), [](const auto& inner) { return is_run_file(inner.path()); })
               : is_run_file(entry.path());
  });
}

// An interrupted sweep or search has only its points.
bool has_points(const fs::path& folder) { return is_there(folder / "points"); }
bool has_sweep(const fs::path& folder) {
  return is_there(folder / "sweep.json") || is_there(folder / "sweep.csv");
}
bool has_search(const fs::path& folder) {
  return is_there(folder / "tune.json") || is_there(folder / "evaluations.csv");
}

bool has_gallery(const fs::path& folder) {
  const std::string text = read_results_file(folder / "README.md").value_or("");
  const std::string heading = text.substr(0, text.find('\n'));
  if (!heading.empty() && report::gallery_index({}).starts_with(heading + "\n")) return true;
  return has_only(folder, [](const fs::directory_entry& entry) {
    const fs::path ending = entry.path().extension();
    return ending == ".md" || ending == ".svg" || ending == ".part";
  });
}

Error other_results(const std::string& folder, std::string_view what) {
  return as_misuse(
      {fmt::format("{} has the results of {}: name another folder", one_line(folder), what)});
}

std::string replacing(const std::string& folder, const std::string& scenario) {
  return fmt::format("replacing the results of {} in {}",
                     scenario.empty() ? "an earlier run" : one_line(scenario), one_line(folder));
}

// Returns an error if the folder has something else than results of this kind.
Result<void> check_content(const std::string& folder, ResultsOf kind) {
  const fs::path path(folder);
  const bool has_results_of_run = is_there(path / "summary.json") && has_run(path);
  const bool is_of_points = kind == ResultsOf::sweep || kind == ResultsOf::search;
  if (is_of_points && has_results_of_run) return other_results(folder, "a simulation");
  if (kind != ResultsOf::sweep && has_sweep(path)) return other_results(folder, "a sweep");
  if (kind != ResultsOf::search && has_search(path)) return other_results(folder, "a search");
  if (!is_of_points && has_points(path)) return other_results(folder, "a sweep or a search");
  const bool is_ours = kind == ResultsOf::gallery ? has_gallery(path)
                       : is_of_points ? has_points(path) || has_sweep(path) || has_search(path)
                                      : has_run(path);
  if (is_ours || has_only(path, [](const auto&) { return false; })) return {};
  return as_misuse(
      {fmt::format("{} has files that are not results of Tulle: name an empty or a new folder",
                   one_line(folder))});
}

}  // namespace

std::optional<std::string> read_results_file(const std::string& path) {
  const fs::path whole(path);
  auto folder =
      OutputFolder::open_existing(whole.has_parent_path() ? whole.parent_path().string() : ".");
  return folder ? folder->read(whole.filename().string(), results_bytes_max) : std::nullopt;
}

Result<void> prepare_results(const std::string& folder, ResultsOf kind, Monitor& monitor,
                             const std::string& scenario) {
  if (auto ready = prepare_folder(folder); !ready) return ready;
  if (auto checked = check_content(folder, kind); !checked) return checked;
  const fs::path path(folder);
  switch (kind) {
    case ResultsOf::run:
      if (is_there(path / "summary.json")) {
        monitor.note(replacing(folder, scenario_in(read_json(path / "summary.json"))));
      }
      break;
    case ResultsOf::sweep: {
      const std::string before = scenario_in(read_json(path / "sweep.json"));
      if (!before.empty() && before != scenario) monitor.note(replacing(folder, before));
      break;
    }
    case ResultsOf::search:
      if (is_there(path / "tune.json")) {
        monitor.note(replacing(folder, scenario_in(read_json(path / "tune.json"))));
      }
      break;
    case ResultsOf::gallery:
      break;  // it gets new pages, and keeps the others
  }
  return {};
}

void remove_run(const OutputFolder& folder) {
  const json summary =
      parse_json<json>(folder.read("summary.json", results_bytes_max).value_or(""));
  if (!summary.is_object() || summary.empty()) return;
  const auto remove_files = [](const OutputFolder& of) {
    for (const std::string& name : of.names()) {
      if (is_run_file(name)) of.remove(name);
    }
  };
  const auto variants = summary.find("variants");
  if (variants != summary.end() && variants->is_array()) {
    for (const json& variant : *variants) {
      if (!variant.is_object() || !variant.contains("variant")) continue;
      const json& name = variant["variant"];
      if (!name.is_string() || name.get<std::string>().find('/') != std::string::npos) continue;
      if (name.get<std::string>().starts_with('.')) continue;
      auto own = folder.inner(name.get<std::string>(), false);
      if (!own) continue;
      remove_files(*own);
      folder.remove_folder(name.get<std::string>());  // unless something else is there
    }
  }
  remove_files(folder);
}

Result<void> prepare_folder(const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error && access(folder.c_str(), W_OK | X_OK) != 0) {
    error.assign(errno, std::generic_category());
  }
  if (error) {
    return Error{
        fmt::format("cannot write to the folder {}: {}", one_line(folder), error.message())};
  }
  return {};
}

}  // namespace tulle::study
