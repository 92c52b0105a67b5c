#pragma once

// Grids make many scenarios of one. They give its keys different values, in all combinations or as
// a list of points.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tulle::scenario {

inline constexpr std::size_t points_max = 100'000;

// A key of the scenario, with the values that it takes, as TOML.
struct Knob {
  std::string key;
  std::vector<std::string> values;
};

// Reads "KEY=VALUE,VALUE…". A value that is no TOML is a text, so that 1MB needs no quotes. "1..5"
// is the whole numbers from 1 to 5, and a list in brackets is one of TOML, whose values may have
// commas in them. The error is one line.
Result<Knob> parse_knob(std::string_view text);

// Reads "KEY=VALUE", as TOML has it, or with a value like those of a knob, and returns a line of
// TOML: traffic.bytes=4MB needs no quotes. `option` is the option for the error, which is one line.
Result<std::string> parse_setting(std::string_view text, std::string_view option);

// Returns a value of TOML as people write it: a text has no quotes.
std::string_view value_text(std::string_view toml);

struct Grid {
  std::vector<std::string> keys;
  std::vector<std::vector<std::string>> points;  // the keys' values, as TOML; empty: it has none

  // Returns the lines of TOML that set a point's keys, for Scenario::read.
  std::vector<std::string> lines(std::size_t point) const;
  // Returns a point's name for people: "traffic.bytes=1MB, seed=3".
  std::string name(std::size_t point) const;
};

// Returns all combinations of the knobs' values. Those of the last knob change fastest. The error
// reports a key that occurs twice, or too many points.
Result<Grid> grid_of(const std::vector<Knob>& knobs);
// Does the same with knobs as parse_knob() reads them.
Result<Grid> grid_of_texts(const std::vector<std::string>& knobs);
// Reads a file of points: a list [[point]], each with some keys of the scenario and their values.
Result<Grid> read_points(const std::string& path);

}  // namespace tulle::scenario
