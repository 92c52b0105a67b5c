#pragma once

// Finds and reads the files that scenarios and options name. A name is looked up next to the file
// that names it, and then among the files that come with Tulle, so a scenario works in any folder.

#include <cstddef>
#include <functional>
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

// Sets a function that is told of each file which read_file() has read, or none. All files that a
// scenario names are read by it. No other thread may read files at the same time.
using FileObserver = std::function<void(const std::string& path, const std::string& text)>;
void observe_files(FileObserver observer);
// Reports to that function a file that was looked for and is absent, as one without text. If it
// appears later, what was read in its place no longer counts.
void note_absent_file(const std::string& path);

// Returns the names of the files NAME.toml of a folder, in their order.
std::vector<std::string> toml_names(const std::string& folder);

}  // namespace tulle::config
