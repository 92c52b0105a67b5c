#include "study/experiment/gather.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "study/experiment/figures.h"
#include "study/experiment/ideal.h"

namespace tulle::experiment {
namespace {

using report::Flow;
using report::Outcome;
using report::Sheet;
using report::Value;

Time sum(Time a, Time b) { return sum_or_never(a, b); }
std::uint64_t sum(std::uint64_t a, std::uint64_t b) { return a + b; }
double sum(double a, double b) { return a + b; }
report::Rate sum(report::Rate a, report::Rate b) { return {a.bits_per_second + b.bits_per_second}; }

Value sum(const Value& a, const Value& b) {
  return std::visit(
      [&](const auto& value) -> Value {
        return sum(value, std::get<std::remove_cvref_t<decltype(value)>>(b));
      },
      a);
}

double microseconds(Time time) { return static_cast<double>(time.ps) * 1e-6; }

// Summarises flows. Their goodput is that from the start of the first to the end of the last.
FlowsView view_of(std::span<const Flow> flows) {
  FlowsView view;
  view.flows = flows.size();
  std::vector<double> completions, slowdowns;
  Time start = Time::never();
  double bits = 0;
  for (const Flow& flow : flows) {
    start = std::min(start, flow.start);
    if (flow.failed) ++view.failed;
    if (!flow.is_done()) continue;
    ++view.finished;
    view.end = std::max(view.end, flow.end);
    completions.push_back(microseconds(flow.taken()));
    slowdowns.push_back(flow.slowdown);
    view.share_of_ideal += 1 / flow.slowdown;
    bits += static_cast<double>(flow.bytes) * 8;
  }
  if (view.finished == 0) return view;
  view.share_of_ideal /= static_cast<double>(view.finished);
  view.completion_us = report::quantiles(std::move(completions));
  view.slowdown = report::quantiles(std::move(slowdowns));
  view.goodput = {bits / (view.end - start).to_seconds()};
  return view;
}

std::optional<ServingView> serving_of(const workload::TaskPlayer& player) {
  const workload::Job& job = player.job();
  if (job.requests.empty() || !player.is_done()) return {};
  const std::vector<workload::TaskResult>& results = player.results();
  std::vector<double> first_tokens, tokens, caches;
  double waits = 0, ways = 0;
  for (const workload::Request& request : job.requests) {
    const workload::TaskResult& decode = results[request.decode];
    first_tokens.push_back(microseconds(decode.arrived - (job.arrival + request.arrival)));
    caches.push_back(microseconds(decode.start - results[request.prefill].end));
    waits += first_tokens.back();
    ways += caches.back();
    if (request.tokens < 2) continue;
    tokens.push_back(microseconds(decode.end - decode.arrived) / (request.tokens - 1));
  }
  return ServingView{report::quantiles(std::move(first_tokens)),
                     report::quantiles(std::move(tokens)), report::quantiles(std::move(caches)),
                     ways / waits};
}

// A checkpoint's cost is what the steps take longer than as many first ones.
std::optional<TrainingView> training_of(const workload::TaskPlayer& player) {
  const workload::Job& job = player.job();
  if (job.step_ends.empty() || !player.is_done()) return {};
  TrainingView view;
  view.step = player.end_of(job.step_ends.front()) - job.arrival;
  if (job.checkpoints.empty()) return view;
  const auto count = static_cast<std::int64_t>(job.checkpoints.size());
  const auto steps = static_cast<std::int64_t>(job.step_ends.size());
  std::int64_t taken = 0;
  for (const workload::TaskRange& each : job.checkpoints) {
    taken += (player.end_of(each) - player.begin_of(each)).ps;
  }
  const Time all = player.end_of(job.step_ends.back()) - job.arrival;
  view.checkpoint = Time{taken / count};
  view.cost = Time{(all.ps - steps * view.step.ps) / count};
  view.checkpoint_bytes = job.checkpoint_bytes;
  return view;
}

JobView view_of(const scenario::Setup& setup, const workload::JobsPlayer& jobs,
                std::size_t number) {
  const workload::TaskPlayer& player = jobs[number];
  const workload::Job& job = player.job();
  JobView view;
  view.tasks = job.graph.size();
  if (player.is_done()) view.taken = player.end() - job.arrival;
  view.computation = job.computation;
  view.bandwidth = job.bandwidth;
  view.method = job.method;
  view.serving = serving_of(player);
  view.training = training_of(player);
  if (!setup.alone.empty()) view.alone = setup.alone[number];
  return view;
}

std::optional<report::Method> name_of(const std::optional<workload::Method>& method) {
  if (!method) return {};
  return report::Method{workload::name_of(method->algorithm),
                        workload::protocol_names[static_cast<std::size_t>(method->protocol)]};
}

// Returns what is known of all jobs together. A job that is the only one is all.
JobView view_of_jobs(const scenario::Setup& setup, const workload::JobsPlayer* jobs) {
  if (jobs == nullptr) return {};
  if (jobs->size() == 1) return view_of(setup, *jobs, 0);
  JobView view;
  for (std::size_t job = 0; job < jobs->size(); ++job) {
    view.tasks += (*jobs)[job].job().graph.size();
  }
  if (jobs->is_done()) view.taken = jobs->end();
  return view;
}

RunView view_of(const Remains& remains, std::span<const Flow> flows) {
  std::vector<double> latencies;
  for (const Flow& flow : flows) {
    if (flow.has_arrived()) latencies.push_back(microseconds(flow.latency()));
  }
  const std::uint64_t arrivals = latencies.size();
  return {remains.setup, remains.measured, remains.player, arrivals,
          report::quantiles(std::move(latencies))};
}

// Returns the value of the row for this source, or nothing if the row reads another kind of source.
template <typename Source>
std::optional<Value> read(const Row& row, const Source& source) {
  if (const auto* reader = std::get_if<Reader<Source>>(&row.read)) return (*reader)(source);
  return {};
}

std::optional<Value> read(const Row& row, const RunView& run) {
  if (const auto* reader = std::get_if<RunReader>(&row.read)) return (*reader)(run);
  return {};
}

std::optional<Value> read(const Row& row, const scenario::Setup& setup) {
  if (const auto* reader = std::get_if<SetupReader>(&row.read)) return (*reader)(setup);
  return {};
}

std::optional<Value> read(const Row& row, const FlowLevelView& level) {
  if (const auto* reader = std::get_if<FlowLevelReader>(&row.read)) return (*reader)(level);
  return {};
}

std::optional<Value> read(const Row& row, const JobView& job) {
  if (const auto* reader = std::get_if<JobReader>(&row.read)) return (*reader)(job);
  return {};
}

// Returns true if a run of the setup has the row's figure.
bool has(const Row& row, const scenario::Setup& setup) {
  const sim::NetworkSettings& network = setup.network;
  switch (row.when) {
    case When::with_faults:
      return network.faults.any() || network.switches.watchdog > Time::zero();
    case When::with_stacks:
      return network.host.stack.cores > 0;
    case When::with_prices:
      return setup.price.has_value();
    case When::with_jobs:
      return !setup.jobs.empty();
    case When::always:
    case When::not_zero:
    case When::at_flow_level:
      break;
  }
  return true;
}

// A flow begins with the first of its parts and is done with the last.
Flow flow_of(const FlowRemains& remains, std::uint32_t first, std::uint32_t end) {
  const scenario::Setup& setup = remains.setup;
  const workload::Flow& part = setup.flows[first];
  Flow flow;
  flow.source = part.source / setup.topology.planes;
  flow.destination = part.destination / setup.topology.planes;
  flow.end = flow.arrived = Time::zero();
  for (std::uint32_t i = first; i < end; ++i) {
    const workload::FlowResult& result = remains.results[i];
    flow.bytes += setup.flows[i].bytes;
    flow.start = std::min(flow.start, result.start);
    flow.end = std::max(flow.end, result.end);
    flow.arrived = std::max(flow.arrived, result.arrived);
    if (result.status != verbs::CompletionStatus::success) flow.failed = true;
  }
  return flow;
}

std::vector<Flow> flows_of(const FlowRemains& remains) {
  const scenario::Setup& setup = remains.setup;
  IdealTimes ideals(setup.topology, remains.wiring, remains.routes, setup.network,
                    setup.player.transport);
  const std::vector<std::uint32_t>& first = setup.first_parts;
  std::vector<Flow> flows;
  for (std::size_t i = 0; i + 1 < first.size(); ++i) {
    Flow& flow = flows.emplace_back(flow_of(remains, first[i], first[i + 1]));
    if (!flow.is_done()) continue;
    // Parts in several planes share no link, and the first one is the longest.
    workload::Flow whole = setup.flows[first[i]];
    if (setup.topology.planes == 1) whole.bytes = flow.bytes;
    const Time ideal = ideals.of(whole) + setup.player.post_delay_of(whole.source) +
                       setup.player.completion_delay_of(whole.source);
    flow.slowdown = static_cast<double>(flow.taken().ps) / static_cast<double>(ideal.ps);
  }
  return flows;
}

// Adds the flows of each kind to an outcome that has its flows. If there are jobs, each is a kind.
void add_kinds(const scenario::Setup& setup, const workload::JobsPlayer* jobs, Outcome& outcome) {
  const std::vector<scenario::TrafficKind>& kinds = setup.kinds;
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    const std::size_t first = kinds[kind].first_message;
    const std::size_t last =
        kind + 1 < kinds.size() ? kinds[kind + 1].first_message : outcome.flows.size();
    outcome.kind_of.resize(last, static_cast<std::uint32_t>(kind));
    const FlowsView view = view_of(std::span(outcome.flows).subspan(first, last - first));
    report::Kind& of_kind = outcome.kinds.emplace_back();
    of_kind.name = kinds[kind].name;
    const JobView job = jobs == nullptr ? JobView() : view_of(setup, *jobs, kind);
    of_kind.method = name_of(job.method);
    for (const Row& row : rows()) {
      if (!has(row, setup)) continue;
      std::optional<Value> value = read(row, view);
      if (!value) value = read(row, job);
      if (value) of_kind.figures.push_back({&row.figure, *value});
    }
  }
}

bool is_zero(const Value& value) { return report::exact(value) == 0; }

// Shows each part of the network to the rows of the table that are measured for such a part.
class Gathering {
 public:
  explicit Gathering(const Remains& remains) : remains_(remains) {
    for (const Row& row : rows()) {
      if (has(row, remains.setup)) slots_.push_back({&row});
    }
    for (Slot& slot : slots_) slot.adds_to = place_of_total(*slot.row);
  }

