#pragma once

// The table of all that a run measures, one row for each figure. JSON, CSV, the tables and the
// pictures have it from here.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <variant>

#include "base/time.h"
#include "rdma/device/adapter.h"
#include "rdma/optional/host_stack.h"
#include "rdma/transport/counters.h"
#include "study/experiment/measured.h"
#include "study/report/figure.h"
#include "study/report/outcome.h"
#include "study/scenario/setup.h"
#include "study/workload/job.h"
#include "study/workload/player.h"

namespace tulle::experiment {

// All flows of a run together, or those of one kind.
struct FlowsView {
  std::uint64_t flows = 0;
  std::uint64_t finished = 0;
  std::uint64_t failed = 0;
  Time end;  // end of the last flow
  report::Quantiles completion_us;
  report::Quantiles slowdown;
  double share_of_ideal = 0;  // mean over finished flows of 1 / slowdown
  report::Rate goodput;
};

// One direction of a link.
struct LinkView {
  const port::Counters& counters;
  std::int64_t bits_per_second;
  Time end;  // end of the run's last flow
};

// The requests to a model that is served, if all of them were answered.
struct ServingView {
  report::Quantiles first_token_us;  // from a request's arrival to its first token
  report::Quantiles token_us;        // time for each token after the first one
  report::Quantiles cache_us;        // while its keys and values were on their way
  double cache_share = 0;            // of the times to the first tokens
};

// These are the times of a training's steps and checkpoints, if all of them were done.
struct TrainingView {
  Time step;                       // the first step, before any checkpoint
  std::optional<Time> checkpoint;  // from the first command to the last completion; a mean
  Time cost;                       // by how much a checkpoint makes the steps longer; a mean
  std::uint64_t checkpoint_bytes = 0;
};

// A job, or all jobs of a run together.
struct JobView {
  std::uint64_t tasks = 0;
  // From the job's arrival until its last task was done; of all jobs, from the beginning of the
  // run. Nothing if some tasks were not done.
  std::optional<Time> taken;
  Time computation;  // the time without communication; zero if that means nothing
  std::optional<workload::Bandwidth> bandwidth;
  std::optional<workload::Method> method;
  std::optional<ServingView> serving;
  std::optional<Time> alone;  // the job's time in a run in which it was alone
  std::optional<TrainingView> training;
};

// A run at flow level.
struct FlowLevelView {
  // Bytes of flows as a share of what the hosts' links carry while they begin; nothing: they begin
  // at once.
  std::optional<double> offered_load;
  std::uint64_t bottleneck_flows = 0;  // the most flows that had one bottleneck at a time
  // The greatest error of the mean slowdown that was measured for such runs, as a share of it.
  std::optional<double> slowdown_error;
  std::optional<double> time_error;  // likewise of the time of a job
};

struct RunView {
  const scenario::Setup& setup;
  const Measured& measured;
  const workload::Player& player;
  std::uint64_t arrivals;        // flows whose receivers were told
  report::Quantiles latency_us;  // one-way times of those flows
};

// The source of a row says for what the figure is measured.
template <typename Source>
using Reader = report::Value (*)(const Source&);
// Nothing means that this run does not have the figure.
using RunReader = std::optional<report::Value> (*)(const RunView&);
// Likewise of what is known without a run.
using SetupReader = std::optional<report::Value> (*)(const scenario::Setup&);
// Likewise of a run at flow level.
using FlowLevelReader = std::optional<report::Value> (*)(const FlowLevelView&);
// Likewise of a job.
using JobReader = std::optional<report::Value> (*)(const JobView&);
using Read = std::variant<Reader<FlowsView>, Reader<port::Counters>, Reader<LinkView>,
                          Reader<SwitchCounters>, Reader<device::Counters>,
                          Reader<transport::Counters>, Reader<device::HostStack::Counters>,
                          RunReader, SetupReader, JobReader, FlowLevelReader>;

// A total says how the run's figure comes of those of its links, switches or hosts. If it is none,
// the run has no such figure.
enum class Total : std::uint8_t { none, sum, most };
// The runs that have a figure: all, those in which it is not 0, those with faults or a watchdog,
// those whose hosts have a kernel's stack, those with jobs, those with prices, and those at flow
// level.
enum class When : std::uint8_t {
  always,
  not_zero,
  with_faults,
  with_stacks,
  with_jobs,
  with_prices,
  at_flow_level
};
// Where a listing shows a figure: in links.csv too if it is one of links, in summary.json alone, or
// at the end of summary.json, with the simulator's own statistics.
enum class Listing : std::uint8_t { everywhere, summary_alone, simulator };

struct Row {
  report::Figure figure;
  Read read;
  Total total = Total::none;
  When when = When::always;
  Listing listing = Listing::everywhere;
  std::string_view adds_to = {};  // key of the run's figure that has the total, if not its own
};

std::span<const Row> rows();
// Returns the figure of a run, or of a kind of its flows, that has the key; null if there is none.
const report::Figure* figure_named(std::string_view key);

// True if links.csv, hosts.csv or the run as a whole (and so summary.json) has the row's figure.
bool is_of_links(const Row& row);
bool is_of_hosts(const Row& row);
bool is_of_run(const Row& row);

}  // namespace tulle::experiment
