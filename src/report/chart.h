#pragma once

// A picture of results as a script for gnuplot, which draws it as SVG. The same chart is always the
// same script, and from the same gnuplot the same picture.

#include <cstdint>
#include <string>
#include <vector>

namespace tulle::report {

struct Point {
  double x = 0;
  double y = 0;
};

// One curve, or one bar: then its first point's x is how long it is, and without any there is none.
struct Series {
  std::string name;
  std::string note;  // what else is to be said, beside a bar
  std::vector<Point> points;
};

struct Chart {
  enum class Kind : std::uint8_t { bars, lines, steps };

  Kind kind = Kind::bars;
  std::string title;
  std::string x_label;  // with the unit
  std::string y_label;
  bool x_log = false;
  bool y_log = false;
  bool x_bytes = false;     // are shown as kB, MB …
  bool y_is_share = false;  // from 0 to 100 per cent
  std::vector<Series> series;
};

// SVG appears on gnuplot's standard output, with a group of the id NAME_plot_N for the N-th series
// that has points, in which _ stands for all but letters and digits.
std::string gnuplot_script(const Chart& chart, const std::string& name);

// Some three digits.
std::string digits(double value);

}  // namespace tulle::report
