#pragma once

// The keys of scenarios and fabrics, as they were parsed. The tables stay as they are for as long
// as anyone reads from them, since a node that is copied forgets its line.

#include <toml++/toml.h>

#include <vector>

namespace tulle::scenario {

// The keys of a scenario.
struct Document {
  toml::table traffic;  // what stays the same on every fabric
  toml::table others;
  std::vector<toml::table> variants;  // the keys that each of them changes
  std::vector<toml::table> set;       // the keys that were set for all of them, the last ones first
};

// Keys of a scenario or a fabric, as of a file.
struct Keys {
  toml::table table;
};

}  // namespace tulle::scenario
