#pragma once

// Fabrics by name, from folders of files.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "study/scenario/scenario.h"

namespace tulle::scenario {

// Reads the text of a fabric: its own `title`, `sources` and `default`, and tables of a scenario's
// keys. `file` is FOLDER/NAME.toml, which need not exist. The fabric has its name, the errors have
// its path, and profiles that the fabric names are in FOLDER/../profiles.
Result<Fabric> parse_fabric(std::string_view text, const std::string& file);

// Reads all fabrics of a folder, in the order of their names.
Result<std::vector<Fabric>> read_fabrics(const std::string& folder);

// Returns the fabrics that `names` lists as "a,b,c", in that order; all of them for "all"; or for
// "" those that are compared by default, and that go with so many planes. FILE.toml is a fabric in
// a separate file. The error lists the names that exist.
Result<std::vector<Fabric>> choose_fabrics(const std::vector<Fabric>& fabrics,
                                           const std::string& names, std::uint32_t planes = 1);

// Returns the names and titles of the files NAME.toml of a folder, in the order of their names.
std::vector<std::pair<std::string, std::string>> titles_in(const std::string& folder);

}  // namespace tulle::scenario
