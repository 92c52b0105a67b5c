#include "study/experiment/flow_level.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "rdma/wire/packet.h"
#include "study/experiment/flow_paths.h"
#include "study/experiment/gather.h"
#include "study/experiment/ideal.h"

namespace tulle::experiment {
namespace {

using fabric::PathChoice;
using port::FlowControl;
using scenario::Setup;

constexpr double bits_per_byte = 8;
constexpr double ps_per_second = 1e12;
constexpr std::uint32_t icrc_bytes = 4;

// Rates are shared within 3 %: on a busy fabric, a flow that comes or goes would otherwise change
// those of many others a little. It changes mean slowdowns by less than 1 % (decision 049).
constexpr double sharing_tolerance = 0.03;

// Returns the bytes that a packet of RC takes on a link.
std::uint32_t link_bytes(const sim::NetworkSettings& settings, wire::Operation operation,
                         std::uint32_t payload_bytes) {
  const port::Overhead& around = sim::overhead(settings);
  const auto headers = static_cast<std::uint32_t>(
      wire::header_bytes(wire::opcode(wire::TransportClass::rc, operation)));
  return around.stored_bytes(headers + payload_bytes + icrc_bytes) + around.gap_bytes;
}

double bytes_per_ps(const fabric::Link& link) {
  return static_cast<double>(link.bits_per_second) / bits_per_byte / ps_per_second;
}

// Returns the rate at which credits come back, at most, in bytes a picosecond. A receiver tells its
// neighbour of room when a quarter of a lane has become free, so that three quarters are on their
// way at a time: a frame goes there, and an update comes back.
double credits_rate(const sim::NetworkSettings& network, const fabric::Link& link) {
  if (network.switches.flow_control != FlowControl::credits) {
    return std::numeric_limits<double>::infinity();
  }
  const double packet = link_bytes(network, wire::Operation::write_middle, network.host.mtu_bytes);
  const Time delay = link.delay + network.fec_delay;
  const double round_trip = static_cast<double>((delay + delay + network.switch_latency).ps) +
                            packet / bytes_per_ps(link);
  return 0.75 * network.switches.lane_buffer_bytes / round_trip;
}

// A thing that the flow level does not model, and whether a setup has it. Some of these are
// modelled for the messages of jobs, or concern these alone.
struct Beyond {
  enum class Of : std::uint8_t { all, flows, jobs };
  const char* what;
  bool (*has)(const Setup& setup);
  Of of = Of::all;

