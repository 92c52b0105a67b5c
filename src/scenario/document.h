#pragma once

// TOML as it was parsed. The tables stay as they are for as long as anyone reads from them, since a
// node that is copied forgets its line.

#include <toml++/toml.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tulle::scenario {

// The error is one line, "FILE:LINE: fault".
Result<toml::table> parse_toml(std::string_view text, const std::string& file);
// Returns a value as TOML has it.
std::string toml_of(const toml::node& node);

// The keys of a scenario.
struct Document {
  toml::table traffic;  // what stays the same on every fabric
  toml::table others;
  std::vector<toml::table> variants;  // the keys that each of them changes
  std::vector<toml::table> set;       // the keys that were set on the command line
};

// The keys of a fabric that is compared with others.
struct FabricKeys {
  toml::table table;
};

}  // namespace tulle::scenario
