#pragma once

// A picture of results as a script for gnuplot, which draws it as SVG. The same chart always gives
// the same script, and the same gnuplot always draws the same picture from it.

#include <cstdint>
#include <string>
#include <vector>

namespace tulle::report {

struct Point {
  double x = 0;
  double y = 0;
};

// One curve or one bar. The length of a bar is the x of its first point; without points there is no
// bar.
struct Series {
  std::string name;
  std::string note;  // further text, next to a bar or behind the name in the legend
  std::vector<Point> points;
};

struct Chart {
  enum class Kind : std::uint8_t { bars, lines, steps };

  Kind kind = Kind::bars;
  std::string title;
  std::string x_label;  // includes the unit
  std::string y_label;
  bool x_log = false;
  bool y_log = false;
  bool x_bytes = false;     // x values are bytes, shown as kB, MB …
  bool y_is_share = false;  // y runs from 0 to 100 per cent
  std::vector<Series> series;
};

// Returns the script. It writes the SVG to gnuplot's standard output, with a group of the id
// NAME_plot_N for the N-th series that has points. In the id, _ replaces everything but letters and
// digits.
std::string gnuplot_script(const Chart& chart, const std::string& name);

// Formats the value with about three digits.
std::string digits(double value);

}  // namespace tulle::report
