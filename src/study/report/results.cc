#include "study/report/results.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/split.h"

namespace tulle::report {
namespace {

using json_t = nlohmann::ordered_json;
namespace fs = std::filesystem;

// --- JSON ---------------------------------------------------------------------------------------

json_t json_of(const Value& value) {
  if (const auto* count = std::get_if<std::uint64_t>(&value)) return *count;
  return rounded(value);
}

void add(json_t& json, const Figures& figures) {
  for (const Measured& measured : figures) {
    json_t* inner = &json;
    for (const std::string_view part : split(measured.figure->key, '.')) {
      inner = &(*inner)[std::string(part)];
    }
    *inner = json_of(measured.value);
  }
}

void add(json_t& json, const std::optional<Method>& method) {
  if (!method) return;
  json["algorithm"] = method->algorithm;
  json["protocol"] = method->protocol;
}

json_t json_of(const Outcome& outcome) {
  json_t json;
  if (!outcome.variant.empty()) json["variant"] = outcome.variant;
  add(json, outcome.method);
  add(json, outcome.figures);
  for (const Kind& kind : outcome.kinds) {
    json_t& of_kind = json["traffic"][kind.name];
    add(of_kind, kind.method);
    add(of_kind, kind.figures);
  }
  add(json, outcome.simulator);
  return json;
}

// --- files --------------------------------------------------------------------------------------

std::string_view status_text(const Flow& flow) {
  if (flow.is_done()) return "done";
  if (flow.failed) return "failed";
  return flow.start.is_never() ? "not begun" : "unfinished";
}

}  // namespace

std::string summary_json(const Results& results) {
  json_t json;
  json["scenario"] = results.name;
  json["title"] = results.title;
  if (results.outcomes.size() == 1) {
    json.update(json_of(results.outcomes.front()));
  } else {
    json["variants"] = json_t::array();
    for (const Outcome& outcome : results.outcomes) json["variants"].push_back(json_of(outcome));
  }
  return json.dump(2) + "\n";
}

std::string flows_csv(const Outcome& outcome) {
  std::string text = "flow,src,dst,bytes,start_ns,end_ns,fct_ns,slowdown,status,latency_ns";
  text += outcome.kinds.empty() ? "\n" : ",traffic\n";
  for (std::size_t i = 0; i < outcome.flows.size(); ++i) {
    const Flow& flow = outcome.flows[i];
    const bool done = flow.is_done();
    text += fmt::format("{},{},{},{},{},{},{},{},{},{}", i, flow.source, flow.destination,
                        flow.bytes, flow.start.is_never() ? "" : ns_text(flow.start),
                        done ? ns_text(flow.end) : "", done ? ns_text(flow.taken()) : "",
                        done ? fmt::format("{:.4f}", flow.slowdown) : "", status_text(flow),
                        flow.has_arrived() ? ns_text(flow.latency()) : "");
    if (!outcome.kinds.empty()) text += "," + outcome.kinds[outcome.kind_of[i]].name;
    text += "\n";
  }
  return text;
}

std::string sheet_csv(const Sheet& sheet) {
  std::string text;
  const auto add_cell = [&text](std::string_view cell) {
    if (!text.empty() && text.back() != '\n') text += ',';
    text += cell;
  };
  for (const std::string_view name : sheet.names) add_cell(name);
  for (const Figure* figure : sheet.figures) add_cell(csv_key(*figure));
  text += "\n";
  for (const Sheet::Row& row : sheet.rows) {
    for (const std::string& name : row.names) add_cell(name);
    for (const Value& value : row.values) add_cell(csv_text(value));
    text += "\n";
  }
  return text;
}

// Writes a new file. Returns an errno, or 0. A link that another user has put there is not
// followed, nor is a file used that is there already.
int write_new(const std::string& path, std::string_view text) {
  unlink(path.c_str());
  constexpr mode_t mode = 0666;
  const int out = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
  if (out < 0) return errno;
  int error = 0;
  while (error == 0 && !text.empty()) {
    const ssize_t written = write(out, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      error = errno;
    }
  }
  if (close(out) != 0 && error == 0) error = errno;
  return error;
}

Result<void> write_file(const std::string& path, const std::string& text) {
  const fs::path part = path + ".part";
  if (const int number = write_new(part, text); number != 0) {
    std::error_code ignored;
    fs::remove(part, ignored);
    return Error{fmt::format("{}: {}", path, std::strerror(number)), number};
  }
  std::error_code error;
  fs::rename(part, path, error);
  if (!error) return {};
  std::error_code ignored;
  fs::remove(part, ignored);
  return Error{fmt::format("{}: {}", path, error.message()), error.value()};
}

namespace {

Result<void> write_outcome(const OutputFolder& folder, const Outcome& outcome) {
  if (auto written = folder.write("flows.csv", flows_csv(outcome)); !written) return written;
  if (auto written = folder.write("links.csv", sheet_csv(outcome.links)); !written) return written;
  if (outcome.hosts) {
    if (auto written = folder.write("hosts.csv", sheet_csv(*outcome.hosts)); !written) {
      return written;
    }
  }
  if (outcome.samples.interval == Time::zero()) return {};
  return folder.write("samples.csv", samples_csv(outcome.samples));
}

}  // namespace

Result<void> write_results(const OutputFolder& folder, const Results& results, bool are_several) {
  for (const Outcome& outcome : results.outcomes) {
    OutputFolder own;
    if (are_several) {
      auto made = folder.inner(outcome.variant, true);
      if (!made) return made.error();
      own = std::move(*made);
    }
    auto written = write_outcome(are_several ? own : folder, outcome);
    if (!written) return written;
  }
  return folder.write("summary.json", summary_json(results));
}

}  // namespace tulle::report
