#include "study/experiment/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "fabric/topology.h"

namespace tulle::experiment {
namespace {

constexpr std::uint32_t rows_max = 16;     // of all jobs, and one at least for each
constexpr std::int64_t spans_max = 1'000;  // of a rank, phase and kind

// Adds a job's phases on `rows_most` of its ranks. Spans that are apart by less than `gap` are
// joined.
void add_spans(const workload::TaskPlayer& tasks, std::uint32_t rows_most, Time gap,
               report::Spans& spans) {
  const workload::Job& job = tasks.job();
  // Phases of one name are one phase in all jobs.
  std::vector<std::uint32_t> phase_of;
  for (const std::string& phase : job.graph.phases()) {
    const auto found = std::ranges::find(spans.phases, phase);
    phase_of.push_back(static_cast<std::uint32_t>(found - spans.phases.begin()));
    if (found == spans.phases.end()) spans.phases.push_back(phase);
  }
  const std::uint32_t ranks = job.graph.ranks();
  const std::uint32_t rows = std::min(ranks, rows_most);
  const auto first_row = static_cast<std::uint32_t>(spans.rows.size());
  std::vector<std::int32_t> row_of(ranks, -1);
  for (std::uint32_t row = 0; row < rows; ++row) {
    const auto rank = static_cast<std::uint32_t>(std::uint64_t{row} * ranks / rows);
    row_of[rank] = static_cast<std::int32_t>(first_row + row);
    spans.rows.push_back(fmt::format("{}{}GPU {}", job.name, job.name.empty() ? "" : ", ", rank));
  }
  std::map<std::tuple<std::uint32_t, std::uint32_t, bool>, std::vector<std::pair<Time, Time>>> all;
  for (workload::TaskGraph::Index i = 0; i < job.graph.size(); ++i) {
    const workload::Task& task = job.graph[i];
    const workload::TaskResult& result = tasks.results()[i];
    if (row_of[task.rank] < 0 || result.start.is_never()) continue;
    const bool is_arrival =
        !job.requests.empty() && task.processor == workload::Request::arrivals_processor;
    if (is_arrival) continue;
    Time end = task.is_message() ? result.arrived : result.end;
    if (end.is_never()) end = tasks.end();
    if (end <= result.start) continue;
    all[{static_cast<std::uint32_t>(row_of[task.rank]), phase_of[task.phase], task.is_message()}]
        .emplace_back(result.start, end);
  }
  for (auto& [key, times] : all) {
    const auto [row, phase, is_message] = key;
    std::ranges::sort(times);
    report::Span span{row, phase, times.front().first, times.front().second, is_message};
    for (const auto& [start, end] : times) {
      if (start > span.end + gap) {
        spans.spans.push_back(span);
        span.start = start;
        span.end = end;
      }
      span.end = std::max(span.end, end);
    }
    spans.spans.push_back(span);
  }
}

// Returns two moments as one, of both times or of both's nodes.
report::Moment together(const report::Moment& a, const report::Moment& b) {
  return {a.bytes_sent + b.bytes_sent,
          std::max(a.queue_bytes, b.queue_bytes),
          sum_or_never(a.paused, b.paused),
          a.credit_stalls + b.credit_stalls,
          a.marked + b.marked,
          a.dropped + b.dropped};
}

}  // namespace

// A moment in the middle of a round would cut it, so that all nodes are fetched from memory once
// more.
TimelineSampler::TimelineSampler(const fabric::Topology& topology, Time round)
    : topology_(&topology) {
  timeline_.interval = std::max(round, Time::nanoseconds(100));
  next_ = timeline_.interval;
}

report::Moment TimelineSampler::totals(const sim::Network& network) const {
  report::Moment total;
  for (std::uint32_t node = 0; node < topology_->nodes(); ++node) {
    if (!network.owns(node)) continue;
    const bool is_host = topology_->is_host(node);
    for (std::uint16_t number = 0; number < topology_->ports[node]; ++number) {
      const port::Port& port = network.port_at(node, number);
      const port::Counters& counters = port.counters();
      if (is_host) {
        total.bytes_sent += counters.bytes;
      } else {
        total.queue_bytes = std::max(total.queue_bytes, port.queue_bytes());
      }
      total.paused = sum_or_never(total.paused, Time{counters.paused_ps});
      total.credit_stalls += counters.credit_stalls;
      total.marked += counters.marked;
      total.dropped += counters.dropped;
    }
  }
  return total;
}

void TimelineSampler::take(const sim::Network& network) {
  const report::Moment total = totals(network);
  timeline_.moments.push_back({total.bytes_sent - before_.bytes_sent, total.queue_bytes,
                               total.paused - before_.paused,
                               total.credit_stalls - before_.credit_stalls,
                               total.marked - before_.marked, total.dropped - before_.dropped});
  before_ = total;
  if (timeline_.moments.size() == report::Timeline::moments_max) halve();
  next_ = next_ + timeline_.interval;
}

// Joins moments by twos, and takes half as many from now on.
void TimelineSampler::halve() {
  std::vector<report::Moment>& moments = timeline_.moments;
  for (std::size_t i = 0; i + 1 < moments.size(); i += 2) {
    moments[i / 2] = together(moments[i], moments[i + 1]);
  }
  moments.resize(moments.size() / 2);
  timeline_.interval = timeline_.interval + timeline_.interval;
}

bool TimelineSampler::add(const std::vector<report::Moment>& others) {
  std::vector<report::Moment>& moments = timeline_.moments;
  if (others.size() != moments.size()) return false;
  for (std::size_t i = 0; i < others.size(); ++i) moments[i] = together(moments[i], others[i]);
  return true;
}

report::Spans spans_of(const workload::JobsPlayer& jobs) {
  report::Spans spans;
  const auto count = static_cast<std::uint32_t>(jobs.size());
  const Time gap = Time{jobs.end().ps / spans_max};
  for (std::uint32_t job = 0; job < count; ++job) {
    add_spans(jobs[job], std::max(rows_max / count, 1u), gap, spans);
  }
  return spans;
}

}  // namespace tulle::experiment
