#pragma once

// Knobs are keys of a scenario whose best values are searched for. Each has a range or a list of
// values. A point of the search is a place between 0 and 1 for each knob.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tulle::tuning {

// More knobs than these cannot be searched within any budget.
inline constexpr std::size_t knobs_max = 64;

struct Knob {
  enum class Kind : std::uint8_t { number, whole, time, rate, bytes, choice };
  std::string key;
  Kind kind = Kind::number;
  // The range, in picoseconds, bits a second or bytes if the values have such a unit. If `times` is
  // the key of another knob, these are factors of that one's value.
  double least = 0, most = 0;
  std::string times = {};
  std::vector<std::string> values = {};  // choice: TOML

  // Returns true if the middle of the range is the geometric one: it spans a factor of 10 or more.
  bool is_logarithmic() const { return least > 0 && most >= 10 * least; }
};

// Reads "KEY=LEAST..MOST", or "KEY=VALUE,VALUE" for a choice. The error is one line.
Result<Knob> parse_range(std::string_view text);
// Reads a file with a title and a list [[knob]], each with a key, and least and most, or values;
// `times` names an earlier knob of the file. The error is one line, "FILE:LINE: KEY: fault".
Result<std::vector<Knob>> read_knobs(const std::string& path);
// Returns an error, of one line, if a key occurs twice, or if `times` names no earlier knob that
// has a unit or is a number.
Result<void> check(std::span<const Knob> knobs);

// Returns each knob's value at the place, as TOML, with three significant digits: nobody sets a
// threshold to the byte. A place outside of 0 to 1 counts as its nearest end.
std::vector<std::string> values_at(std::span<const Knob> knobs, std::span<const double> place);

}  // namespace tulle::tuning
