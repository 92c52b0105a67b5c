#include "study/config/files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <system_error>

#include "base/near_names.h"
#include "base/quoted.h"

namespace tulle::config {
namespace {

namespace fs = std::filesystem;

std::string shipped;
FileObserver file_observer;

// Returns the folders in which a name is looked up, each once.
std::vector<fs::path> places_for(const std::string& folder, const fs::path& name) {
  if (name.is_absolute()) return {fs::path()};
  std::vector<fs::path> places = {folder};
  std::error_code error;
  if (!shipped.empty() && !fs::equivalent(folder.empty() ? "." : folder, shipped, error)) {
    places.emplace_back(shipped);
  }
  return places;
}

// Returns the first of the places that has the file, or nothing. Work that is resumed must know
// that a file was absent before.
std::string found_in(const std::vector<fs::path>& places, const fs::path& name) {
  for (const fs::path& place : places) {
    const fs::path path = place / name;
    if (is_there(path.string())) return path.string();
  }
  return "";
}

std::string place_text(const fs::path& folder) {
  return folder.empty() ? "the current folder" : one_line(folder.string());
}

// Says where a name was looked up: "in A or B".
std::string places_text(const std::vector<fs::path>& places, const fs::path& below) {
  std::string text;
  for (const fs::path& place : places) {
    const fs::path folder = below.empty() ? place : place / below;
    text += (text.empty() ? "in " : " or ") + place_text(folder);
  }
  return text;
}

// Returns the names of what is in a folder of any of the places.
std::vector<std::string> names_in(const std::vector<fs::path>& places, const fs::path& below) {
  std::vector<std::string> names;
  for (const fs::path& place : places) {
    const fs::path folder = place / below;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder.empty() ? "." : folder, error)) {
      names.push_back(one_line((below / entry.path().filename()).string()));
    }
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace

void set_shipped_folder(const std::string& folder) { shipped = folder; }
const std::string& shipped_folder() { return shipped; }

Result<std::string> find_file(const std::string& folder, const std::string& name) {
  const fs::path path(name);
  const auto places = places_for(folder, path);
  // A name with a zero byte is refused where it is read.
  if (name.find('\0') != std::string::npos) return (places.front() / path).string();
  std::string found = found_in(places, path);
  if (!found.empty()) return found;
  const std::string where = path.is_absolute() ? "" : " " + places_text(places, {});
  return Error{fmt::format("there is no file {}{}{}", tulle::quoted(name), where,
                           did_you_mean(name, names_in(places, path.parent_path())))};
}

Result<std::string> find_named(const std::string& folder, const std::string& kind,
                               const std::string& name, std::string_view what) {
  const fs::path path = fs::path(kind) / (name + ".toml");
  const auto places = places_for(folder, path);
  std::string found = name.find('\0') == std::string::npos ? found_in(places, path) : "";
  if (!found.empty()) return found;
  if (path.is_absolute()) return Error{fmt::format("there is no file {}", one_line(path.string()))};
  std::vector<std::string> names;
  for (const fs::path& place : places) {
    for (std::string& each : toml_names((place / kind).string())) names.push_back(std::move(each));
  }
  std::string message =
      fmt::format("there is no {} {} {}", what, tulle::quoted(name), places_text(places, kind));
  const std::string all = names.empty() ? "" : fmt::format("there are {}", fmt::join(names, ", "));
  return Error{message + did_you_mean(name, names, all)};
}

Result<std::string> find_named_or_file(const std::string& folder, const std::string& kind,
                                       const std::string& name, std::string_view what) {
  const bool is_file = name.ends_with(".toml") || name.find('/') != std::string::npos;
  return is_file ? find_file(folder, name) : find_named(folder, kind, name, what);
}

void observe_files(FileObserver observer) { file_observer = std::move(observer); }

bool is_there(const std::string& path) {
  std::error_code error;
  if (fs::exists(path, error)) return true;
  if (file_observer.absent) file_observer.absent(path);
  return false;
}

std::optional<std::vector<std::string>> list_names(const Listing& listing,
                                                   std::size_t& entries_left) {
  std::vector<std::string> names;
  std::error_code error;
  const fs::path folder = listing.folder.empty() ? "." : listing.folder;
  const std::size_t least = listing.begins.size() + listing.ends.size();
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entries_left == 0) return {};
    --entries_left;
    std::string name = entry->path().filename().string();
    const bool fits = name.size() > least && name.starts_with(listing.begins);
    if (fits && name.ends_with(listing.ends)) names.push_back(std::move(name));
  }
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> list_names(const Listing& listing) {
  std::size_t all = std::numeric_limits<std::size_t>::max();
  std::vector<std::string> names = *list_names(listing, all);
  if (file_observer.listed) file_observer.listed(listing, names);
  return names;
}

Result<std::string> read_file(const std::string& path, std::size_t bytes_max) {
  // The system would open what the name begins with.
  if (path.find('\0') != std::string::npos) {
    return Error{fmt::format("{}: the name has a zero byte", one_line(path))};
  }
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    const char* const what = fs::is_directory(status) ? "a folder, not a file" : "no regular file";
    return Error{fmt::format("{}: is {}", one_line(path), what)};
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) return Error{fmt::format("{}: {}", one_line(path), std::strerror(errno)), errno};
  std::string text;
  std::array<char, 1 << 16> part;
  while (in.read(part.data(), part.size()), in.gcount() > 0) {
    text.append(part.data(), static_cast<std::size_t>(in.gcount()));
    if (text.size() > bytes_max) {
      return Error{fmt::format("{}: is longer than {} bytes, the most that are read",
                               one_line(path), bytes_max)};
    }
  }
  if (in.bad()) return Error{fmt::format("{}: cannot be read", one_line(path))};
  if (file_observer.read) file_observer.read(path, text);
  return text;
}

std::vector<std::string> toml_names(const std::string& folder) {
  constexpr std::string_view ending = ".toml";
  std::vector<std::string> names = list_names({folder, "", std::string(ending)});
  for (std::string& name : names) name.resize(name.size() - ending.size());
  std::ranges::sort(names);
  return names;
}

}  // namespace tulle::config
