#include "study/report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <string_view>

namespace tulle::report {
namespace {

// Okabe and Ito's colours ("Color Universal Design", 2008), which people with any kind of colour
// blindness can tell apart. Grey replaces their yellow, which is faint on white.
constexpr std::array<std::string_view, 8> colours = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                                     "#E69F00", "#56B4E9", "#000000", "#808080"};

// Each curve has a dash pattern, the first a solid line, so that a curve below another shows
// through its gaps.
constexpr std::array<std::string_view, 6> dashes = {"1",     "(18,6)",     "(9,5)",
                                                    "(3,4)", "(14,4,3,4)", "(7,3,3,3,3,3)"};

// The background is white, so that the picture can be read on a dark page too.
constexpr std::string_view background = "#ffffff";
constexpr std::string_view faint = "#D0D0D0";
constexpr int width = 860;
// Width of the letters of names in gnuplot's character widths, for the widest of the usual fonts.
constexpr double letter = 0.85;
// Length of the longest name with which a legend still has two columns.
constexpr std::size_t legend_letters = 36;

// Between apostrophes, gnuplot interprets only apostrophes themselves, which are doubled.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') out += '\'';
    out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return out + "'";
}

// Makes a name an id for the picture, in which gnuplot allows only letters, digits and underscores.
std::string id_of(std::string name) {
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

std::string number(double value) { return fmt::format("{:.6g}", value); }

std::string head(const Chart& chart, const std::string& name, int height) {
  std::string text = fmt::format(
      "set encoding utf8\n"
      "set terminal svg size {},{} fixed noenhanced font 'sans-serif,14' name '{}' background "
      "'{}'\n"
      "set border 3 linecolor rgb '#404040'\n"
      "set tics nomirror out\n"
      "set label 1 {} at screen 0.5, graph 1 center offset 0, character 1.6 font ',16'\n"
      "set tmargin 3.5\n"
      "set xlabel {}\n",
      width, height, id_of(name), background, quoted(chart.title), quoted(chart.x_label));
  if (!chart.y_label.empty()) text += fmt::format("set ylabel {}\n", quoted(chart.y_label));
  if (chart.x_log) text += "set logscale x\n";
  if (chart.y_log) text += "set logscale y\n";
  text += "set format '%g'\n";
  if (chart.x_bytes) text += "set format x '%.0s %cB'\n";
  return text;
}

std::string data_of(const std::vector<Series>& series) {
  std::string text;
  for (std::size_t i = 0; i < series.size(); ++i) {
    if (series[i].points.empty()) continue;
    text += fmt::format("$data{} << END\n", i);
    for (const Point& point : series[i].points) {
      text += number(point.x) + " " + number(point.y) + "\n";
    }
    text += "END\n";
  }
  return text;
}

// Returns the range from the start of the bars to the end of the longest bar and the text next to
// it.
std::string bars_range(const Chart& chart) {
  double least = 0;
  double most = 0;
  for (const Series& series : chart.series) {
    if (series.points.empty()) continue;
    const double value = series.points.front().x;
    most = std::max(most, value);
    if (value > 0) least = least > 0 ? std::min(least, value) : value;
  }
  if (most <= 0) return "set xrange [0:1]\n";
  if (!chart.x_log) return fmt::format("set xrange [0:{}]\n", number(most * 1.2));
  const double from = std::pow(10, std::floor(std::log10(least) - 0.2));
  return fmt::format("set xrange [{}:{}]\n", number(from),
                     number(most * std::pow(most / from, 0.2)));
}

std::string bars(const Chart& chart, const std::string& name) {
  const std::size_t n = chart.series.size();
  std::string text = head(chart, name, 110 + 26 * static_cast<int>(n));
  std::string tics;
  std::string plots;
  std::size_t longest = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const Series& series = chart.series[i];
    longest = std::max(longest, series.name.size());
    tics += fmt::format("{}{} {}", i == 0 ? "" : ", ", quoted(series.name), i + 1);
    std::string beside = series.note;
    if (!series.points.empty()) {
      beside = digits(series.points.front().x) + (series.note.empty() ? "" : ", " + series.note);
      plots += fmt::format(
          "{}$data{} using 1:({}):(0):1:({}):({}) with boxxyerror linecolor rgb '{}' notitle",
          plots.empty() ? "plot " : ", \\\n  ", i, i + 1, static_cast<double>(i) + 0.65,
          static_cast<double>(i) + 1.35, colours[0]);
    }
    const std::string at =
        series.points.empty() ? "graph 0" : "first " + number(series.points.front().x);
    text += fmt::format("set label {} {} at {}, first {} left offset character 0.6, 0 front\n",
                        i + 2, quoted(beside), at, i + 1);
  }
  text += data_of(chart.series) + bars_range(chart);
  text += fmt::format(
      "set lmargin {}\n"
      "set yrange [{}:0.4]\n"
      "set ytics scale 0 ({})\n"
      "set grid xtics linetype 1 linecolor rgb '{}'\n"
      "set style fill solid noborder\n"
      "unset key\n",
      number(static_cast<double>(longest) * letter + 2), static_cast<double>(n) + 0.6, tics, faint);
  return text + (plots.empty() ? "plot NaN notitle" : plots) + "\n";
}

