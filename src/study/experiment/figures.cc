#include "study/experiment/figures.h"

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

// The columns where variants are compared, from the left.
constexpr std::string_view compared =
    "job_us alone_us job_slowdown step_us checkpoint_us checkpoint_gbytes checkpoint_cost_us "
    "exposed_us exposed_share algbw_gbytes busbw_gbytes ttft_us.median ttft_us.p99 "
    "tpot_us.median tpot_us.p99 cache_us.median cache_us.p99 cache_share latency_us.median "
    "end_us fct_us.median fct_us.p99 fct_us.max slowdown.p99 share_of_ideal goodput_gbps "
    "cpu_s_per_gib dropped unmapped pkey_dropped lost watchdog_dropped retransmitted timeouts "
    "marked pauses ports_paused recovery_us cost power_kw train";
// The columns of the table that `tulle sim` prints, from the left.
constexpr std::string_view summary =
    "job_us alone_us job_slowdown step_us checkpoint_us checkpoint_gbytes checkpoint_cost_us "
    "exposed_us exposed_share algbw_gbytes busbw_gbytes end_us latency_us.median fct_us.min "
    "fct_us.median fct_us.p99 fct_us.max slowdown.p99 share_of_ideal goodput_gbps dropped "
    "retransmitted marked pauses cpu_s_per_gib";

// Returns the place of a key in a list, from 1 on; 0: it is not there.
consteval std::uint8_t place_in(std::string_view keys, std::string_view key) {
  std::uint8_t place = 1;
  for (std::size_t begin = 0; begin < keys.size(); ++place) {
    const std::size_t end = std::min(keys.find(' ', begin), keys.size());
    if (keys.substr(begin, end - begin) == key) return place;
    begin = end + 1;
  }
  return 0;
}

// Gives the rows their columns. Each key of the lists must be that of a row.
template <std::size_t count>
consteval std::array<Row, count> with_columns(std::array<Row, count> rows) {
  std::size_t columns = 0;
  for (Row& row : rows) {
    row.figure.column.place = place_in(compared, row.figure.key);
    row.figure.summary.place = place_in(summary, row.figure.key);
    columns += (row.figure.column.place > 0 ? 1 : 0) + (row.figure.summary.place > 0 ? 1 : 0);
  }
  const auto words = std::ranges::count(compared, ' ') + std::ranges::count(summary, ' ') + 2;
  if (columns != static_cast<std::size_t>(words)) throw "a column has no row";
  return rows;
}

