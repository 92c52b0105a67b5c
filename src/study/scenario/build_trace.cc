// The job of a trace.

#include <array>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "study/scenario/build.h"
#include "study/scenario/reading.h"
#include "study/scenario/trace_files.h"
#include "study/traces/reader.h"

namespace tulle::scenario {
namespace {

constexpr std::array<std::string_view, 3> control_names = {"automatic", "order", "ignore"};

Result<traces::Groups> read_groups(const std::string& path, std::uint32_t ranks) {
  auto text = read_file(path);
  if (!text) return text.error();
  return traces::parse_groups(*text, path, ranks);
}

// Returns the path of a trace: a file, a folder, or the name that the files of all ranks share. If
// there is none, reading it says so.
std::string trace_path(const std::string& folder, const std::string& name) {
  std::string path = (std::filesystem::path(folder) / name).string();
  if (shipped_folder().empty() || !find_trace(path).empty()) return path;
  const std::string other = (std::filesystem::path(shipped_folder()) / name).string();
  return find_trace(other).empty() ? path : other;
}

Result<workload::TaskGraph> read_graph(const std::string& path, const traces::Settings& settings) {
  auto read = read_trace_files(path);
  if (!read) return read.error();
  std::vector<traces::File> files;
  for (const TraceFile& file : *read) files.push_back({file.path, file.text, file.rank});
  return traces::read_trace(files, settings);
}

}  // namespace

void build_trace(TableReader& table, const JobSettings& job, Setup& setup) {
  const std::string name = table.text("trace", "");
  const std::string groups = table.text("groups", "");
  traces::Settings settings;
  settings.operations_per_second = table.number("operations_per_second", 0, 0, 1e21);
  settings.control_dependencies =
      table.choice("control_dependencies", control_names, traces::ControlDependencies::automatic);
  settings.servers = job.servers;
  if (name.empty()) return table.wrong("trace", "is needed: a file, or a folder of files");
  if (table.findings().any()) return;
  if (!groups.empty()) {
    auto path = find_file(job.folder, groups);
    if (!path) return table.wrong("groups", path.error().message);
    auto read = read_groups(*path, settings.servers.ranks());
    if (!read) return table.wrong("groups", read.error().message);
    settings.groups = std::move(*read);
  }
  take_job(table, "trace", read_graph(trace_path(job.folder, name), settings), settings.servers,
           setup);
}

}  // namespace tulle::scenario
