#include "scenario/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "base/split.h"
#include "scenario/reader.h"
#include "scenario/results.h"
#include "workload/csv.h"

namespace tulle::scenario {

using report::Chart;
using report::Point;
using report::Series;
using Kind = PictureSettings::Kind;
using Scale = PictureSettings::Scale;

namespace {

constexpr std::array<std::string_view, 5> kind_names = {"bars", "cdf", "by-size", "progress",
                                                        "over-time"};
constexpr std::array<std::string_view, 3> scale_names = {"automatic", "linear", "logarithmic"};
constexpr std::array<std::string_view, 5> show_defaults = {"fct_us.p99", "slowdown", "slowdown.p99",
                                                           "", "rate_gbps"};

// --- figures of flows ---------------------------------------------------------------------------

struct FlowFigure {
  std::string_view name;
  std::optional<double> (*of)(const FlowOutcome&);
};

std::optional<double> completion_us(const FlowOutcome& flow) {
  if (flow.end.is_never()) return {};
  return static_cast<double>((flow.end - flow.start).ps) * 1e-6;
}
std::optional<double> slowdown(const FlowOutcome& flow) {
  if (flow.end.is_never()) return {};
  return flow.slowdown;
}
std::optional<double> latency_us(const FlowOutcome& flow) {
  if (flow.arrived.is_never()) return {};
  return static_cast<double>((flow.arrived - flow.start).ps) * 1e-6;
}
std::optional<double> rate_gbps(const FlowOutcome& flow) {
  if (flow.end.is_never()) return {};
  return static_cast<double>(flow.flow.bytes) * 8e3 /
         static_cast<double>((flow.end - flow.start).ps);
}

constexpr std::array<FlowFigure, 4> flow_figures = {FlowFigure{"fct_us", completion_us},
                                                    {"slowdown", slowdown},
                                                    {"latency_us", latency_us},
                                                    {"rate_gbps", rate_gbps}};
constexpr char flow_figure_list[] = "fct_us, slowdown, latency_us or rate_gbps";

const FlowFigure* flow_figure(std::string_view name) {
  const auto* found = std::ranges::find(flow_figures, name, &FlowFigure::name);
  return found == flow_figures.end() ? nullptr : &*found;
}

struct Statistic {
  std::string_view name;
  std::string_view words;
  double Quantiles::*of;
};
constexpr std::array<Statistic, 4> statistics = {Statistic{"min", "least", &Quantiles::min},
                                                 {"median", "median", &Quantiles::median},
                                                 {"p99", "99 %", &Quantiles::p99},
                                                 {"max", "most", &Quantiles::max}};

// Splits "fct_us.p99" in two. The second part is empty if there is no point.
std::pair<std::string, std::string> name_and_kind(const std::string& show) {
  const std::size_t point = std::min(show.find('.'), show.size());
  return {show.substr(0, point), show.substr(std::min(point + 1, show.size()))};
}

const Statistic* statistic(std::string_view name) {
  const auto* found = std::ranges::find(statistics, name, &Statistic::name);
  return found == statistics.end() ? nullptr : &*found;
}

bool is_shown(const PictureSettings& picture, std::size_t flow) {
  return picture.flows.empty() || std::ranges::any_of(picture.flows, [flow](const auto& range) {
           return flow >= range.first && flow <= range.last;
         });
}

std::vector<const FlowOutcome*> shown_flows(const PictureSettings& picture,
                                            const Outcome& outcome) {
  std::vector<const FlowOutcome*> flows;
  for (std::size_t i = 0; i < outcome.flows.size(); ++i) {
    if (is_shown(picture, i)) flows.push_back(&outcome.flows[i]);
  }
  return flows;
}

std::vector<double> values(const std::vector<const FlowOutcome*>& flows, const FlowFigure& figure) {
  std::vector<double> found;
  for (const FlowOutcome* flow : flows) {
    if (const auto value = figure.of(*flow)) found.push_back(*value);
  }
  return found;
}

// Returns "8 of 16 done", or "" if all flows are done.
std::string note(const std::vector<const FlowOutcome*>& flows) {
  const auto done = std::ranges::count_if(flows, [](auto* flow) { return !flow->end.is_never(); });
  if (static_cast<std::size_t>(done) == flows.size()) return "";
  return done == 0 ? "none done" : fmt::format("{} of {} done", done, flows.size());
}

// --- words --------------------------------------------------------------------------------------

struct Words {
  std::string_view name;
  std::string_view words;
};
constexpr std::array<Words, 8> known_words = {
    Words{"fct_us", "flow completion time, us"},
    {"slowdown", "slowdown against an empty network"},
    {"latency_us", "time one way, us"},
    {"rate_gbps", "a flow's rate, Gb/s"},
    {"goodput_gbps", "goodput of all flows together, Gb/s"},
    {"share_of_ideal", "of the ideal rate, %"},
    {"end_us", "time until all flows are done, us"},
    {"retransmitted", "packets sent again"}};
constexpr std::array<Words, 4> units = {
    Words{"_us", ", us"}, {"_gbps", ", Gb/s"}, {"_bytes", ", bytes"}, {"_percent", ", %"}};

// Returns the label of an axis that shows the figure: known words, or the figure's name and unit.
std::string label_of(const std::string& show) {
  const auto [name, kind] = name_and_kind(show);
  std::string words;
  const auto* known = std::ranges::find(known_words, name, &Words::name);
  if (known != known_words.end()) {
    words = known->words;
  } else {
    words = name;
    std::string_view unit;
    for (const Words& suffix : units) {
      if (!words.ends_with(suffix.name)) continue;
      words.resize(words.size() - suffix.name.size());
      unit = suffix.words;
      break;
    }
    std::ranges::replace(words, '_', ' ');
    words += unit;
  }
  if (kind.empty()) return words;
  const Statistic* known_kind = statistic(kind);
  return fmt::format("{} ({})", words, known_kind == nullptr ? kind : known_kind->words);
}

// --- kinds of pictures --------------------------------------------------------------------------

// True for a logarithmic axis. The automatic choice is logarithmic if the least value could not be
// seen on a linear axis.
bool is_log(Scale scale, const std::vector<double>& all) {
  if (scale != Scale::automatic) return scale == Scale::logarithmic;
  double least = 0;
  double most = 0;
  for (const double value : all) {
    if (value <= 0) continue;
    least = least > 0 ? std::min(least, value) : value;
    most = std::max(most, value);
  }
  constexpr double wide = 30;
  return least > 0 && most > wide * least;
}

bool any_nonpositive(const std::vector<double>& all) {
  return std::ranges::any_of(all, [](double value) { return value <= 0; });
}

// Returns a figure of a variant, or nothing if it has no figure of that name or no flow that is
// done.
std::optional<double> figure(const PictureSettings& picture, const Outcome& outcome) {
  const auto [name, kind] = name_and_kind(picture.show);
  if (const FlowFigure* of_flows = flow_figure(name)) {
    std::vector<double> all = values(shown_flows(picture, outcome), *of_flows);
    if (all.empty()) return {};
    return quantiles(std::move(all)).*statistic(kind)->of;
  }
  return summary_figure(outcome, picture.show);
}

void draw_bars(const PictureSettings& picture, const std::vector<const Outcome*>& outcomes,
               Chart& chart) {
  const double factor = picture.show == "share_of_ideal" ? 100 : 1;
  const std::string label = picture.label.empty() ? label_of(picture.show) : picture.label;
  chart.kind = Chart::Kind::bars;
  std::vector<double> all;
  for (const Outcome* outcome : outcomes) {
    Series& series = chart.series.emplace_back();
    series.name = outcome->variant;
    series.note = note(shown_flows(picture, *outcome));
    const std::optional<double> value = figure(picture, *outcome);
    if (!value) continue;
    series.points.push_back({*value * factor, 0});
    all.push_back(*value);
  }
  chart.x_label = label;
  chart.x_log = is_log(picture.scale, all);
  if (!chart.x_log) return;
  chart.x_label += " (logarithmic)";
  // A logarithmic axis has no place for 0.
  for (Series& series : chart.series) {
    if (series.points.empty() || series.points.front().x > 0) continue;
    series.points.clear();
    series.note = "0" + (series.note.empty() ? "" : ", " + series.note);
  }
}

// Thins points out to as many as can be told apart, evenly, with the first and the last among them.
constexpr std::size_t points_max = 100;
std::vector<Point> thinned(const std::vector<Point>& points) {
  if (points.size() <= points_max) return points;
  std::vector<Point> some;
  for (std::size_t i = 0; i < points_max; ++i) {
    some.push_back(points[i * (points.size() - 1) / (points_max - 1)]);
  }
  return some;
}

// Returns, for each value, the share of `flows` in per cent whose value is no more.
std::vector<Point> cumulative(std::vector<double> all, std::size_t flows) {
  std::ranges::sort(all);
  std::vector<Point> points;
  for (std::size_t i = 0; i < all.size(); ++i) {
    points.push_back({all[i], 100 * static_cast<double>(i + 1) / static_cast<double>(flows)});
  }
  return thinned(points);
}

void draw_cdf(const PictureSettings& picture, const std::vector<const Outcome*>& outcomes,
              Chart& chart) {
  chart.kind = Chart::Kind::steps;
  std::vector<double> all;
  for (const Outcome* outcome : outcomes) {
    const auto flows = shown_flows(picture, *outcome);
    std::vector<double> own = values(flows, *flow_figure(picture.show));
    all.insert(all.end(), own.begin(), own.end());
    chart.series.push_back(
        {outcome->variant, note(flows), cumulative(std::move(own), flows.size())});
  }
  chart.x_log = is_log(picture.scale, all) && !any_nonpositive(all);
  chart.x_label = picture.label.empty() ? label_of(picture.show) : picture.label;
  if (chart.x_log) chart.x_label += " (logarithmic)";
  chart.y_is_share = true;
  chart.y_label = "flows with no more, %";
}

// Sorts flows by size into classes of about equal number. Returns the figure of each class at its
// largest size.
std::vector<Point> by_size(std::vector<const FlowOutcome*> flows, const FlowFigure& figure,
                           const Statistic& statistic) {
  std::erase_if(flows, [&](const FlowOutcome* flow) { return !figure.of(*flow); });
  std::ranges::stable_sort(flows, {}, [](const FlowOutcome* flow) { return flow->flow.bytes; });
  // Each class has enough flows for a percentile, if there are enough flows.
  const std::size_t classes = std::clamp<std::size_t>(flows.size() / 100, 5, 20);
  const std::size_t least = std::max<std::size_t>(flows.size() / classes, 1);
  std::vector<Point> points;
  std::vector<const FlowOutcome*> own;
  for (std::size_t i = 0; i < flows.size(); ++i) {
    own.push_back(flows[i]);
    const bool last = i + 1 == flows.size();
    const bool ends = last || flows[i + 1]->flow.bytes != flows[i]->flow.bytes;
    if (!ends || (!last && (own.size() < least || flows.size() - i - 1 < least / 2))) continue;
    points.push_back(
        {static_cast<double>(flows[i]->flow.bytes), quantiles(values(own, figure)).*statistic.of});
    own.clear();
  }
  return points;
}

void draw_by_size(const PictureSettings& picture, const std::vector<const Outcome*>& outcomes,
                  Chart& chart) {
  const auto [name, kind] = name_and_kind(picture.show);
  chart.kind = Chart::Kind::lines;
  std::vector<double> all;
  for (const Outcome* outcome : outcomes) {
    const auto flows = shown_flows(picture, *outcome);
    Series series{outcome->variant, note(flows),
                  by_size(flows, *flow_figure(name), *statistic(kind))};
    for (const Point& point : series.points) all.push_back(point.y);
    chart.series.push_back(std::move(series));
  }
  chart.x_log = true;
  chart.x_bytes = true;
  chart.x_label = "a flow's size (logarithmic)";
  chart.y_log = is_log(picture.scale, all) && !any_nonpositive(all);
  chart.y_label = picture.label.empty() ? label_of(picture.show) : picture.label;
  if (chart.y_log) chart.y_label += " (logarithmic)";
}

// Labels the axis of time, whose points are in microseconds, and changes to milliseconds for long
// runs.
void show_time(double last_us, Chart& chart) {
  const bool is_long = last_us >= 10'000;
  chart.x_label = is_long ? "time, ms" : "time, us";
  if (!is_long) return;
  for (Series& series : chart.series) {
    for (Point& point : series.points) point.x /= 1'000;
  }
}

void draw_progress(const PictureSettings& picture, const std::vector<const Outcome*>& outcomes,
                   Chart& chart) {
  chart.kind = Chart::Kind::steps;
  double last_us = 0;
  for (const Outcome* outcome : outcomes) {
    const auto flows = shown_flows(picture, *outcome);
    std::vector<double> ends_us;
    for (const FlowOutcome* flow : flows) {
      if (!flow->end.is_never()) ends_us.push_back(static_cast<double>(flow->end.ps) * 1e-6);
    }
    for (const double end_us : ends_us) last_us = std::max(last_us, end_us);
    chart.series.push_back(
        {outcome->variant, note(flows), cumulative(std::move(ends_us), flows.size())});
  }
  for (Series& series : chart.series) {
    // Each curve runs from the beginning, when no flow is done, to the end of the last variant.
    const double at_end = series.points.empty() ? 0 : series.points.back().y;
    if (!series.points.empty()) {
      series.points.insert(series.points.begin(), {series.points.front().x, 0});
    }
    series.points.insert(series.points.begin(), {0, 0});
    series.points.push_back({last_us, at_end});
  }
  show_time(last_us, chart);
  chart.y_is_share = true;
  chart.y_label = picture.label.empty() ? "flows done, %" : picture.label;
}

// Returns the curve of a link, which may have several ports: as many points as can be told apart,
// each the mean of several samples.
std::vector<Point> over_time(const PictureSettings& picture, const Samples& samples) {
  std::vector<std::size_t> ports;
  for (std::size_t i = 0; i < samples.ports.size(); ++i) {
    const SampledPort& port = samples.ports[i];
    if (port.from == picture.link[0] && port.to == picture.link[1]) ports.push_back(i);
  }
  if (ports.empty()) return {};
  const std::size_t moments = samples.samples.size() / samples.ports.size();
  constexpr std::size_t most = 250;
  const std::size_t together = (moments + most - 1) / most;
  const bool of_queue = picture.show == "queue_bytes";
  const double interval_us = static_cast<double>(samples.interval.ps) * 1e-6;
  std::vector<Point> points;
  for (std::size_t i = 0; i < moments; i += together) {
    const std::size_t end = std::min(i + together, moments);
    double sum = 0;
    for (std::size_t moment = i; moment < end; ++moment) {
      for (const std::size_t port : ports) {
        const Sample& sample = samples.samples[moment * samples.ports.size() + port];
        sum += static_cast<double>(of_queue ? sample.queue_bytes : sample.bytes);
      }
    }
    const double mean = sum / static_cast<double>(end - i);
    // Bytes in a microsecond are 8e-3 Gb/s; queues are shown in kB.
    points.push_back({static_cast<double>(end) * interval_us,
                      of_queue ? mean * 1e-3 : mean * 8e-3 / interval_us});
  }
  return points;
}

void draw_over_time(const PictureSettings& picture, const std::vector<const Outcome*>& outcomes,
                    Chart& chart) {
  chart.kind = Chart::Kind::steps;
  double last_us = 0;
  std::vector<double> all;
  for (const Outcome* outcome : outcomes) {
    chart.series.push_back({outcome->variant, note(shown_flows(picture, *outcome)),
                            over_time(picture, outcome->samples)});
    for (const Point& point : chart.series.back().points) {
      last_us = std::max(last_us, point.x);
      all.push_back(point.y);
    }
  }
  show_time(last_us, chart);
  const std::string from_to = picture.link[0] + " to " + picture.link[1];
  chart.y_label = picture.show == "queue_bytes" ? "waiting from " + from_to + ", kB"
                                                : "rate from " + from_to + ", Gb/s";
  if (!picture.label.empty()) chart.y_label = picture.label;
  chart.y_log = picture.scale == Scale::logarithmic && !any_nonpositive(all);
  if (chart.y_log) chart.y_label += " (logarithmic)";
}

// --- reading ------------------------------------------------------------------------------------

std::vector<PictureSettings::Range> read_flows(TableReader& table) {
  const std::string text = table.text("flows", "");
  std::vector<PictureSettings::Range> found;
  for (const std::string_view part : split(text, ',')) {
    const std::string_view range = workload::trimmed(part);
    const std::size_t dash = std::min(range.find('-'), range.size());
    const auto first =
        workload::parse_number<std::uint32_t>(workload::trimmed(range.substr(0, dash)));
    const auto last =
        dash == range.size()
            ? first
            : workload::parse_number<std::uint32_t>(workload::trimmed(range.substr(dash + 1)));
    if (!first || !last || *first > *last) {
      table.wrong("flows", "must be flows, as flows.csv numbers them, such as \"0-3, 8\"");
      return {};
    }
    found.push_back({*first, *last});
  }
  return found;
}

void check_show(TableReader& table, const PictureSettings& picture) {
  const auto [name, kind] = name_and_kind(picture.show);
  const bool of_flows = flow_figure(name) != nullptr;
  switch (picture.kind) {
    case Kind::cdf:
      if (!of_flows || !kind.empty()) {
        table.wrong("show", fmt::format("with \"cdf\" must be {}", flow_figure_list));
      }
      return;
    case Kind::progress:
      if (table.has("show")) table.wrong("show", "goes with the other kinds of pictures");
      return;
    case Kind::over_time:
      if (picture.show != "rate_gbps" && picture.show != "queue_bytes") {
        table.wrong("show", "with \"over-time\" must be rate_gbps or queue_bytes");
      }
      return;
    case Kind::by_size:
    case Kind::bars:
      break;
  }
  if (of_flows && statistic(kind) == nullptr) {
    table.wrong("show", fmt::format("needs .min, .median, .p99 or .max after \"{}\"", name));
  } else if (!of_flows && picture.kind == Kind::by_size) {
    table.wrong("show", fmt::format("with \"by-size\" must be one of {}, with .min, .median, .p99 "
                                    "or .max",
                                    flow_figure_list));
  } else if (!of_flows && !picture.flows.empty()) {
    table.wrong("flows", fmt::format("needs a figure of flows: show = {}", flow_figure_list));
  }
}

}  // namespace

PictureSettings read_picture(TableReader table, const std::vector<Variant>& variants) {
  PictureSettings picture;
  picture.file = table.findings().file();
  picture.kind = table.choice("kind", kind_names, Kind::bars);
  picture.show = table.text("show", show_defaults[static_cast<std::size_t>(picture.kind)]);
  picture.label = table.text("label", "");
  picture.scale = table.choice("scale", scale_names, Scale::automatic);
  picture.variants = table.texts("variants", {});
  for (const std::string& name : picture.variants) {
    if (std::ranges::find(variants, name, &Variant::name) == variants.end()) {
      table.wrong("variants", fmt::format("there is no variant \"{}\"", name));
    }
  }
  picture.flows = read_flows(table);
  picture.link = table.texts("link", {});
  if (picture.kind != Kind::over_time) {
    if (table.has("link")) table.wrong("link", "goes with \"over-time\"");
  } else if (picture.link.size() != 2) {
    table.wrong("link", "is needed, two nodes: link = [\"switch 0\", \"host 1\"]");
  }
  check_show(table, picture);
  table.finish();
  return picture;
}

Result<Chart> draw(const Scenario& scenario, const std::vector<Outcome>& outcomes) {
  const PictureSettings& picture = scenario.picture();
  std::vector<const Outcome*> shown;
  for (const Outcome& outcome : outcomes) {
    if (picture.variants.empty() ||
        std::ranges::find(picture.variants, outcome.variant) != picture.variants.end()) {
      shown.push_back(&outcome);
    }
  }
  Chart chart;
  chart.title = scenario.title();
  switch (picture.kind) {
    case Kind::bars:
      draw_bars(picture, shown, chart);
      break;
    case Kind::cdf:
      draw_cdf(picture, shown, chart);
      break;
    case Kind::by_size:
      draw_by_size(picture, shown, chart);
      break;
    case Kind::progress:
      draw_progress(picture, shown, chart);
      break;
    case Kind::over_time:
      draw_over_time(picture, shown, chart);
      break;
  }
  const bool is_empty =
      std::ranges::all_of(chart.series, [](const Series& series) { return series.points.empty(); });
  if (is_empty && picture.kind == Kind::over_time) {
    return Error{
        fmt::format("{}: picture.link: there are no samples from \"{}\" to \"{}\": see the "
                    "table [report]",
                    picture.file, picture.link[0], picture.link[1])};
  }
  // If no flow is done, figures of flows do not exist yet. The chart says so beside the place of
  // the bars.
  const bool of_flows =
      picture.kind != Kind::bars || flow_figure(name_and_kind(picture.show).first);
  if (is_empty && !of_flows) {
    return Error{fmt::format("{}: picture.show: no variant has a figure \"{}\"", picture.file,
                             picture.show)};
  }
  return chart;
}

}  // namespace tulle::scenario
