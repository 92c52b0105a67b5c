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
  std::vector<toml::table> set;       // the keys that were set on the command line
};

// The keys of a fabric that is compared with others.
struct FabricKeys {
  toml::table table;
};

}  // namespace tulle::scenario
