#include "study/report/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

namespace tulle::report {

namespace {

using PictureKind = PictureSettings::Kind;
using Scale = PictureSettings::Scale;

// --- figures of flows ---------------------------------------------------------------------------

struct FlowFigure {
  std::string_view name;
  std::string_view axis;
  std::optional<double> (*of)(const Flow&);
};

std::optional<double> completion_us(const Flow& flow) {
  if (!flow.is_done()) return {};
  return static_cast<double>(flow.taken().ps) * 1e-6;
}
std::optional<double> slowdown(const Flow& flow) {
  if (!flow.is_done()) return {};
  return flow.slowdown;
}
std::optional<double> latency_us(const Flow& flow) {
  if (!flow.has_arrived()) return {};
  return static_cast<double>(flow.latency().ps) * 1e-6;
}
std::optional<double> rate_gbps(const Flow& flow) {
  if (!flow.is_done()) return {};
  return static_cast<double>(flow.bytes) * 8e3 / static_cast<double>(flow.taken().ps);
}

constexpr std::array<FlowFigure, 4> flow_figures = {
    FlowFigure{"fct_us", "flow completion time, us", completion_us},
    {"slowdown", "slowdown against an empty network", slowdown},
    {"latency_us", "time one way, us", latency_us},
    {"rate_gbps", "a flow's rate, Gb/s", rate_gbps}};

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

const Statistic* statistic(std::string_view name) {
  const auto* found = std::ranges::find(statistics, name, &Statistic::name);
  return found == statistics.end() ? nullptr : &*found;
}

bool is_shown(const PictureSettings& picture, std::size_t flow) {
  return picture.flows.empty() || std::ranges::any_of(picture.flows, [flow](const auto& range) {
           return flow >= range.first && flow <= range.last;
         });
}

std::vector<const Flow*> shown_flows(const PictureSettings& picture, const Outcome& outcome) {
  std::vector<const Flow*> flows;
  for (std::size_t i = 0; i < outcome.flows.size(); ++i) {
    if (is_shown(picture, i)) flows.push_back(&outcome.flows[i]);
  }
  return flows;
}

std::vector<double> values(const std::vector<const Flow*>& flows, const FlowFigure& figure) {
  std::vector<double> found;
  for (const Flow* flow : flows) {
    if (const auto value = figure.of(*flow)) found.push_back(*value);
  }
  return found;
}

// Returns "8 of 16 done", or "" if all flows are done.
std::string note(const std::vector<const Flow*>& flows) {
  const auto done = std::ranges::count_if(flows, [](auto* flow) { return flow->is_done(); });
  if (static_cast<std::size_t>(done) == flows.size()) return "";
  return done == 0 ? "none done" : fmt::format("{} of {} done", done, flows.size());
}

// --- words --------------------------------------------------------------------------------------

struct UnitWords {
  std::string_view suffix;
  std::string_view words;
};
constexpr std::array<UnitWords, 4> units = {
    UnitWords{"_us", ", us"}, {"_gbps", ", Gb/s"}, {"_bytes", ", bytes"}, {"_percent", ", %"}};

// Returns the words for a figure without its own: its name and unit.
std::string words_of(std::string name) {
  std::string_view unit;
  for (const UnitWords& known : units) {
    if (!name.ends_with(known.suffix)) continue;
    name.resize(name.size() - known.suffix.size());
    unit = known.words;
    break;
  }
  std::ranges::replace(name, '_', ' ');
  return name.append(unit);
}

using Outcomes = std::vector<const Outcome*>;

// Returns the figure of a variant that summary.json has by this name, or null if no variant has it.
const Figure* find_figure(const Outcomes& outcomes, std::string_view name) {
  for (const Outcome* outcome : outcomes) {
    if (const Measured* found = find(*outcome, name)) return found->figure;
  }
  return nullptr;
}

// Returns the label of the axis that shows the figure.
std::string label_of(const PictureSettings& picture, const Outcomes& outcomes) {
  if (!picture.label.empty()) return picture.label;
  const auto [name, kind] = name_and_kind(picture.show);
  std::string_view known;
  if (const FlowFigure* of_flows = flow_figure(name)) {
    known = of_flows->axis;
  } else if (const Figure* figure = find_figure(outcomes, name)) {
    known = figure->axis;
  }
  std::string words = known.empty() ? words_of(name) : std::string(known);
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
std::optional<double> value_of(const PictureSettings& picture, const Outcome& outcome) {
  const auto [name, kind] = name_and_kind(picture.show);
  if (const FlowFigure* of_flows = flow_figure(name)) {
    std::vector<double> all = values(shown_flows(picture, outcome), *of_flows);
    if (all.empty()) return {};
    return quantiles(std::move(all)).*statistic(kind)->of;
  }
  const Measured* measured = find(outcome, picture.show);
  return measured == nullptr ? std::nullopt : std::optional(rounded(measured->value));
}

void draw_bars(const PictureSettings& picture, const Outcomes& outcomes, Chart& chart) {
  const Figure* shown = find_figure(outcomes, picture.show);
  // The share of a kind of traffic is shown as it is, since its axis has no unit.
  const bool is_share = shown != nullptr && shown->form == Form::per_cent;
  const double factor = is_share && shown->key == picture.show ? 100 : 1;
  chart.kind = Chart::Kind::bars;
  std::vector<double> all;
  for (const Outcome* outcome : outcomes) {
    Series& series = chart.series.emplace_back();
    series.name = outcome->variant;
    series.note = note(shown_flows(picture, *outcome));
    const std::optional<double> value = value_of(picture, *outcome);
    if (!value) continue;
    series.points.push_back({*value * factor, 0});
    all.push_back(*value);
  }
  chart.x_label = label_of(picture, outcomes);
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

void draw_cdf(const PictureSettings& picture, const Outcomes& outcomes, Chart& chart) {
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
  chart.x_label = label_of(picture, outcomes);
  if (chart.x_log) chart.x_label += " (logarithmic)";
  chart.y_is_share = true;
  chart.y_label = "flows with no more, %";
}

// Sorts flows by size into classes of about equal number. Returns the figure of each class at its
// largest size.
std::vector<Point> by_size(std::vector<const Flow*> flows, const FlowFigure& figure,
                           const Statistic& statistic) {
  std::erase_if(flows, [&](const Flow* flow) { return !figure.of(*flow); });
  std::ranges::stable_sort(flows, {}, [](const Flow* flow) { return flow->bytes; });
  // Each class has enough flows for a percentile, if there are enough flows.
  const std::size_t classes = std::clamp<std::size_t>(flows.size() / 100, 5, 20);
  const std::size_t least = std::max<std::size_t>(flows.size() / classes, 1);
  std::vector<Point> points;
  std::vector<const Flow*> own;
  for (std::size_t i = 0; i < flows.size(); ++i) {
    own.push_back(flows[i]);
    const bool last = i + 1 == flows.size();
    const bool ends = last || flows[i + 1]->bytes != flows[i]->bytes;
    if (!ends || (!last && (own.size() < least || flows.size() - i - 1 < least / 2))) continue;
    points.push_back(
        {static_cast<double>(flows[i]->bytes), quantiles(values(own, figure)).*statistic.of});
    own.clear();
  }
  return points;
}

void draw_by_size(const PictureSettings& picture, const Outcomes& outcomes, Chart& chart) {
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
  chart.y_label = label_of(picture, outcomes);
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

void draw_progress(const PictureSettings& picture, const Outcomes& outcomes, Chart& chart) {
  chart.kind = Chart::Kind::steps;
  double last_us = 0;
  for (const Outcome* outcome : outcomes) {
    const auto flows = shown_flows(picture, *outcome);
    std::vector<double> ends_us;
    for (const Flow* flow : flows) {
      if (flow->is_done()) ends_us.push_back(static_cast<double>(flow->end.ps) * 1e-6);
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

void draw_over_time(const PictureSettings& picture, const Outcomes& outcomes, Chart& chart) {
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

}  // namespace

std::pair<std::string, std::string> name_and_kind(const std::string& show) {
  const std::size_t point = std::min(show.find('.'), show.size());
  return {show.substr(0, point), show.substr(std::min(point + 1, show.size()))};
}

bool is_flow_figure(std::string_view name) { return flow_figure(name) != nullptr; }

bool is_statistic(std::string_view name) { return statistic(name) != nullptr; }

Result<Chart> draw(const PictureSettings& picture, const Results& results) {
  Outcomes shown;
  for (const Outcome& outcome : results.outcomes) {
    if (picture.variants.empty() ||
        std::ranges::find(picture.variants, outcome.variant) != picture.variants.end()) {
      shown.push_back(&outcome);
    }
  }
  Chart chart;
  chart.title = results.title;
  switch (picture.kind) {
    case PictureKind::bars:
      draw_bars(picture, shown, chart);
      break;
    case PictureKind::cdf:
      draw_cdf(picture, shown, chart);
      break;
    case PictureKind::by_size:
      draw_by_size(picture, shown, chart);
      break;
    case PictureKind::progress:
      draw_progress(picture, shown, chart);
      break;
    case PictureKind::over_time:
      draw_over_time(picture, shown, chart);
      break;
  }
  const bool is_empty =
      std::ranges::all_of(chart.series, [](const Series& series) { return series.points.empty(); });
  if (is_empty && picture.kind == PictureKind::over_time) {
    return Error{
        fmt::format("{}: picture.link: there are no samples from \"{}\" to \"{}\": see the "
                    "table [report]",
                    picture.file, picture.link[0], picture.link[1])};
  }
  // If no flow is done, figures of flows do not exist yet. The chart says so in the place of the
  // bars.
  const bool of_flows =
      picture.kind != PictureKind::bars || flow_figure(name_and_kind(picture.show).first);
  if (is_empty && !of_flows) {
    return Error{fmt::format("{}: picture.show: no variant has a figure \"{}\"", picture.file,
                             picture.show)};
  }
  return chart;
}

}  // namespace tulle::report
