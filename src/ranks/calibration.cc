#include "ranks/calibration.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "ranks/launch.h"
#include "ranks/median.h"

namespace tulle::ranks {
namespace {

// A collective's buffers do not fit into the processor's caches either.
constexpr std::uint64_t buffer_bytes = 64u << 20;
constexpr std::uint64_t sizes[] = {128u << 10, 512u << 10, 2u << 20, 8u << 20, 16u << 20};
constexpr std::uint32_t rounds = 5;
constexpr std::uint32_t hop_count = 400;

std::uint32_t usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return static_cast<std::uint32_t>(CPU_COUNT(&set));
}

struct Measured {
  double seconds = 0;            // the median of an iteration
  double processor_seconds = 0;  // the same
};

Result<Measured> time(Plan plan, const Group& group) {
  plan.warm_up = 1;
  plan.iterations = 3;
  auto times = run_here(plan, group);
  if (!times) return times.error();
  return Measured{median_of(times->seconds), median_of(times->processor_seconds)};
}

// Fills a buffer's bytes once or more, but not with more messages than that.
std::uint32_t count_of(std::uint64_t bytes) {
  constexpr std::uint64_t most = 512;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(buffer_bytes / bytes, 1, most));
}

// The samples of all rounds of one size.
struct Samples {
  std::vector<double> alone, stored, added;
  std::vector<double> busy;  // cores, while all ranks send
};
Result<void> measure(const Group& group, std::uint32_t ranks, std::uint64_t bytes,
                     Samples& samples) {
  const std::uint32_t count = count_of(bytes);
  auto alone = time(exchange(2, bytes, count, false, false), group);
  if (!alone) return alone.error();
  samples.alone.push_back(alone->seconds / count);
  for (const bool adds : {false, true}) {
    auto all = time(exchange(ranks, bytes, count, adds, true), group);
    if (!all) return all.error();
    (adds ? samples.added : samples.stored).push_back(all->processor_seconds / count / ranks);
    samples.busy.push_back(all->processor_seconds / all->seconds);
  }
  return {};
}

// Derives the parameters from the times.
void derive(Calibration& calibration) {
  std::vector<Point> stored, added;
  for (const SizeTimes& each : calibration.sizes) {
    const auto bytes = static_cast<double>(each.bytes);
    stored.push_back({bytes, each.stored});
    added.push_back({bytes, each.added});
  }
  const Line moves = line_through(stored);
  // Sums that are lost in the noise take a hundredth of the time in which the bytes move.
  const double sum = std::max(line_through(added).slope - moves.slope, moves.slope / 100);
  // A core that does something else for a part of the time takes so much longer.
  calibration.message_work = moves.at_zero / 2 / calibration.share;
  calibration.bytes_per_second = calibration.share / moves.slope;
  calibration.added_bytes_per_second = calibration.share / sum;
  calibration.latency = std::max(calibration.hop - 2 * calibration.message_work, 0.0);
}

}  // namespace

Plan exchange(std::uint32_t ranks, std::uint64_t bytes, std::uint32_t count, bool adds, bool all) {
  Plan plan;
  plan.graph = workload::TaskGraph(ranks);
  plan.buffer_bytes = std::max(buffer_bytes, bytes);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint64_t at = i * bytes % (plan.buffer_bytes - bytes + 1) / 4'096 * 4'096;
    for (std::uint32_t rank = 0; rank < (all ? ranks : 1); ++rank) {
      workload::Task message;
      message.rank = rank;
      message.peer = (rank + 1) % ranks;
      message.bytes = bytes;
      message.reduces = adds;
      plan.graph.add(message);
      plan.pieces.of.push_back({at, at});
    }
  }
  return plan;
}

Plan hops(std::uint32_t ranks, std::uint32_t count) {
  Plan plan;
  plan.graph = workload::TaskGraph(ranks);
  plan.buffer_bytes = 4'096;
  for (std::uint32_t i = 0; i < count; ++i) {
    workload::Task message;
    message.rank = i % ranks;
    message.peer = (i + 1) % ranks;
    message.bytes = 8;
    if (i == 0) {
      plan.graph.add(message);
    } else {
      plan.graph.add(message, {i - 1});
    }
    plan.pieces.of.push_back({});
  }
  return plan;
}

Line line_through(const std::vector<Point>& points) {
  // Each error counts relative to its point, or else the longest messages would count alone.
  double w = 0, wx = 0, wy = 0, wxx = 0, wxy = 0;
  for (const auto& [x, y] : points) {
    const double weight = 1 / (y * y);
    w += weight;
    wx += weight * x;
    wy += weight * y;
    wxx += weight * x * x;
    wxy += weight * x * y;
  }
  Line line;
  line.slope = (w * wxy - wx * wy) / (w * wxx - wx * wx);
  line.at_zero = (wy - line.slope * wx) / w;
  if (line.at_zero < 0) line = {0, wxy / wxx};
  if (line.slope < 0) line = {wy / w, 0};
  return line;
}

Result<Calibration> calibrate(const Group& group, std::uint32_t ranks) {
  Calibration calibration;
  calibration.ranks = ranks;
  calibration.cores = usable_cores();
  std::vector<Samples> samples(std::size(sizes));
  std::vector<double> hop;
  // The machine's other work changes slowly. So each round has a measurement of each kind.
  for (std::uint32_t round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < samples.size(); ++i) {
      auto done = measure(group, ranks, sizes[i], samples[i]);
      if (!done) return done.error();
    }
    auto once = time(hops(ranks, hop_count), group);
    if (!once) return once.error();
    hop.push_back(once->seconds / hop_count);
  }
  for (std::size_t i = 0; i < samples.size(); ++i) {
    calibration.sizes.push_back({sizes[i], median_of(samples[i].alone),
                                 median_of(samples[i].stored), median_of(samples[i].added),
                                 median_of(samples[i].busy)});
  }
  calibration.hop = median_of(hop);
  std::vector<double> busy;
  for (const Samples& each : samples) busy.insert(busy.end(), each.busy.begin(), each.busy.end());
  calibration.share = std::min(median_of(busy) / std::min(calibration.cores, ranks), 1.0);
  derive(calibration);
  return calibration;
}

}  // namespace tulle::ranks
