#include "study/workload/distribution.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "study/workload/csv.h"

namespace tulle::workload {
namespace {

constexpr double bytes_max = 0x1p53;  // above, a double skips whole numbers

// The points are those that public simulators use for the two studies (traffic_gen/ of HPCC's
// repository, github.com/alibaba-edu/High-Precision-Congestion-Control), so that results compare.
constexpr SizeDistribution::Point web_search_points[] = {
    {0, 0},      {10e3, 15}, {20e3, 20}, {30e3, 30}, {50e3, 40}, {80e3, 53},
    {200e3, 60}, {1e6, 70},  {2e6, 80},  {5e6, 90},  {10e6, 97}, {30e6, 100},
};
constexpr SizeDistribution::Point hadoop_points[] = {
    {0, 0},     {100, 1},    {200, 2},    {300, 5},    {350, 15}, {400, 20},   {500, 30},
    {600, 40},  {700, 50},   {1e3, 60},   {2e3, 67},   {7e3, 70}, {30e3, 72},  {50e3, 82},
    {80e3, 87}, {120e3, 90}, {300e3, 95}, {1e6, 97.5}, {2e6, 99}, {10e6, 100},
};

// Returns why `point` cannot follow `before` (if null, why it cannot be the first), or nothing if
// it can.
std::optional<std::string> fault_of(const SizeDistribution::Point& point,
                                    const SizeDistribution::Point* before) {
  if (!(point.bytes >= 0 && point.bytes <= bytes_max)) {
    return "a size must be between 0 and 2^53 bytes";
  }
  if (!(point.cumulative_percent >= 0 && point.cumulative_percent <= 100)) {
    return "a cumulative percentage must be between 0 and 100";
  }
  if (before == nullptr) return std::nullopt;
  if (point.bytes < before->bytes) return "the size falls; sort the points by size";
  if (point.cumulative_percent < before->cumulative_percent) {
    return "the percentage falls; give percentages cumulatively, 100 last";
  }
  return std::nullopt;
}

// Returns why the points are not a whole distribution, or nothing if they are.
std::optional<std::string> fault_of_end(const std::vector<SizeDistribution::Point>& points) {
  if (points.empty()) return "there are no points; give lines of bytes,cumulative percent";
  if (points.back().cumulative_percent != 100) {
    return "the last point must be at 100 percent";
  }
  if (points.back().bytes < 1) return "the largest size must be at least 1 byte";
  return std::nullopt;
}

}  // namespace

Result<SizeDistribution> SizeDistribution::fixed(std::uint64_t bytes) {
  return from_points({{static_cast<double>(bytes), 100}});
}

Result<SizeDistribution> SizeDistribution::from_points(std::vector<Point> points) {
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (const auto fault = fault_of(points[i], i == 0 ? nullptr : &points[i - 1])) {
      return Error{"sizes: point " + std::to_string(i) + ": " + *fault};
    }
  }
  if (const auto fault = fault_of_end(points)) return Error{"sizes: " + *fault};
  return SizeDistribution(std::move(points));
}

Result<SizeDistribution> SizeDistribution::from_csv(std::string_view text, std::string_view file) {
  std::vector<Point> points;
  CsvReader reader(text, file);
  bool first = true;
  while (reader.next()) {
    const auto& fields = reader.fields();
    if (std::exchange(first, false) && !fields.empty() && !parse_real(fields[0])) continue;
    if (fields.size() != 2) return reader.error("two columns are needed: bytes,cumulative percent");
    Point point;
    for (const auto& [field, out] :
         {std::pair(fields[0], &point.bytes), std::pair(fields[1], &point.cumulative_percent)}) {
      const auto number = parse_real(field);
      if (!number) return reader.error(quoted(field) + " is not a number");
      *out = *number;
    }
    if (const auto fault = fault_of(point, points.empty() ? nullptr : &points.back())) {
      return reader.error(*fault);
    }
    points.push_back(point);
  }
  if (const auto fault = fault_of_end(points)) return reader.error(*fault);
  return SizeDistribution(std::move(points));
}

SizeDistribution SizeDistribution::web_search() {
  return SizeDistribution({std::begin(web_search_points), std::end(web_search_points)});
}

SizeDistribution SizeDistribution::hadoop() {
  return SizeDistribution({std::begin(hadoop_points), std::end(hadoop_points)});
}

SizeDistribution::SizeDistribution(std::vector<Point> points) : points_(std::move(points)) {
  mean_bytes_ = points_[0].bytes * points_[0].cumulative_percent / 100;
  for (std::size_t i = 1; i < points_.size(); ++i) {
    const double share = (points_[i].cumulative_percent - points_[i - 1].cumulative_percent) / 100;
    mean_bytes_ += share * (points_[i - 1].bytes + points_[i].bytes) / 2;
  }
}

std::uint64_t SizeDistribution::sample(Random& random) const {
  const double percent = random.unit() * 100;
  const auto end = std::upper_bound(
      points_.begin(), points_.end(), percent,
      [](double value, const Point& point) { return value < point.cumulative_percent; });
  const Point& above = end == points_.end() ? points_.back() : *end;
  double bytes = above.bytes;
  if (end != points_.begin() && end != points_.end()) {
    const Point& below = *std::prev(end);
    const double share = (percent - below.cumulative_percent) /
                         (above.cumulative_percent - below.cumulative_percent);
    bytes = below.bytes + share * (above.bytes - below.bytes);
  }
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::llround(bytes)));
}

}  // namespace tulle::workload