// The order is that of summary.json, links.csv and hosts.csv.
constexpr auto table = with_columns(std::to_array<Row>({
    {.figure = {.key = "seed", .unit = "1", .heading = "seed"}, .read = seed},
    {.figure = {.key = "tasks", .unit = "tasks", .heading = "tasks"},
     .read = tasks,
     .when = When::with_jobs},
    {.figure = {.key = "job_us",
                .unit = "us",
                .heading = "time us",
                .form = number,
                .column = {.best = Best::least},
                .summary = {.width = 10, .digits = 1, .heading = "time us"},
                .axis = "time until the job is done, us"},
     .read = job_time,
     .when = When::with_jobs},
    {.figure = {.key = "alone_us",
                .unit = "us",
                .heading = "alone us",
                .form = number,
                .summary = {.width = 10, .digits = 1}},
     .read = time_alone,
     .when = When::with_jobs},
    {.figure = {.key = "job_slowdown",
                .unit = "1",
                .heading = "job slowdown",
                .form = number,
                .summary = {.width = 12, .digits = 3}},
     .read = job_slowdown,
     .when = When::with_jobs},
    {.figure = {.key = "step_us",
                .unit = "us",
                .heading = "step us",
                .form = number,
                .column = {.best = Best::least},
                .summary = {.width = 10, .digits = 1}},
     .read = step_time,
     .when = When::with_jobs},
    {.figure = {.key = "checkpoint_us",
                .unit = "us",
                .heading = "checkpoint us",
                .form = number,
                .column = {.best = Best::least},
                .summary = {.width = 13, .digits = 1}},
     .read = checkpoint_time,
     .when = When::with_jobs},
    {.figure = {.key = "checkpoint_gbytes",
                .unit = "GB/s",
                .heading = "checkpoint GB/s",
                .form = number,
                .column = {.best = Best::most},
                .summary = {.width = 15, .digits = 2}},
     .read = checkpoint_rate,
     .when = When::with_jobs},
    {.figure = {.key = "checkpoint_cost_us",
                .unit = "us",
                .heading = "it costs us",
                .form = number,
                .column = {.best = Best::least},
                .summary = {.width = 11, .digits = 1}},
     .read = checkpoint_cost,
     .when = When::with_jobs},
    {.figure = {.key = "exposed_us",
                .unit = "us",
                .heading = "exposed us",
                .form = number,
                .column = {.best = Best::least},
                .summary = {.width = 10, .digits = 1}},
     .read = exposed_time,
     .when = When::with_jobs},
    {.figure = {.key = "exposed_share",
                .unit = "1",
                .heading = "exposed",
                .form = per_cent,
                .column = {.best = Best::least},
                .summary = {.width = 8}},
     .read = exposed_share,
     .when = When::with_jobs},
    {.figure = {.key = "algbw_gbytes",
                .unit = "GB/s",
                .heading = "algbw GB/s",
                .form = number,
                .column = {.best = Best::most},
                .summary = {.width = 10, .digits = 2}},
     .read = algorithm_bandwidth,
     .when = When::with_jobs},
    {.figure = {.key = "busbw_gbytes",
                .unit = "GB/s",
                .heading = "busbw GB/s",
                .form = number,
                .column = {.best = Best::most},
                .summary = {.width = 10, .digits = 2}},
     .read = bus_bandwidth,
     .when = When::with_jobs},
    {.figure = {.key = "ttft_us.median",
                .unit = "us",
                .heading = "TTFT us",
                .form = number,
                .column = {.best = Best::least}},
     .read = serving<first_token, &Quantiles::median>,
     .when = When::with_jobs},
    {.figure = {.key = "ttft_us.p99",
                .unit = "us",
                .heading = "TTFT 99 % us",
                .form = number,
                .column = {.best = Best::least}},
     .read = serving<first_token, &Quantiles::p99>,
     .when = When::with_jobs},
    {.figure = {.key = "tpot_us.median",
                .unit = "us",
                .heading = "TPOT us",
                .form = number,
                .column = {.best = Best::least}},
     .read = serving<token, &Quantiles::median>,
     .when = When::with_jobs},
    {.figure = {.key = "tpot_us.p99",
                .unit = "us",
                .heading = "TPOT 99 % us",
                .form = number,
                .column = {.best = Best::least}},
     .read = serving<token, &Quantiles::p99>,
     .when = When::with_jobs},
    {.figure = {.key = "cache_us.median",
                .unit = "us",
                .heading = "KV cache us",
                .form = number,
                .column = {.best = Best::least}},
     .read = serving<cache, &Quantiles::median>,
     .when = When::with_jobs},
    {.figure = {.key = "cache_us.p99",
                .unit = "us",
                .heading = "KV cache 99 % us",
                .form = number,
                .column = {.best = Best::least}},
     .read = serving<cache, &Quantiles::p99>,
     .when = When::with_jobs},
    {.figure = {.key = "cache_share",
                .unit = "1",
                .heading = "of TTFT",
                .form = per_cent,
                .column = {.best = Best::least}},
     .read = cache_share,
     .when = When::with_jobs},
    {.figure = {.key = "flows", .unit = "flows", .heading = "flows"},
     .read = of<&FlowsView::flows>},
    {.figure = {.key = "finished", .unit = "flows", .heading = "finished"},
     .read = of<&FlowsView::finished>},
    {.figure = {.key = "failed", .unit = "flows", .heading = "failed"},
     .read = of<&FlowsView::failed>},
    {.figure = {.key = "end_us",
                .unit = "us",
                .heading = "all done us",
                .form = number,
                .column = {.best = Best::least, .of_finished = true},
                .summary = {.width = 9, .digits = 1, .heading = "end us"},
                .axis = "time until all flows are done, us"},
     .read = of<&FlowsView::end>},
    {.figure = {.key = "fct_us.min",
                .unit = "us",
                .heading = "FCT min us",
                .form = number,
                .summary = {.width = 9, .digits = 1, .heading = "FCT min"}},
     .read = of_flows<fct, &Quantiles::min>},
    {.figure = {.key = "fct_us.median",
                .unit = "us",
                .heading = "FCT median us",
                .form = number,
                .column = {.best = Best::least, .of_finished = true},
                .summary = {.width = 9, .digits = 1, .is_close = true, .heading = "median"}},
     .read = of_flows<fct, &Quantiles::median>},
    {.figure = {.key = "fct_us.p99",
                .unit = "us",
                .heading = "99 % us",
                .form = number,
                .column = {.best = Best::least, .of_finished = true},
                .summary = {.width = 9, .digits = 1, .is_close = true, .heading = "p99"}},
     .read = of_flows<fct, &Quantiles::p99>},
    {.figure = {.key = "fct_us.max",
                .unit = "us",
                .heading = "max us",
                .form = number,
                .column = {.best = Best::least, .of_finished = true},
                .summary = {.width = 9, .digits = 1, .is_close = true}},
     .read = of_flows<fct, &Quantiles::max>},
    // Slowdowns and the share compare with the same fabric when it is empty, so that none is best.
    {.figure = {.key = "slowdown.min", .unit = "1", .heading = "slowdown min", .form = number},
     .read = of_flows<slowdown, &Quantiles::min>},
    {.figure =
         {.key = "slowdown.median", .unit = "1", .heading = "slowdown median", .form = number},
     .read = of_flows<slowdown, &Quantiles::median>},
    {.figure = {.key = "slowdown.p99",
                .unit = "1",
                .heading = "slowdown 99 %",
                .form = number,
                .column = {.of_finished = true},
                .summary = {.width = 12, .digits = 2, .heading = "slowdown p99"}},
     .read = of_flows<slowdown, &Quantiles::p99>},
    {.figure = {.key = "slowdown.max", .unit = "1", .heading = "slowdown max", .form = number},
     .read = of_flows<slowdown, &Quantiles::max>},
    {.figure = {.key = "share_of_ideal",
                .unit = "1",
                .heading = "of ideal",
                .form = per_cent,
                .column = {.of_finished = true},
                .summary = {.width = 8},
                .axis = "of the ideal rate, %"},
     .read = of<&FlowsView::share_of_ideal>},
    {.figure = {.key = "latency_us.min", .unit = "us", .heading = "one way min us", .form = number},
     .read = latency<&Quantiles::min>},
    {.figure = {.key = "latency_us.median",
                .unit = "us",
                .heading = "one way us",
                .form = number,
                .column = {.best = Best::least},
                .summary = {.width = 10, .digits = 2, .of_all_arrived = true}},
     .read = latency<&Quantiles::median>},
    {.figure =
         {.key = "latency_us.p99", .unit = "us", .heading = "one way 99 % us", .form = number},
     .read = latency<&Quantiles::p99>},
    {.figure = {.key = "latency_us.max", .unit = "us", .heading = "one way max us", .form = number},
     .read = latency<&Quantiles::max>},
    {.figure = {.key = "goodput_gbps",
                .unit = "Gb/s",
                .heading = "goodput",
                .form = rate,
                .column = {.best = Best::most},
                .summary = {.width = 10},
                .axis = "goodput of all flows together, Gb/s"},
     .read = of<&FlowsView::goodput>},

    {.figure = {.key = "frames", .unit = "frames", .heading = "frames"},
     .read = of<&port::Counters::frames>},
    {.figure = {.key = "bytes", .unit = "bytes", .heading = "bytes"},
     .read = of<&port::Counters::bytes>},
    {.figure = {.key = "utilisation", .unit = "1", .heading = "utilisation", .form = per_cent},
     .read = utilisation},
    {.figure = {.key = "queue_max_bytes", .unit = "bytes", .heading = "queue max bytes"},
     .read = of<&port::Counters::queue_bytes_max>},
    {.figure = {.key = "dropped", .unit = "frames", .heading = "dropped", .summary = {.width = 9}},
     .read = of<&port::Counters::dropped>,
     .total = Total::sum},
    {.figure = {.key = "lossless_dropped", .unit = "frames", .heading = "lossless dropped"},
     .read = of<&SwitchCounters::lossless_drops>,
     .total = Total::sum},
    {.figure = {.key = "discarded", .unit = "frames", .heading = "discarded"},
     .read = of<&port::Counters::discarded>,
     .total = Total::sum,
     .when = When::not_zero,
     .listing = Listing::summary_alone},
    {.figure = {.key = "unmapped", .unit = "frames", .heading = "unmapped"},
     .read = of<&port::Counters::unmapped>,
     .total = Total::sum,
     .when = When::not_zero,
     .listing = Listing::summary_alone},
    {.figure = {.key = "pkey_dropped", .unit = "frames", .heading = "pkey dropped"},
     .read = pkey_dropped,
     .total = Total::sum,
     .when = When::not_zero,
     .listing = Listing::summary_alone},
    {.figure = {.key = "pkey_violations", .unit = "packets", .heading = "pkey violations"},
     .read = of<&device::Counters::pkey_violations>,
     .total = Total::sum,
     .when = When::not_zero},
    {.figure = {.key = "retransmitted",
                .unit = "packets",
                .heading = "resent",
                .summary = {.width = 9, .is_close = true},
                .axis = "packets sent again"},
     .read = of<&transport::Counters::retransmitted_packets>,
     .total = Total::sum},
    {.figure = {.key = "timeouts", .unit = "time-outs", .heading = "time-outs"},
     .read = of<&transport::Counters::ack_timeouts>,
     .total = Total::sum},
    {.figure = {.key = "marked",
                .unit = "frames",
                .heading = "marked",
                .summary = {.width = 9, .is_close = true}},
     .read = of<&port::Counters::marked>,
     .total = Total::sum},
    {.figure = {.key = "notifications", .unit = "packets", .heading = "notifications"},
     .read = of<&device::Counters::congestion_notifications>,
     .total = Total::sum},
    {.figure = {.key = "notices", .unit = "notices", .heading = "notices"},
     .read = notices,
     .when = When::not_zero},
    {.figure = {.key = "pauses",
                .unit = "pauses",
                .heading = "pauses",
                .summary = {.width = 9, .is_close = true}},
     .read = of<&port::Counters::pauses>,
     .total = Total::sum},
    {.figure = {.key = "paused_us", .unit = "us", .heading = "paused us", .form = number},
     .read = paused,
     .total = Total::sum},
    {.figure = {.key = "credit_stalls", .unit = "stalls", .heading = "credit stalls"},
     .read = of<&port::Counters::credit_stalls>,
     .total = Total::sum},
    {.figure = {.key = "buffer_max_bytes", .unit = "bytes", .heading = "buffer max bytes"},
     .read = of<&SwitchCounters::bytes_held_max>,
     .total = Total::most},

    {.figure = {.key = "lost", .unit = "frames", .heading = "lost"},
     .read = of<&port::Counters::lost>,
     .total = Total::sum,
     .when = When::with_faults},
    {.figure = {.key = "lost_bytes", .unit = "bytes", .heading = "lost bytes"},
     .read = of<&port::Counters::lost_bytes>,
     .total = Total::sum,
     .when = When::with_faults,
     .listing = Listing::summary_alone},
    {.figure = {.key = "unrouted", .unit = "frames", .heading = "unrouted"},
     .read = of<&port::Counters::unrouted>,
     .total = Total::sum,
     .when = When::with_faults,
     .listing = Listing::summary_alone},
    {.figure = {.key = "damaged", .unit = "frames", .heading = "damaged"},
     .read = of<&port::Counters::damaged>,
     .total = Total::sum,
     .when = When::with_faults},
    {.figure = {.key = "watchdog_trips", .unit = "trips", .heading = "watchdog trips"},
     .read = of<&port::Counters::watchdog_trips>,
     .total = Total::sum,
     .when = When::with_faults},
    {.figure = {.key = "watchdog_dropped", .unit = "frames", .heading = "watchdog dropped"},
     .read = of<&port::Counters::watchdog_dropped>,
     .total = Total::sum,
     .when = When::with_faults},
    {.figure = {.key = "ports_paused", .unit = "ports", .heading = "ports paused"},
     .read = is_paused,
     .total = Total::sum,
     .when = When::with_faults,
     .listing = Listing::summary_alone},
    {.figure = {.key = "recovery_us",
                .unit = "us",
                .heading = "recovery us",
                .form = number,
                .column = {.best = Best::least}},
     .read = recovery,
     .when = When::with_faults},

    {.figure = {.key = "cpu_kernel_us", .unit = "us", .heading = "CPU kernel us", .form = number},
     .read = of<&Stack::busy_kernel>,
     .when = When::with_stacks},
    {.figure = {.key = "cpu_application_us",
                .unit = "us",
                .heading = "CPU application us",
                .form = number},
     .read = of<&Stack::busy_application>,
     .when = When::with_stacks},
    {.figure =
         {.key = "busiest_core_us", .unit = "us", .heading = "busiest core us", .form = number},
     .read = of<&Stack::busy_most>,
     .when = When::with_stacks},
    {.figure = {.key = "interrupts", .unit = "interrupts", .heading = "interrupts"},
     .read = of<&Stack::interrupts>,
     .when = When::with_stacks},
    {.figure = {.key = "ring_drops", .unit = "frames", .heading = "ring drops"},
     .read = of<&Stack::receive_ring_drops>,
     .total = Total::sum,
     .when = When::with_stacks,
     .adds_to = "dropped"},
    {.figure = {.key = "cpu_s", .unit = "s", .heading = "CPU s", .form = number},
     .read = cpu_seconds,
     .when = When::with_stacks},
    {.figure = {.key = "cpu_s_per_gib",
                .unit = "s/GiB",
                .heading = "CPU s/GiB",
                .form = number,
                .column = {.best = Best::least},
                .summary = {.width = 9, .digits = 3}},
     .read = cpu_seconds_per_gib,
     .when = When::with_stacks},
    {.figure = {.key = "busiest_core", .unit = "1", .heading = "busiest core", .form = per_cent},
     .read = busiest_core,
     .when = When::with_stacks},

    {.figure = {.key = "cost",
                .unit = "amount",
                .heading = "cost",
                .form = number,
                .column = {.best = Best::least}},
     .read = cost,
     .when = When::with_prices},
    {.figure = {.key = "power_kw",
                .unit = "kW",
                .heading = "power kW",
                .form = number,
                .column = {.best = Best::least}},
     .read = power,
     .when = When::with_prices},

    {.figure = {.key = "train", .unit = "packets", .heading = "packets a frame"},
     .read = train,
     .when = When::not_zero},
    {.figure = {.key = "bytes_verified", .unit = "bytes", .heading = "bytes verified"},
     .read = bytes_verified},
    {.figure = {.key = "events", .unit = "events", .heading = "events"},
     .read = events,
     .listing = Listing::simulator},
    {.figure = {.key = "packet_hops", .unit = "packets", .heading = "packet hops"},
     .read = packet_hops,
     .listing = Listing::simulator},
    {.figure = {.key = "link_traversals", .unit = "frames", .heading = "link traversals"},
     .read = link_traversals,
     .listing = Listing::simulator},
    {.figure = {.key = "offered_load", .unit = "1", .heading = "offered load", .form = per_cent},
     .read = offered_load,
     .when = When::at_flow_level,
     .listing = Listing::simulator},
    {.figure = {.key = "bottleneck_flows", .unit = "flows", .heading = "flows at a bottleneck"},
     .read = bottleneck_flows,
     .when = When::at_flow_level,
     .listing = Listing::simulator},
    {.figure = {.key = "slowdown_error",
                .unit = "1",
                .heading = "error of mean slowdown",
                .form = per_cent},
     .read = slowdown_error,
     .when = When::at_flow_level,
     .listing = Listing::simulator},
    {.figure = {.key = "time_error", .unit = "1", .heading = "error of the time", .form = per_cent},
     .read = time_error,
     .when = When::at_flow_level,
     .listing = Listing::simulator},
}));

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