std::string curves(const Chart& chart, const std::string& name) {
  const std::size_t n = chart.series.size();
  const auto legend = [](const Series& series) {
    return series.name + (series.note.empty() ? "" : " (" + series.note + ")");
  };
  const bool long_names = std::ranges::any_of(
      chart.series, [&](const Series& series) { return legend(series).size() > legend_letters; });
  const int rows = static_cast<int>(long_names ? n : (n + 1) / 2);  // rows of the legend
  std::string text = head(chart, name, 440 + 21 * rows);
  text += data_of(chart.series);
  text += fmt::format(
      "set grid linetype 1 linecolor rgb '{}'\n"
      "set bmargin {}\n"
      "set rmargin 4\n"
      "set key at screen 0.5, screen {} center bottom maxrows {} samplen 5 Left reverse\n",
      faint, number(4 + 1.25 * rows), number(12.0 / (440 + 21 * rows)), rows);
  // The lines at 0 and at 100 per cent are apart from the frame.
  if (chart.y_is_share) text += "set yrange [-3:103]\nset ytics 0,20,100\n";
  if (!chart.y_is_share && !chart.y_log) text += "set yrange [0:]\n";
  std::string plots;
  for (std::size_t i = 0; i < n; ++i) {
    const Series& series = chart.series[i];
    if (series.points.empty()) continue;
    plots += fmt::format(
        "{}$data{} using 1:2 with {} linewidth 2 dashtype {} linecolor rgb '{}' title {}",
        plots.empty() ? "plot " : ", \\\n  ", i,
        chart.kind == Chart::Kind::steps ? "steps" : "linespoints pointtype 7 pointsize 0.5",
        dashes[i % dashes.size()], colours[i % colours.size()], quoted(legend(series)));
  }
  return text + (plots.empty() ? "plot NaN notitle" : plots) + "\n";
}

}  // namespace

std::string digits(double value) {
  const double size = std::abs(value);
  if (size == 0 || (size == std::floor(size) && size < 1e6)) return fmt::format("{:.0f}", value);
  if (size >= 1e6 || size < 0.001) return fmt::format("{:.2e}", value);
  const int before = size >= 1 ? static_cast<int>(std::floor(std::log10(size))) + 1 : 1;
  const int after =
      size >= 1 ? std::max(0, 3 - before) : 2 - static_cast<int>(std::floor(std::log10(size)));
  return fmt::format("{:.{}f}", value, after);
}

std::string gnuplot_script(const Chart& chart, const std::string& name) {
  return chart.kind == Chart::Kind::bars ? bars(chart, name) : curves(chart, name);
}

}  // namespace tulle::report