  bool concerns(const Setup& setup) const {
    return of == Of::all || (of == Of::jobs) == !setup.jobs.empty();
  }
};

// The errors of jobs were measured with packets of this length. Shorter ones have more headers and
// acknowledgements.
constexpr std::uint32_t measured_mtu_bytes = 4'096;

// At hosts with delays, shorter messages wait for each other's answers more than for links, and the
// order of what is ready at one moment decides how long a job takes. Against packets, rings of 16
// and 64 GPUs were up to 6 % too fast with shorter messages, and 0.1 % off with longer ones.
constexpr double message_bytes_behind_delays = 384 * 1'024;

bool has_delays(const Setup& setup) {
  return setup.player.post_delay > Time::zero() || setup.player.completion_delay > Time::zero();
}

bool waits(const workload::Flow& flow) { return flow.after >= 0 || flow.connection >= 0; }

bool has_window(const Setup& setup) {
  const sim::HostSettings& host = setup.network.host;
  return host.recovery.kind == transport::Recovery::selective_repeat;
}

bool has_control(const Setup& setup) {
  const transport::congestion::Settings& congestion = setup.network.host.congestion;
  return congestion.dcqcn.enabled || congestion.infiniband.enabled || congestion.endpoint_limits ||
         congestion.window.enabled;
}

constexpr auto beyond = std::to_array<Beyond>({
    {"flows that wait for other flows, or share connections",
     [](const Setup& setup) { return std::ranges::any_of(setup.flows, waits); }, Beyond::Of::flows},
    {"switches that reduce (algorithm = \"in-network\")",
     [](const Setup& setup) { return setup.aggregation.nodes() > 0; }, Beyond::Of::jobs},
    {"packets other than of 4,096 bytes (host.mtu)",
     [](const Setup& setup) { return setup.network.host.mtu_bytes != measured_mtu_bytes; },
     Beyond::Of::jobs},
    {"several planes", [](const Setup& setup) { return setup.topology.planes > 1; },
     Beyond::Of::jobs},
    {"several LIDs for each host (routing.lmc)",
     [](const Setup& setup) { return setup.player.paths > 1; }, Beyond::Of::jobs},
    {"links that are too long for their credits (fabric.lane_buffer)",
     [](const Setup& setup) {
       return std::ranges::any_of(setup.topology.links, [&](const fabric::Link& link) {
         return credits_rate(setup.network, link) < bytes_per_ps(link);
       });
     },
     Beyond::Of::jobs},
    {"jobs that are compared with themselves alone (report.alone)",
     [](const Setup& setup) { return setup.wants_alone; }, Beyond::Of::jobs},
    {"another transport than reliable connections",
     [](const Setup& setup) {
       // By default flows have reliable connections.
       return setup.player.transport != workload::PlayerSettings().transport ||
              setup.network.host.plays_tcp;
     }},
    {"a kernel's network stack",
     [](const Setup& setup) { return setup.network.host.stack.cores > 0; }},
    {"faults, bit errors or losses",
     [](const Setup& setup) {
       const sim::NetworkSettings& network = setup.network;
       return network.faults.any() || network.bit_error_rate > 0 || network.lose_every > 0;
     }},
    {"congestion control (congestion.control)", has_control},
    {"paths that are chosen packet by packet (fabric.path)",
     [](const Setup& setup) {
       return setup.network.switches.path_choice != PathChoice::flow ||
              setup.network.non_minimal.is_used();
     }},
    {"RoCE without a bound on what a flow has in flight (host.recovery = \"selective-repeat\" "
     "has one)",
     [](const Setup& setup) {
       return setup.network.link_layer == sim::LinkLayer::ethernet && !has_window(setup);
     },
     Beyond::Of::flows},
    {"topologies other than trees",
     [](const Setup& setup) {
       return !std::holds_alternative<fabric::Tiers>(setup.topology.shape);
     }},
    {"several classes or lanes",
     [](const Setup& setup) {
       return setup.player.service_levels > 1 || setup.path_lanes.has_value();
     }},
    {"partitions", [](const Setup& setup) { return !setup.network.pkeys.empty(); }},
    {"head-of-queue lifetimes",
     [](const Setup& setup) { return setup.network.switches.has_head_lifetimes(); }},
    {"trains of packets (host.train)",
     [](const Setup& setup) { return setup.network.host.train_packets > 1; }},
    {"payloads with bytes", [](const Setup& setup) { return setup.player.carries_bytes; }},
    {"notified arrivals (traffic.notify)", [](const Setup& setup) { return setup.player.notify; }},
    {"samples over time (report.sample)",
     [](const Setup& setup) { return setup.report.interval > Time::zero(); }},
});

}  // namespace

std::string beyond_flow_level(const Setup& setup) {
  const auto found = std::ranges::find_if(
      beyond, [&](const Beyond& each) { return each.concerns(setup) && each.has(setup); });
  if (found == beyond.end()) return "";
  return fmt::format("the flow level does not model {}: take --level packet", found->what);
}

Result<std::unique_ptr<FlowLevel>> FlowLevel::prepare(Setup setup) {
  if (std::string why = beyond_flow_level(setup); !why.empty()) return Error{std::move(why)};
  auto routes = fabric::compute_routes(setup.topology, setup.routing);
  if (!routes) return routes.error();
  return std::unique_ptr<FlowLevel>(new FlowLevel(std::move(setup), std::move(*routes)));
}

FlowLevel::FlowLevel(Setup setup, fabric::Routes routes)
    : setup_(std::move(setup)), routes_(std::move(routes)), wiring_(setup_.topology) {
  const sim::NetworkSettings& network = setup_.network;
  const std::uint32_t packet =
      link_bytes(network, wire::Operation::write_middle, network.host.mtu_bytes);
  settings_.packet_bytes = packet;
  settings_.tolerance = sharing_tolerance;
  if (has_window(setup_)) {
    settings_.backlog = fluid::Backlog::window;
    settings_.bytes = static_cast<double>(network.host.recovery.window_packets) * packet;
  } else if (network.link_layer == sim::LinkLayer::ethernet) {
    // Nothing bounds what a message has in flight but its length. Where that makes queues at which
    // switches pause, drop or mark, the run is refused.
    settings_.backlog = fluid::Backlog::window;
    settings_.bytes = std::numeric_limits<double>::infinity();
  } else {
    settings_.backlog = fluid::Backlog::credits;
    settings_.bytes = network.switches.lane_buffer_bytes;
  }
}

// Returns the shortest queue at which a switch would drop, pause or mark.
double FlowLevel::queue_bytes_max() const {
  const fabric::SwitchSettings& switches = setup_.network.switches;
  // With credits, a port's queue is at most what its neighbours' ports have room for.
  double most = std::numeric_limits<double>::infinity();
  const auto lower = [&most](double bytes) { most = std::min(most, bytes); };
  // A queue of several inputs pauses none of them before it has so much in all, and the shared
  // memory that is left is less by what is held.
  const double share = switches.alpha * static_cast<double>(switches.buffer_bytes);
  const double left = share / (1 + switches.alpha);
  if (switches.flow_control == FlowControl::pfc) {
    lower(switches.xoff_bytes != 0 ? switches.xoff_bytes : left);
  }
  if (switches.flow_control == FlowControl::none) {
    lower(switches.lossy_queue_bytes != 0 ? switches.lossy_queue_bytes : left);
  }
  if (switches.ecn.enabled) lower(switches.ecn.least_bytes);
  return most;
}

void FlowLevel::trace() {
  const fabric::Topology& topology = setup_.topology;
  const sim::NetworkSettings& network = setup_.network;
  const double queue_max = queue_bytes_max();
  traffic_.links.reserve(2 * topology.links.size());
  for (const fabric::Link& link : topology.links) {
    const double rate = std::min(bytes_per_ps(link), credits_rate(network, link));
    traffic_.links.insert(traffic_.links.end(), 2, {rate, queue_max});
  }
  const auto rate_of = [&](fluid::LinkIndex link) {
    return bytes_per_ps(topology.links[link / 2]);
  };
  const auto path_of = [this](const fluid::Flow& flow) {
    return std::span(&traffic_.hops[flow.first_hop], flow.hops);
  };
  const double mtu = network.host.mtu_bytes;
  const double packet = link_bytes(network, wire::Operation::write_middle, 0);
  const double more_in_first = link_bytes(network, wire::Operation::write_first, 0) - packet;
  const double in_flight =
      static_cast<double>(network.host.recovery.window_packets) * settings_.packet_bytes;
  const auto packet_time = [&](fluid::LinkIndex link) {
    return settings_.packet_bytes / rate_of(link);
  };
  IdealTimes ideals(topology, wiring_, routes_, network, setup_.player.transport);
  FlowPaths paths(setup_, wiring_, routes_);
  std::vector<std::uint32_t> started(topology.hosts);
  ideals_.reserve(setup_.flows.size());
  traffic_.flows.reserve(setup_.flows.size());
  double bytes_all = 0;
  Time first = Time::never();
  Time last = Time::zero();
  for (std::uint32_t i = 0; i < setup_.flows.size(); ++i) {
    const workload::Flow& from = setup_.flows[i];
    first = std::min(first, from.start);
    last = std::max(last, from.start);
    fluid::Flow& flow = traffic_.flows.emplace_back();
    const auto bytes = static_cast<double>(from.bytes);
    flow.start = static_cast<double>((from.start + setup_.player.post_delay).ps);
    flow.bytes = bytes + std::ceil(bytes / mtu) * packet + more_in_first;
    const std::uint32_t connection = started[from.source]++;
    const auto add = [this](std::span<const FlowPaths::Direction> path) {
      traffic_.hops.insert(traffic_.hops.end(), path.begin(), path.end());
      return static_cast<std::uint32_t>(path.size());
    };
    flow.first_hop = static_cast<std::uint32_t>(traffic_.hops.size());
    flow.hops = add(paths.of(i, connection));
    flow.hops_back = add(paths.back(i, connection));
    traffic_.hops_max = std::max(traffic_.hops_max, flow.hops);
    const Time one_way = ideals.one_way(from);
    const Time ideal = one_way + ideals.way_back(from);
    ideals_.push_back({one_way, ideal});
    const auto slowest = std::ranges::min_element(path_of(flow), {}, rate_of);
    flow.alone = flow.bytes / rate_of(*slowest);
    flow.round_trip = static_cast<double>(ideal.ps) - flow.alone;
    // A flow that is shorter than its window never waits for it.
    const double filled = rate_of(*slowest) * (flow.round_trip + packet_time(*slowest));
    if (in_flight > 0 && flow.bytes > in_flight && in_flight < filled) window_is_short_ = true;
    bytes_all += flow.bytes;
  }
  if (!setup_.jobs.empty()) make_room_for_acknowledgements();
  mean_bytes_ = bytes_all / static_cast<double>(std::max<std::size_t>(setup_.flows.size(), 1));
  if (!setup_.flows.empty()) measure_load(bytes_all, last - first);
}

// Computes the offered load: the ratio of the bytes of all flows to what all hosts' links carry
// between the first flow's start and the last one's.
void FlowLevel::measure_load(double bytes, Time between) {
  const fabric::Topology& topology = setup_.topology;
  double capacity = 0;  // of all hosts' links together
  for (std::uint32_t link = 0; link < topology.links.size(); ++link) {
    const bool is_of_host =
        topology.is_host(topology.links[link].a) || topology.is_host(topology.links[link].b);
    if (is_of_host) capacity += bytes_per_ps(topology.links[link]);
  }
  const double carried = capacity * static_cast<double>(between.ps);
  offered_load_ = carried > 0 ? bytes / carried : std::numeric_limits<double>::infinity();
}

// Takes off each direction of a link what the acknowledgements of the data in the other one take,
// over the whole of the jobs. Jobs keep links busy in both directions, so that this is what limits
// them; flows that come now and then leave room enough.
void FlowLevel::make_room_for_acknowledgements() {
  std::vector<double> data(traffic_.links.size());
  for (const fluid::Flow& flow : traffic_.flows) {
    for (std::uint32_t hop = 0; hop < flow.hops; ++hop) {
      data[traffic_.hops[flow.first_hop + hop]] += flow.bytes;
    }
  }
  const double acknowledgement = link_bytes(setup_.network, wire::Operation::acknowledge, 0);
  const double packets = setup_.network.host.congestion.packets_per_ack_request;
  const double share = acknowledgement / (packets * settings_.packet_bytes);
  for (std::size_t i = 0; i < data.size(); ++i) {
    // Where there are more acknowledgements than data, they do not come all at the same time.
    if (data[i] > 0) traffic_.links[i].rate *= 1 - std::min(data[i ^ 1] / data[i], 1.0) * share;
  }
}

Result<void> FlowLevel::run(const OnProgress& on_progress) {
  trace();
  if (window_is_short_) {
    return Error{
        "what a flow may have in flight (host.in_flight) is less than its links and round trip "
        "hold, which the flow level does not model: take --level packet"};
  }
  play_ = std::make_unique<fluid::Play>(traffic_, settings_);
  const auto goes_on = [&](std::uint64_t done) {
    Progress progress;
    progress.flows = setup_.flows.size();
    progress.flows_done = done;
    const auto all = static_cast<double>(std::max<std::uint64_t>(progress.flows, 1));
    progress.share_done = static_cast<double>(done) / all;
    return on_progress(progress);
  };
  if (setup_.jobs.empty()) {
    play_->run(goes_on);
    note_results();
  } else {
    jobs_ = std::make_unique<FlowJobs>(setup_, ideals_, traffic_, *play_);
    jobs_->run(goes_on);
  }
  return check_findings();
}

void FlowLevel::note_results() {
  results_.resize(setup_.flows.size());
  for (std::uint32_t i = 0; i < results_.size(); ++i) {
    const double delay = play_->delay(i);
    if (delay < 0) continue;
    const workload::Flow& flow = setup_.flows[i];
    const Time taken = setup_.player.post_delay_of(flow.source) + ideals_[i].whole +
                       Time{std::llround(delay)} + setup_.player.completion_delay_of(flow.source);
    if (flow.start + taken > setup_.stop_at) continue;
    results_[i].start = flow.start;
    results_[i].end = flow.start + taken;
  }
}

// A queue that is too long now and then changes little. Where flows find many such queues, packets
// would be lost, marked or delayed.
Result<void> FlowLevel::check_findings() const {
  constexpr double share_max = 1e-3;
  const fluid::Findings& found = play_->findings();
  const double share =
      found.queues == 0 ? 0
                        : static_cast<double>(found.too_long) / static_cast<double>(found.queues);
  if (share <= share_max) return {};
  return Error{fmt::format(
      "{:.1f} % of the queues that flows would find are longer than {:.0f} bytes, where switches "
      "drop, mark or pause, which the flow level does not model: take --level packet",
      share * 100, traffic_.links.front().queue_bytes_max)};
}

// Returns what is outside a range for this kind of backlog and start; "" if nothing is.
std::string FlowLevel::beyond(const ValidatedRange& range) const {
  const std::uint32_t hosts = setup_.topology.adapters();
  if (hosts < range.hosts_min) {
    return fmt::format("networks of {} hosts and more, and here they are {}", range.hosts_min,
                       hosts);
  }
  if (mean_bytes_ < range.flow_bytes_min) {
    return fmt::format("flows of {:.0f} bytes and more in the mean, and here they have {:.0f}",
                       range.flow_bytes_min, mean_bytes_);
  }
  if (range.of_jobs && has_delays(setup_) && mean_bytes_ < message_bytes_behind_delays) {
    return fmt::format(
        "messages of {:.0f} bytes and more where hosts have delays (host.profile), and here they "
        "have {:.0f}",
        message_bytes_behind_delays, mean_bytes_);
  }
  if (!range.of_jobs && !range.at_once && offered_load_ > range.load_max) {
    return fmt::format("loads up to {:.0f} %, and here it is {:.0f} %", range.load_max * 100,
                       offered_load_ * 100);
  }
  const std::uint64_t flows = play_->findings().most_bound;
  if (flows > range.bottleneck_flows_max) {
    return fmt::format("up to {} flows that share a bottleneck, and here they are {}",
                       range.bottleneck_flows_max, flows);
  }
  return "";
}

Result<ValidatedRange> FlowLevel::range_among(std::span<const ValidatedRange> ranges) const {
  const bool at_once = begins_at_once();
  const bool of_jobs = !setup_.jobs.empty();
  std::string what = of_jobs ? "jobs on other fabrics"
                     : at_once
                         ? "flows that begin over time on this fabric, and here they begin at "
                           "once"
                         : "other fabrics";
  for (const ValidatedRange& range : ranges) {
    if (range.backlog != settings_.backlog || range.of_jobs != of_jobs) continue;
    if (!of_jobs && range.at_once != at_once) continue;
    what = beyond(range);
    if (what.empty()) return range;
  }
  return Error{
      fmt::format("the flow level was compared with packets only for {}: use --level "
                  "packet, or --unvalidated",
                  what)};
}

report::Outcome FlowLevel::outcome(const std::optional<ValidatedRange>& range) const {
  FlowLevelView level;
  level.bottleneck_flows = play_->findings().most_bound;
  if (jobs_) {
    const bool is_measured = jobs_->jobs().is_done() && !setup_.flows.empty();
    if (range && is_measured) level.time_error = range->error_max;
    return gather_flows({setup_, wiring_, routes_, jobs_->results(), &jobs_->jobs()}, level);
  }
  if (!begins_at_once()) level.offered_load = offered_load_;
  if (range) level.slowdown_error = range->error_max;
  return gather_flows({setup_, wiring_, routes_, results_}, level);
}

}  // namespace tulle::experiment
