#include "experiment/figures.h"

#include <algorithm>
#include <array>

namespace tulle::experiment {
namespace {

using report::Best;
using report::Quantiles;
using report::Value;
using MaybeValue = std::optional<Value>;
using Stack = device::HostStack::Counters;

// --- readers ------------------------------------------------------------------------------------

template <typename Member, typename Class>
Class class_of(Member Class::*);

template <auto member>
using Owner = decltype(class_of(member));

// Reads a member of the counters.
template <auto member>
Value of(const Owner<member>& counters) {
  using Member = std::remove_cvref_t<decltype(counters.*member)>;
  if constexpr (std::is_integral_v<Member>) return std::uint64_t{counters.*member};
  if constexpr (!std::is_integral_v<Member>) return counters.*member;
}

template <Quantiles FlowsView::*quantiles, double Quantiles::*quantile>
Value of_flows(const FlowsView& flows) {
  return flows.*quantiles.*quantile;
}

template <double Quantiles::*quantile>
MaybeValue latency(const RunView& run) {
  return run.arrivals > 0 ? MaybeValue(run.latency_us.*quantile) : std::nullopt;
}

Value utilisation(const LinkView& link) {
  const double seconds = link.end.to_seconds();
  if (seconds <= 0) return 0.0;
  return static_cast<double>(link.counters.bytes) * 8 / seconds /
         static_cast<double>(link.bits_per_second);
}

Value paused(const port::Counters& port) { return Time{port.paused_ps}; }

Value pkey_dropped(const port::Counters& port) {
  return port.pkey_dropped_in + port.pkey_dropped_out;
}

Value is_paused(const port::Counters& port) { return std::uint64_t{port.pauses > 0 ? 1u : 0u}; }

// Returns the time from the first fault to the last frame that a fault cost, or zero if none was
// lost.
MaybeValue recovery(const RunView& run) {
  const Time first = run.setup.network.faults.first();
  const Time last_loss = run.measured.totals().last_loss;
  return last_loss > first ? last_loss - first : Time::zero();
}

double cpu_seconds_of(const RunView& run) {
  double seconds = 0;
  for (std::uint32_t host = 0; host < run.setup.topology.hosts; ++host) {
    const Stack counters = run.measured.stack(host);
    seconds += (counters.busy_kernel + counters.busy_application).to_seconds();
  }
  return seconds;
}

MaybeValue cpu_seconds(const RunView& run) { return cpu_seconds_of(run); }

// Returns the processor time per GiB of payload moved, both ends together.
MaybeValue cpu_seconds_per_gib(const RunView& run) {
  const double gib = static_cast<double>(run.player.bytes_done()) / (1u << 30);
  return gib > 0 ? cpu_seconds_of(run) / gib : 0;
}

// Returns the share of the time in which the busiest core was busy, 0 to 1.
MaybeValue busiest_core(const RunView& run) {
  Time busiest;
  for (std::uint32_t host = 0; host < run.setup.topology.hosts; ++host) {
    busiest = std::max(busiest, run.measured.stack(host).busy_most);
  }
  const double seconds = run.measured.totals().now.to_seconds();
  return seconds > 0 ? busiest.to_seconds() / seconds : 0;
}

MaybeValue tasks(const JobView& job) { return job.tasks; }

// Returns the time that the job took, if all of its tasks were done.
MaybeValue job_time(const JobView& job) {
  return job.taken ? MaybeValue(*job.taken) : std::nullopt;
}

// Returns the time that the job takes when no other job is there.
MaybeValue time_alone(const JobView& job) {
  return job.alone ? MaybeValue(*job.alone) : std::nullopt;
}

// Returns how many times longer the job takes alongside the others than alone.
MaybeValue job_slowdown(const JobView& job) {
  if (!job.taken || !job.alone || *job.alone == Time::zero()) return {};
  return job.taken->to_seconds() / job.alone->to_seconds();
}

MaybeValue step_time(const JobView& job) {
  return job.training ? MaybeValue(job.training->step) : std::nullopt;
}

MaybeValue checkpoint_time(const JobView& job) {
  if (!job.training || !job.training->checkpoint) return {};
  return *job.training->checkpoint;
}

// Returns a checkpoint's bytes over its time, in GB/s.
MaybeValue checkpoint_rate(const JobView& job) {
  if (!job.training || !job.training->checkpoint) return {};
  const double seconds = job.training->checkpoint->to_seconds();
  return seconds > 0 ? static_cast<double>(job.training->checkpoint_bytes) / seconds * 1e-9 : 0;
}

MaybeValue checkpoint_cost(const JobView& job) {
  if (!job.training || !job.training->checkpoint) return {};
  return job.training->cost;
}

// Returns the part of the job's time that is due to communication: without it, the job would have
// taken less by so much.
MaybeValue exposed_time(const JobView& job) {
  if (!job.taken || job.computation == Time::zero()) return {};
  return *job.taken - job.computation;
}

MaybeValue exposed_share(const JobView& job) {
  const MaybeValue exposed = exposed_time(job);
  if (!exposed) return {};
  return std::get<Time>(*exposed).to_seconds() / job.taken->to_seconds();
}

// Returns a collective's bytes over its time, in GB/s, as nccl-tests does.
MaybeValue algorithm_bandwidth(const JobView& job) {
  if (!job.taken || !job.bandwidth) return {};
  return static_cast<double>(job.bandwidth->bytes) / job.taken->to_seconds() * 1e-9;
}

MaybeValue bus_bandwidth(const JobView& job) {
  const MaybeValue algorithm = algorithm_bandwidth(job);
  if (!algorithm || job.bandwidth->bus_factor == 0) return {};
  return std::get<double>(*algorithm) * job.bandwidth->bus_factor;
}

template <Quantiles ServingView::*quantiles, double Quantiles::*quantile>
MaybeValue serving(const JobView& job) {
  if (!job.serving) return {};
  return (*job.serving).*quantiles.*quantile;
}

MaybeValue cache_share(const JobView& job) {
  return job.serving ? MaybeValue(job.serving->cache_share) : std::nullopt;
}

// Returns how many packets a frame represented, if that was more than one.
MaybeValue train(const scenario::Setup& setup) {
  const std::uint64_t packets = setup.network.host.train_packets;
  return packets > 1 ? MaybeValue(packets) : std::nullopt;
}

MaybeValue cost(const scenario::Setup& setup) { return setup.price->amount; }
MaybeValue power(const scenario::Setup& setup) { return setup.price->watts * 1e-3; }

MaybeValue bytes_verified(const RunView& run) {
  if (!run.setup.player.carries_bytes) return {};
  return run.player.bytes_verified();
}

MaybeValue seed(const scenario::Setup& setup) { return setup.network.seed; }
MaybeValue notices(const RunView& run) { return run.measured.totals().notices; }
MaybeValue events(const RunView& run) { return run.measured.totals().events; }
MaybeValue packet_hops(const RunView& run) { return run.measured.totals().data_packet_hops; }
MaybeValue link_traversals(const RunView& run) { return run.measured.totals().frames_sent; }

MaybeValue offered_load(const FlowLevelView& level) { return level.offered_load; }
MaybeValue bottleneck_flows(const FlowLevelView& level) { return level.bottleneck_flows; }
MaybeValue slowdown_error(const FlowLevelView& level) { return level.slowdown_error; }
MaybeValue time_error(const FlowLevelView& level) { return level.time_error; }

// --- the table ----------------------------------------------------------------------------------

constexpr auto fct = &FlowsView::completion_us;
constexpr auto slowdown = &FlowsView::slowdown;
constexpr auto first_token = &ServingView::first_token_us;
constexpr auto token = &ServingView::token_us;
constexpr auto cache = &ServingView::cache_us;
using enum report::Form;

// The order is that of summary.json, links.csv and hosts.csv. A row is
//   {{key, unit, heading, form, {place, best, of_finished} side by side,
//     {place, width, digits, is_close, of_all_arrived, heading} in the summary, axis},
//    reader, total, when, listing, adds_to}
// of which the first four and the reader are enough for most.
constexpr auto table = std::to_array<Row>({
    {{"seed", "1", "seed"}, seed},
    {{"tasks", "tasks", "tasks"}, tasks, Total::none, When::with_jobs},
    {{"job_us",
      "us",
      "time us",
      number,
      {1, Best::least},
      {1, 10, 1, false, false, "time us"},
      "time until the job is done, us"},
     job_time,
     Total::none,
     When::with_jobs},
    {{"alone_us", "us", "alone us", number, {2}, {2, 10, 1}},
     time_alone,
     Total::none,
     When::with_jobs},
    {{"job_slowdown", "1", "job slowdown", number, {3}, {3, 12, 3}},
     job_slowdown,
     Total::none,
     When::with_jobs},
    {{"step_us", "us", "step us", number, {4, Best::least}, {4, 10, 1}},
     step_time,
     Total::none,
     When::with_jobs},
    {{"checkpoint_us", "us", "checkpoint us", number, {5, Best::least}, {5, 13, 1}},
     checkpoint_time,
     Total::none,
     When::with_jobs},
    {{"checkpoint_gbytes", "GB/s", "checkpoint GB/s", number, {6, Best::most}, {6, 15, 2}},
     checkpoint_rate,
     Total::none,
     When::with_jobs},
    {{"checkpoint_cost_us", "us", "it costs us", number, {7, Best::least}, {7, 11, 1}},
     checkpoint_cost,
     Total::none,
     When::with_jobs},
    {{"exposed_us", "us", "exposed us", number, {8, Best::least}, {8, 10, 1}},
     exposed_time,
     Total::none,
     When::with_jobs},
    {{"exposed_share", "1", "exposed", per_cent, {9, Best::least}, {9, 8}},
     exposed_share,
     Total::none,
     When::with_jobs},
    {{"algbw_gbytes", "GB/s", "algbw GB/s", number, {10, Best::most}, {10, 10, 2}},
     algorithm_bandwidth,
     Total::none,
     When::with_jobs},
    {{"busbw_gbytes", "GB/s", "busbw GB/s", number, {11, Best::most}, {11, 10, 2}},
     bus_bandwidth,
     Total::none,
     When::with_jobs},
    {{"ttft_us.median", "us", "TTFT us", number, {12, Best::least}},
     serving<first_token, &Quantiles::median>,
     Total::none,
     When::with_jobs},
    {{"ttft_us.p99", "us", "TTFT 99 % us", number, {13, Best::least}},
     serving<first_token, &Quantiles::p99>,
     Total::none,
     When::with_jobs},
    {{"tpot_us.median", "us", "TPOT us", number, {14, Best::least}},
     serving<token, &Quantiles::median>,
     Total::none,
     When::with_jobs},
    {{"tpot_us.p99", "us", "TPOT 99 % us", number, {15, Best::least}},
     serving<token, &Quantiles::p99>,
     Total::none,
     When::with_jobs},
    {{"cache_us.median", "us", "KV cache us", number, {16, Best::least}},
     serving<cache, &Quantiles::median>,
     Total::none,
     When::with_jobs},
    {{"cache_us.p99", "us", "KV cache 99 % us", number, {17, Best::least}},
     serving<cache, &Quantiles::p99>,
     Total::none,
     When::with_jobs},
    {{"cache_share", "1", "of TTFT", per_cent, {18, Best::least}},
     cache_share,
     Total::none,
     When::with_jobs},
    {{"flows", "flows", "flows"}, of<&FlowsView::flows>},
    {{"finished", "flows", "finished"}, of<&FlowsView::finished>},
    {{"failed", "flows", "failed"}, of<&FlowsView::failed>},
    {{"end_us",
      "us",
      "all done us",
      number,
      {21, Best::least, true},
      {12, 9, 1, false, false, "end us"},
      "time until all flows are done, us"},
     of<&FlowsView::end>},
    {{"fct_us.min", "us", "FCT min us", number, {}, {14, 9, 1, false, false, "FCT min"}},
     of_flows<fct, &Quantiles::min>},
    {{"fct_us.median",
      "us",
      "FCT median us",
      number,
      {22, Best::least, true},
      {15, 9, 1, true, false, "median"}},
     of_flows<fct, &Quantiles::median>},
    {{"fct_us.p99",
      "us",
      "99 % us",
      number,
      {23, Best::least, true},
      {16, 9, 1, true, false, "p99"}},
     of_flows<fct, &Quantiles::p99>},
    {{"fct_us.max", "us", "max us", number, {24, Best::least, true}, {17, 9, 1, true}},
     of_flows<fct, &Quantiles::max>},
    // Slowdowns and the share compare with the same fabric when it is empty, so that none is best.
    {{"slowdown.min", "1", "slowdown min", number}, of_flows<slowdown, &Quantiles::min>},
    {{"slowdown.median", "1", "slowdown median", number}, of_flows<slowdown, &Quantiles::median>},
    {{"slowdown.p99",
      "1",
      "slowdown 99 %",
      number,
      {25, Best::none, true},
      {18, 12, 2, false, false, "slowdown p99"}},
     of_flows<slowdown, &Quantiles::p99>},
    {{"slowdown.max", "1", "slowdown max", number}, of_flows<slowdown, &Quantiles::max>},
    {{"share_of_ideal",
      "1",
      "of ideal",
      per_cent,
      {26, Best::none, true},
      {19, 8},
      "of the ideal rate, %"},
     of<&FlowsView::share_of_ideal>},
    {{"latency_us.min", "us", "one way min us", number}, latency<&Quantiles::min>},
    {{"latency_us.median", "us", "one way us", number, {20, Best::least}, {13, 10, 2, false, true}},
     latency<&Quantiles::median>},
    {{"latency_us.p99", "us", "one way 99 % us", number}, latency<&Quantiles::p99>},
    {{"latency_us.max", "us", "one way max us", number}, latency<&Quantiles::max>},
    {{"goodput_gbps",
      "Gb/s",
      "goodput",
      rate,
      {27, Best::most},
      {20, 10},
      "goodput of all flows together, Gb/s"},
     of<&FlowsView::goodput>},

    {{"frames", "frames", "frames"}, of<&port::Counters::frames>},
    {{"bytes", "bytes", "bytes"}, of<&port::Counters::bytes>},
    {{"utilisation", "1", "utilisation", per_cent}, utilisation},
    {{"queue_max_bytes", "bytes", "queue max bytes"}, of<&port::Counters::queue_bytes_max>},
    {{"dropped", "frames", "dropped", count, {29}, {21, 9}},
     of<&port::Counters::dropped>,
     Total::sum},
    {{"lossless_dropped", "frames", "lossless dropped"},
     of<&SwitchCounters::lossless_drops>,
     Total::sum},
    {{"discarded", "frames", "discarded"},
     of<&port::Counters::discarded>,
     Total::sum,
     When::not_zero,
     Listing::summary_alone},
    {{"unmapped", "frames", "unmapped", count, {30}},
     of<&port::Counters::unmapped>,
     Total::sum,
     When::not_zero,
     Listing::summary_alone},
    {{"pkey_dropped", "frames", "pkey dropped", count, {31}},
     pkey_dropped,
     Total::sum,
     When::not_zero,
     Listing::summary_alone},
    {{"pkey_violations", "packets", "pkey violations"},
     of<&device::Counters::pkey_violations>,
     Total::sum,
     When::not_zero},
    {{"retransmitted", "packets", "resent", count, {34}, {22, 9, 0, true}, "packets sent again"},
     of<&transport::Counters::retransmitted_packets>,
     Total::sum},
    {{"timeouts", "time-outs", "time-outs", count, {35}},
     of<&transport::Counters::ack_timeouts>,
     Total::sum},
    {{"marked", "frames", "marked", count, {36}, {23, 9, 0, true}},
     of<&port::Counters::marked>,
     Total::sum},
    {{"notifications", "packets", "notifications"},
     of<&device::Counters::congestion_notifications>,
     Total::sum},
    {{"notices", "notices", "notices"}, notices, Total::none, When::not_zero},
    {{"pauses", "pauses", "pauses", count, {37}, {24, 9, 0, true}},
     of<&port::Counters::pauses>,
     Total::sum},
    {{"paused_us", "us", "paused us", number}, paused, Total::sum},
    {{"credit_stalls", "stalls", "credit stalls"}, of<&port::Counters::credit_stalls>, Total::sum},
    {{"buffer_max_bytes", "bytes", "buffer max bytes"},
     of<&SwitchCounters::bytes_held_max>,
     Total::most},

    {{"lost", "frames", "lost", count, {32}},
     of<&port::Counters::lost>,
     Total::sum,
     When::with_faults},
    {{"lost_bytes", "bytes", "lost bytes"},
     of<&port::Counters::lost_bytes>,
     Total::sum,
     When::with_faults,
     Listing::summary_alone},
    {{"unrouted", "frames", "unrouted"},
     of<&port::Counters::unrouted>,
     Total::sum,
     When::with_faults,
     Listing::summary_alone},
    {{"damaged", "frames", "damaged"}, of<&port::Counters::damaged>, Total::sum, When::with_faults},
    {{"watchdog_trips", "trips", "watchdog trips"},
     of<&port::Counters::watchdog_trips>,
     Total::sum,
     When::with_faults},
    {{"watchdog_dropped", "frames", "watchdog dropped", count, {33}},
     of<&port::Counters::watchdog_dropped>,
     Total::sum,
     When::with_faults},
    {{"ports_paused", "ports", "ports paused", count, {38}},
     is_paused,
     Total::sum,
     When::with_faults,
     Listing::summary_alone},
    {{"recovery_us", "us", "recovery us", number, {39, Best::least}},
     recovery,
     Total::none,
     When::with_faults},

    {{"cpu_kernel_us", "us", "CPU kernel us", number},
     of<&Stack::busy_kernel>,
     Total::none,
     When::with_stacks},
    {{"cpu_application_us", "us", "CPU application us", number},
     of<&Stack::busy_application>,
     Total::none,
     When::with_stacks},
    {{"busiest_core_us", "us", "busiest core us", number},
     of<&Stack::busy_most>,
     Total::none,
     When::with_stacks},
    {{"interrupts", "interrupts", "interrupts"},
     of<&Stack::interrupts>,
     Total::none,
     When::with_stacks},
    {{"ring_drops", "frames", "ring drops"},
     of<&Stack::receive_ring_drops>,
     Total::sum,
     When::with_stacks,
     Listing::everywhere,
     "dropped"},
    {{"cpu_s", "s", "CPU s", number}, cpu_seconds, Total::none, When::with_stacks},
    {{"cpu_s_per_gib", "s/GiB", "CPU s/GiB", number, {28, Best::least}, {25, 9, 3}},
     cpu_seconds_per_gib,
     Total::none,
     When::with_stacks},
    {{"busiest_core", "1", "busiest core", per_cent}, busiest_core, Total::none, When::with_stacks},

    {{"cost", "amount", "cost", number, {40, Best::least}}, cost, Total::none, When::with_prices},
    {{"power_kw", "kW", "power kW", number, {41, Best::least}},
     power,
     Total::none,
     When::with_prices},

    {{"train", "packets", "packets a frame", count, {42}}, train, Total::none, When::not_zero},
    {{"bytes_verified", "bytes", "bytes verified"}, bytes_verified},
    {{"events", "events", "events"}, events, Total::none, When::always, Listing::simulator},
    {{"packet_hops", "packets", "packet hops"},
     packet_hops,
     Total::none,
     When::always,
     Listing::simulator},
    {{"link_traversals", "frames", "link traversals"},
     link_traversals,
     Total::none,
     When::always,
     Listing::simulator},
    {{"offered_load", "1", "offered load", per_cent},
     offered_load,
     Total::none,
     When::at_flow_level,
     Listing::simulator},
    {{"bottleneck_flows", "flows", "flows at a bottleneck"},
     bottleneck_flows,
     Total::none,
     When::at_flow_level,
     Listing::simulator},
    {{"slowdown_error", "1", "error of mean slowdown", per_cent},
     slowdown_error,
     Total::none,
     When::at_flow_level,
     Listing::simulator},
    {{"time_error", "1", "error of the time", per_cent},
     time_error,
     Total::none,
     When::at_flow_level,
     Listing::simulator},
});

bool is_of_ports(const Row& row) {
  return std::holds_alternative<Reader<port::Counters>>(row.read) ||
         std::holds_alternative<Reader<LinkView>>(row.read);
}

}  // namespace

std::span<const Row> rows() { return table; }

const report::Figure* figure_named(std::string_view key) {
  const auto found = std::ranges::find_if(
      table, [key](const Row& row) { return is_of_run(row) && row.figure.key == key; });
  return found == table.end() ? nullptr : &found->figure;
}

bool is_of_links(const Row& row) { return is_of_ports(row) && row.listing == Listing::everywhere; }

bool is_of_hosts(const Row& row) { return std::holds_alternative<Reader<Stack>>(row.read); }

bool is_of_run(const Row& row) {
  if (row.total != Total::none) return row.adds_to.empty();
  return std::holds_alternative<Reader<FlowsView>>(row.read) ||
         std::holds_alternative<RunReader>(row.read) ||
         std::holds_alternative<SetupReader>(row.read) ||
         std::holds_alternative<FlowLevelReader>(row.read) ||
         std::holds_alternative<JobReader>(row.read);
}

}  // namespace tulle::experiment