  Outcome outcome() && {
    outcome_.variant = remains_.setup.variant;
    gather_flows();
    gather_kinds();
    gather_links();
    gather_hosts();
    gather_run();
    return std::move(outcome_);
  }

 private:
  void gather_flows();
  void gather_kinds();
  void gather_links();
  void gather_hosts();
  void gather_run();

  // A row of the table that this run has.
  struct Slot {
    const Row* row;
    std::size_t adds_to = 0;  // place of the slot to whose total the values are added
    std::optional<Value> total = {};
  };

  std::size_t place_of_total(const Row& row) const;
  std::vector<const report::Figure*> figures(bool (*is_of)(const Row&)) const;
  void add_to_total(const Slot& from, const Value& value);
  // Reads all rows of these sources, adds the values to the totals, and returns those of the rows
  // for which `is_of` holds.
  template <typename... Sources>
  std::vector<Value> measure(bool (*is_of)(const Row&), const Sources&... sources);

  const Remains& remains_;
  Outcome outcome_;
  FlowsView all_;
  std::vector<Slot> slots_;
};

// Returns the place of the run's figure that has the row's total.
std::size_t Gathering::place_of_total(const Row& row) const {
  const std::string_view key = row.adds_to.empty() ? row.figure.key : row.adds_to;
  const auto found = std::ranges::find_if(slots_, [&](const Slot& slot) {
    return is_of_run(*slot.row) && slot.row->figure.key == key;
  });
  return static_cast<std::size_t>(found - slots_.begin());
}

std::vector<const report::Figure*> Gathering::figures(bool (*is_of)(const Row&)) const {
  std::vector<const report::Figure*> figures;
  for (const Slot& slot : slots_) {
    if (is_of(*slot.row)) figures.push_back(&slot.row->figure);
  }
  return figures;
}

void Gathering::add_to_total(const Slot& from, const Value& value) {
  if (from.row->total == Total::none) return;
  std::optional<Value>& total = slots_[from.adds_to].total;
  if (total && from.row->total == Total::sum) {
    total = sum(*total, value);
  } else if (!total || report::exact(value) > report::exact(*total)) {
    total = value;
  }
}

template <typename... Sources>
std::vector<Value> Gathering::measure(bool (*is_of)(const Row&), const Sources&... sources) {
  std::vector<Value> values;
  for (const Slot& slot : slots_) {
    std::optional<Value> value;
    ((value = value ? value : read(*slot.row, sources)), ...);
    if (!value) continue;
    add_to_total(slot, *value);
    if (is_of(*slot.row)) values.push_back(*value);
  }
  return values;
}

void Gathering::gather_flows() {
  outcome_.flows =
      flows_of({remains_.setup, remains_.wiring, remains_.routes, remains_.player.results()});
  all_ = view_of(outcome_.flows);
  // Flows that are not done count with the bytes that were acknowledged.
  if (all_.end > Time::zero()) {
    all_.goodput = {static_cast<double>(remains_.player.bytes_done()) * 8 / all_.end.to_seconds()};
  }
}

void Gathering::gather_kinds() { add_kinds(remains_.setup, remains_.jobs, outcome_); }

void Gathering::gather_links() {
  const fabric::Topology& topology = remains_.setup.topology;
  outcome_.links = {{"from", "port", "to"}, figures(is_of_links), {}};
  for (std::uint32_t node = 0; node < topology.nodes(); ++node) {
    for (std::uint16_t port = 0; port < topology.ports[node]; ++port) {
      const auto& peer = remains_.wiring.peer(node, port);
      if (peer.link == fabric::Wiring::no_link) continue;
      const port::Counters& counters = remains_.measured.port(node, port);
      const LinkView view{counters, topology.links[peer.link].bits_per_second, all_.end};
      outcome_.links.rows.push_back(
          {{topology.name(node), std::to_string(port), topology.name(peer.node)},
           measure(is_of_links, counters, view)});
    }
    if (!topology.is_host(node)) measure(is_of_links, remains_.measured.at_switch(node));
  }
}

void Gathering::gather_hosts() {
  const bool has_stacks = remains_.setup.network.host.stack.cores > 0;
  if (has_stacks) outcome_.hosts = Sheet{{"host"}, figures(is_of_hosts), {}};
  for (std::uint32_t host = 0; host < remains_.setup.topology.hosts; ++host) {
    const device::Counters& counters = remains_.measured.host(host);
    measure(is_of_hosts, counters, counters.transport);
    if (!has_stacks) continue;
    const device::HostStack::Counters of_stack = remains_.measured.stack(host);
    outcome_.hosts->rows.push_back(
        {{remains_.setup.topology.name(host)}, measure(is_of_hosts, of_stack)});
  }
}

void Gathering::gather_run() {
  const RunView run = view_of(remains_, outcome_.flows);
  const JobView jobs = view_of_jobs(remains_.setup, remains_.jobs);
  outcome_.method = name_of(jobs.method);
  for (const auto& [row, adds_to, total] : slots_) {
    if (!is_of_run(*row)) continue;
    std::optional<Value> value = total;
    if (!value) value = read(*row, run);
    if (!value) value = read(*row, remains_.setup);
    if (!value) value = read(*row, jobs);
    if (!value) value = read(*row, all_);
    if (!value || (row->when == When::not_zero && is_zero(*value))) continue;
    const bool of_simulator = row->listing == Listing::simulator;
    (of_simulator ? outcome_.simulator : outcome_.figures).push_back({&row->figure, *value});
  }
}

}  // namespace

report::Outcome gather(const Remains& remains) { return Gathering(remains).outcome(); }

report::Outcome gather_flows(const FlowRemains& remains, const FlowLevelView& level) {
  Outcome outcome;
  outcome.variant = remains.setup.variant;
  outcome.flows = flows_of(remains);
  add_kinds(remains.setup, remains.jobs, outcome);
  const JobView jobs = view_of_jobs(remains.setup, remains.jobs);
  outcome.method = name_of(jobs.method);
  const FlowsView all = view_of(outcome.flows);
  for (const Row& row : rows()) {
    if (!has(row, remains.setup)) continue;
    std::optional<Value> value = read(row, remains.setup);
    if (!value) value = read(row, jobs);
    if (!value) value = read(row, all);
    if (!value) value = read(row, level);
    if (!value || (row.when == When::not_zero && is_zero(*value))) continue;
    const bool of_simulator = row.listing == Listing::simulator;
    (of_simulator ? outcome.simulator : outcome.figures).push_back({&row.figure, *value});
  }
  return outcome;
}

}  // namespace tulle::experiment
