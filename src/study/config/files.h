#pragma once

// Finds and reads the files that scenarios and options name. A name is looked up next to the file
// that names it, and then among the files that come with Tulle, so a scenario works in any folder.

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tulle::config {

// Sets the folder of the scenarios that come with Tulle. Empty, the default: there is none. Called
// before anything is read.
void set_shipped_folder(const std::string& folder);
const std::string& shipped_folder();

// Returns the path of a file, or of a folder: FOLDER/NAME if it exists, or else NAME in the shipped
// folder. An empty folder is the current one. The error is one line that names both places, and
// similar names.
Result<std::string> find_file(const std::string& folder, const std::string& name);

// Does the same with KIND/NAME.toml, such as profiles/servers/dgx-h100.toml. `what` is what it is,
// for people: "profile".
Result<std::string> find_named(const std::string& folder, const std::string& kind,
                               const std::string& name, std::string_view what);
// Does the same as find_named(), and takes a file for what ends with .toml or has a slash in it.
Result<std::string> find_named_or_file(const std::string& folder, const std::string& kind,
                                       const std::string& name, std::string_view what);

// Returns the whole text of a file.
// Flows of a trace are the longest text: a thousand megabytes have some thirty million.
inline constexpr std::size_t file_bytes_max = std::size_t{1'000} << 20;
// Refuses a file that is longer, and what is no regular file: a device may never end, and nobody
// may write into a pipe.
Result<std::string> read_file(const std::string& path, std::size_t bytes_max = file_bytes_max);

// Returns true if there is something at a path: a file, or a folder.
bool is_there(const std::string& path);

// The names in a folder that begin and end so. An empty folder is the current one.
struct Listing {
  std::string folder, begins, ends;
};
// Returns these names, in their order; none if there is no such folder.
std::vector<std::string> list_names(const Listing& listing);
// Does the same in at most so many entries, which it takes from `entries_left`. Reports to nobody,
// and returns nothing if the folder has more.
std::optional<std::vector<std::string>> list_names(const Listing& listing,
                                                   std::size_t& entries_left);

// Receives all that a scenario found in the file system, so that later work can find out whether
// the same scenario would find anything else: texts by read_file(), what is_there() and find_file()
// did not find, and names by list_names(). No other thread may read files at the same time.
struct FileObserver {
  std::function<void(const std::string& path, const std::string& text)> read;
  std::function<void(const std::string& path)> absent;
  std::function<void(const Listing& listing, const std::vector<std::string>& names)> listed;
};
void observe_files(FileObserver observer);

// Returns the names of the files NAME.toml of a folder, in their order.
std::vector<std::string> toml_names(const std::string& folder);

}  // namespace tulle::config
