#pragma once

// A figure is something that was measured: its name, its unit, and how it is shown. The tables for
// people, JSON, CSV and the pictures are all made from these descriptions and from values. The room
// that measures keeps the table of them, so that this one need not know what is measured.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/time.h"

namespace tulle::report {

struct Rate {
  double bits_per_second = 0;
};

// JSON and pictures have times in microseconds and rates in Gb/s.
using Value = std::variant<std::uint64_t, double, Time, Rate>;

enum class Form : std::uint8_t { count, number, per_cent, rate };
enum class Best : std::uint8_t { none, least, most };

// The column of a figure in a table that compares variants side by side. It is shown only if a
// variant has something in it.
struct Column {
  std::uint8_t place = 0;    // from the left, from 1 on; 0 means that there is no such column
  Best best = Best::none;    // the value that is marked as the best
  bool of_finished = false;  // no value for variants of which no flow finished
};

// The column of a figure in the table that `tulle sim` prints, which is the same for all scenarios.
struct SummaryColumn {
  std::uint8_t place = 0;  // from the left, from 1 on; 0 means that there is no such column
  std::uint8_t width = 0;
  std::uint8_t digits = 0;        // behind the point, for a number
  bool is_close = false;          // one blank, not two, before it
  bool of_all_arrived = false;    // no value unless every receiver was told
  std::string_view heading = {};  // if empty, it is the figure's
};

struct Figure {
  std::string_view key;   // the name in JSON; "fct_us.p99" is the p99 of the object fct_us
  std::string_view unit;  // in words; "1" means that it has none
  std::string_view heading;
  Form form = Form::count;
  Column column = {};
  SummaryColumn summary = {};
  std::string_view axis = {};  // the label of a picture's axis; if empty, it follows from the key
};

struct Measured {
  const Figure* figure = nullptr;
  Value value;
};
using Figures = std::vector<Measured>;

// Returns true if the value is of the kind that the figure has: a count; a rate; a time, if the key
// ends with "_us"; or else a number.
bool has_kind(const Figure& figure, const Value& value);

// Returns the figure of that key, or null.
const Measured* find(const Figures& figures, std::string_view key);

// Returns the value as a number in the unit that JSON has.
double exact(const Value& value);
// Returns the same number as JSON has it, rounded to nine digits, so that a last bit of floating
// point makes no difference.
double rounded(const Value& value);

// Returns the figure's name in CSV. A time is exact there, in nanoseconds: "paused_us" becomes
// "paused_ns".
std::string csv_key(const Figure& figure);
std::string csv_text(const Value& value);
// Returns nanoseconds with the picoseconds behind the point, exactly.
std::string ns_text(Time time);

}  // namespace tulle::report
