#pragma once

// Finds the files that scenarios and options name. A name is looked up beside what names it, and then
// among the files that come with Tulle, so that a scenario works in any folder.

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tulle::scenario {

// Sets the folder of the scenarios that come with Tulle. Empty, the default: there is none. Called
// before anything is read.
void set_shipped_folder(const std::string& folder);
const std::string& shipped_folder();

// Returns the path of a file, or of a folder: FOLDER/NAME if it exists, or else NAME in the shipped
// folder. An empty folder is the current one. The error is one line that names both places, and
// similar names.
Result<std::string> find_file(const std::string& folder, const std::string& name);

// Does the same with KIND/NAME.toml, such as profiles/servers/dgx-h100.toml. `what` is what it is, for
// people: "profile".
Result<std::string> find_named(const std::string& folder, const std::string& kind,
                               const std::string& name, std::string_view what);
// Does the same as find_named(), and takes a file for what ends with .toml or has a slash in it.
Result<std::string> find_named_or_file(const std::string& folder, const std::string& kind,
                                       const std::string& name, std::string_view what);

// Returns the names of the files NAME.toml of a folder, in their order.
std::vector<std::string> toml_names(const std::string& folder);

}  // namespace tulle::scenario
