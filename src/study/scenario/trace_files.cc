#include "study/scenario/trace_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/quoted.h"
#include "study/scenario/reading.h"
#include "study/scenario/scenario.h"
#include "study/workload/csv.h"

namespace tulle::scenario {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 2> suffixes = {".et", ".json"};

// A name such as step.12.et.
struct RankedName {
  std::string base;    // step
  std::string suffix;  // .et
  std::uint32_t rank = 0;
};

std::optional<RankedName> ranked_name(const std::string& name) {
  for (const std::string_view suffix : suffixes) {
    if (!name.ends_with(suffix)) continue;
    const std::string stem = name.substr(0, name.size() - suffix.size());
    const std::size_t dot = stem.rfind('.');
    if (dot == std::string::npos) return std::nullopt;
    const auto rank = workload::parse_number<std::uint32_t>(std::string_view(stem).substr(dot + 1));
    if (!rank) return std::nullopt;
    return RankedName{stem.substr(0, dot), std::string(suffix), *rank};
  }
  return std::nullopt;
}

// Returns the files of a folder that have ranks in their names and, if these are given, a base and
// a suffix.
std::vector<TraceFile> ranked_files(const fs::path& folder, const std::string& base,
                                    const std::string& suffix) {
  std::vector<TraceFile> files;
  const std::string begins = base.empty() ? "" : base + ".";
  for (const std::string_view ends : suffixes) {
    if (!suffix.empty() && suffix != ends) continue;
    for (const std::string& each : list_names({folder.string(), begins, std::string(ends)})) {
      const auto name = ranked_name(each);
      if (!name || (!base.empty() && name->base != base)) continue;
      files.push_back({(folder / each).string(), name->rank, ""});
    }
  }
  std::ranges::sort(files, {},
                    [](const TraceFile& file) { return std::pair(file.rank, file.path); });
  return files;
}

}  // namespace

bool is_of_ranks(const std::string& path) {
  return ranked_name(fs::path(path).filename().string()).has_value();
}

std::vector<TraceFile> find_trace(const std::string& path) {
  std::error_code error;
  const fs::path file(path);
  if (fs::is_directory(file, error)) return ranked_files(file, "", "");
  if (const auto name = ranked_name(file.filename().string()); name && is_there(path)) {
    return ranked_files(file.parent_path(), name->base, name->suffix);
  }
  if (is_there(path)) return {{path, std::nullopt, ""}};
  return ranked_files(file.parent_path(), file.filename().string(), "");
}

Result<std::vector<TraceFile>> read_trace_files(const std::string& path) {
  std::vector<TraceFile> files = find_trace(path);
  if (files.empty()) {
    return Error{fmt::format("{}: there is no such file, and no trace of ranks {}.0.et and so on",
                             one_line(path), one_line(path))};
  }
  std::size_t bytes = 0;
  for (TraceFile& file : files) {
    std::error_code error;
    // A file that is not regular, such as a pipe, has no size to check before it is read.
    const auto size = fs::is_regular_file(file.path, error) ? fs::file_size(file.path, error) : 0;
    if (error || !fs::is_regular_file(file.path, error)) {
      return Error{fmt::format("{}: is no regular file", one_line(file.path))};
    }
    if (size > trace_bytes_max - bytes) {
      return Error{fmt::format("{}: the files of a trace have more than {} bytes; take a part",
                               one_line(file.path), trace_bytes_max)};
    }
    auto text = read_file(file.path);
    if (!text) return text.error();
    file.text = std::move(*text);
    bytes += file.text.size();
  }
  return files;
}

}  // namespace tulle::scenario
