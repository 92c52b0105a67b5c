#include "scenario/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "scenario/ideal.h"

namespace tulle::scenario {
namespace {

constexpr std::uint64_t steps_between_progress = 1'024;
constexpr Time slice = Time::microseconds(20);  // of virtual time, if nothing else interrupts

// Returns the value that a share `q` of the values does not exceed, by the nearest rank.
double quantile(const std::vector<double>& sorted, double q) {
  const double rank = std::ceil(q * static_cast<double>(sorted.size()));
  const auto index = static_cast<std::size_t>(std::max(rank, 1.0)) - 1;
  return sorted[std::min(index, sorted.size() - 1)];
}

// Adds the times of all ports, which may together be more than a Time holds.
Time sum(Time a, Time b) { return a > Time::never() - b ? Time::never() : a + b; }

}  // namespace

Quantiles quantiles(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  return {values.front(), quantile(values, 0.5), quantile(values, 0.99), values.back()};
}

Result<std::unique_ptr<Run>> Run::prepare(Setup setup) {
  auto routes = fabric::compute_routes(setup.topology, setup.routing);
  if (!routes) return routes.error();
  std::vector<fabric::Outage>& outages = setup.network.faults.outages;
  auto recovery = fabric::plan_recovery(setup.topology, setup.routing, setup.recovery, outages);
  if (!recovery) return recovery.error();
  outages = recovery->outages;
  return std::unique_ptr<Run>(new Run(std::move(setup), std::move(*routes), std::move(*recovery)));
}

Run::Run(Setup setup, fabric::Routes routes, fabric::Recovery recovery)
    : setup_(std::move(setup)),
      routes_(std::move(routes)),
      recovery_(std::move(recovery)),
      wiring_(setup_.topology),
      network_(setup_.topology, routes_, setup_.network),
      player_(setup_.flows, setup_.topology.hosts, setup_.player, stage()),
      sampler_(setup_.report, setup_.topology, wiring_) {
  for (const workload::Flow& flow : setup_.flows) bytes_ += flow.bytes;
  network_.follow(recovery_);
  player_.begin();
}

workload::Stage Run::stage() {
  return {
      [this](std::uint32_t host) -> device::Adapter& { return network_.adapter(host); },
      [this](std::uint32_t host) { network_.attend(host); },
      [this](Time at, std::uint32_t host, std::uint32_t token) { network_.alarm(at, host, token); },
      [this](std::uint32_t host, std::uint8_t path_bits) {
        return network_.address_of(host, path_bits);
      },
      network_.lookahead(),
      [this](std::uint32_t from, std::uint32_t to, std::uint8_t qos_level, std::uint8_t path_bits) {
        return path(from, to, qos_level, path_bits);
      }};
}

workload::PathRecord Run::path(std::uint32_t from, std::uint32_t to, std::uint8_t qos_level,
                               std::uint8_t path_bits) const {
  workload::PathRecord path{qos_level, pkey_index(from, to)};
  if (setup_.path_lanes) {
    const std::uint32_t leaf = routes_.leaf_node(routes_.leaf_of(from));
    path.service_level = setup_.path_lanes->service_level(routes_, leaf, to, qos_level, path_bits);
  }
  return path;
}

// Returns the index of the first partition in which the two hosts may talk to each other. If there
// is none, they try with index 0 all the same, like applications that were not told.
std::uint16_t Run::pkey_index(std::uint32_t from, std::uint32_t to) const {
  if (setup_.network.pkeys.empty()) return 0;
  const std::vector<Pkey>& own = setup_.network.pkeys[from];
  const auto found = std::ranges::find_if(own, [&](Pkey pkey) {
    return std::ranges::any_of(setup_.network.pkeys[to],
                               [pkey](Pkey other) { return wire::pkeys_match(pkey, other); });
  });
  return found == own.end() ? std::uint16_t{0} : static_cast<std::uint16_t>(found - own.begin());
}

void Run::show_to(Capture& capture) {
  show_to([&capture](const sim::Sending& sending) { capture.sends(sending); });
}

void Run::show_to(std::function<void(const sim::Sending&)> told) {
  network_.on_send(std::move(told));
}

// Counts flows only when all nodes have come to the same time.
void Run::run(const OnProgress& on_progress) {
  Time until = std::min(slice, setup_.stop_at);
  while (play_and_sample(until, on_progress) && on_progress(progress())) {
    const Time next = network_.next_event();
    const bool done = player_.finished() + player_.failed() == setup_.flows.size();
    if (done || player_.corruption() || next.is_never() || next > setup_.stop_at) return;
    until = std::min(next + slice, setup_.stop_at);
  }
}

// Returns false if the run is to stop.
bool Run::play(Time until, const OnProgress& on_progress) {
  for (std::uint64_t steps = 1;; ++steps) {
    const sim::NetworkEvent event = network_.run(until);
    switch (event.kind) {
      case sim::NetworkEvent::Kind::alarm:
        player_.handle_alarm(network_.now(), event.token);
        break;
      case sim::NetworkEvent::Kind::host:
        player_.handle_completions(network_.now(), event.host);
        break;
      case sim::NetworkEvent::Kind::nothing:
        return true;
    }
    if (steps % steps_between_progress == 0 && !on_progress(progress())) return false;
  }
}

// Taking a sample does not check the flows, so that the run ends alike with and without samples.
bool Run::play_and_sample(Time until, const OnProgress& on_progress) {
  while (sampler_.next() <= until) {
    if (!play(sampler_.next(), on_progress)) return false;
    sampler_.take(network_);
  }
  return play(until, on_progress);
}

Progress Run::progress() const {
  const double share =
      bytes_ == 0 ? 1 : static_cast<double>(player_.bytes_done()) / static_cast<double>(bytes_);
  return {network_.now(), network_.events(), setup_.flows.size(),
          player_.finished() + player_.failed(), share};
}

Outcome Run::outcome() const {
  Outcome outcome;
  outcome.variant = setup_.variant;
  outcome.seed = setup_.network.seed;
  outcome.events = network_.events();
  outcome.packet_hops = network_.data_packet_hops();
  outcome.link_traversals = network_.frames_sent();
  outcome.notices = network_.notices();
  gather_flows(outcome);
  gather_kinds(outcome);
  gather_links(outcome);
  gather_hosts(outcome);
  const bool has_watchdog = setup_.network.switches.watchdog > Time::zero();
  if (setup_.network.faults.any() || has_watchdog) gather_faults(outcome);
  if (setup_.network.host.stack.cores > 0) gather_stacks(outcome);
  outcome.samples = sampler_.samples();
  if (setup_.player.carries_bytes) outcome.bytes_verified = player_.bytes_verified();
  return outcome;
}

Result<void> Run::check_payloads() const {
  if (!player_.corruption()) return {};
  const auto& [part, difference] = *player_.corruption();
  const std::vector<std::uint32_t>& first = setup_.first_parts;
  const auto next = std::upper_bound(first.begin(), first.end(), part);
  const workload::Flow& flow = setup_.flows[part];
  return Error{fmt::format(
      "flow {} (host {} to host {}), queue pair {}: byte {} of {} is 0x{:02x}, but 0x{:02x} was "
      "sent",
      next - first.begin() - 1, flow.source, flow.destination, part - *(next - 1),
      difference.offset, flow.bytes, std::to_integer<unsigned>(difference.found),
      std::to_integer<unsigned>(difference.expected))};
}

// A flow begins with the first of its parts and is done with the last.
FlowOutcome Run::gather_flow(std::uint32_t first, std::uint32_t end) const {
  FlowOutcome flow;
  flow.flow = setup_.flows[first];
  flow.flow.bytes = 0;
  flow.end = flow.arrived = Time::zero();
  for (std::uint32_t i = first; i < end; ++i) {
    const workload::FlowResult& result = player_.results()[i];
    flow.flow.bytes += setup_.flows[i].bytes;
    flow.start = std::min(flow.start, result.start);
    flow.end = std::max(flow.end, result.end);
    flow.arrived = std::max(flow.arrived, result.arrived);
    if (result.status != verbs::CompletionStatus::success) flow.status = result.status;
  }
  return flow;
}

void Run::gather_flows(Outcome& outcome) const {
  const IdealTimes ideals(setup_.topology, wiring_, routes_, setup_.network,
                          setup_.player.transport);
  std::vector<double> completions;
  std::vector<double> slowdowns;
  std::vector<double> latencies;
  const std::vector<std::uint32_t>& first = setup_.first_parts;
  for (std::size_t i = 0; i + 1 < first.size(); ++i) {
    FlowOutcome& flow = outcome.flows.emplace_back(gather_flow(first[i], first[i + 1]));
    if (!flow.arrived.is_never()) {
      latencies.push_back(static_cast<double>((flow.arrived - flow.start).ps) * 1e-6);
    }
    if (flow.status != verbs::CompletionStatus::success) ++outcome.failed;
    if (flow.end.is_never()) continue;
    ++outcome.finished;
    outcome.end = std::max(outcome.end, flow.end);
    const Time taken = flow.end - flow.start;
    const Time ideal =
        ideals.of(flow.flow) + setup_.player.post_delay + setup_.player.completion_delay;
    flow.slowdown = static_cast<double>(taken.ps) / static_cast<double>(ideal.ps);
    completions.push_back(static_cast<double>(taken.ps) * 1e-6);
    slowdowns.push_back(flow.slowdown);
    outcome.share_of_ideal += 1 / flow.slowdown;
  }
  outcome.completion_us = quantiles(std::move(completions));
  if (!slowdowns.empty()) outcome.share_of_ideal /= static_cast<double>(slowdowns.size());
  outcome.slowdown = quantiles(std::move(slowdowns));
  outcome.arrivals = latencies.size();
  outcome.latency_us = quantiles(std::move(latencies));
  if (outcome.end > Time::zero()) {
    outcome.goodput_bits_per_second =
        static_cast<double>(player_.bytes_done()) * 8 / outcome.end.to_seconds();
  }
}

void Run::gather_kinds(Outcome& outcome) const {
  for (std::size_t kind = 0; kind < setup_.kinds.size(); ++kind) {
    KindOutcome& of_kind = outcome.kinds.emplace_back();
    of_kind.name = setup_.kinds[kind].name;
    const std::size_t first = setup_.kinds[kind].first_message;
    const std::size_t last = kind + 1 < setup_.kinds.size() ? setup_.kinds[kind + 1].first_message
                                                            : outcome.flows.size();
    std::vector<double> completions, slowdowns;
    Time start = Time::never();
    double bits = 0;
    for (std::size_t i = first; i < last; ++i) {
      const FlowOutcome& flow = outcome.flows[i];
      outcome.kind_of.push_back(static_cast<std::uint32_t>(kind));
      ++of_kind.flows;
      start = std::min(start, flow.start);
      if (flow.status != verbs::CompletionStatus::success) ++of_kind.failed;
      if (flow.end.is_never()) continue;
      ++of_kind.finished;
      of_kind.end = std::max(of_kind.end, flow.end);
      completions.push_back(static_cast<double>((flow.end - flow.start).ps) * 1e-6);
      slowdowns.push_back(flow.slowdown);
      of_kind.share_of_ideal += 1 / flow.slowdown;
      bits += static_cast<double>(flow.flow.bytes) * 8;
    }
    if (of_kind.finished == 0) continue;
    of_kind.share_of_ideal /= static_cast<double>(of_kind.finished);
    of_kind.completion_us = quantiles(std::move(completions));
    of_kind.slowdown = quantiles(std::move(slowdowns));
    of_kind.goodput_bits_per_second = bits / (of_kind.end - start).to_seconds();
  }
}

void Run::gather_links(Outcome& outcome) const {
  const fabric::Topology& topology = setup_.topology;
  for (std::uint32_t node = 0; node < topology.nodes(); ++node) {
    for (std::uint16_t port = 0; port < topology.ports[node]; ++port) {
      const auto& peer = wiring_.peer(node, port);
      if (peer.link == fabric::Wiring::no_link) continue;
      LinkOutcome& link = outcome.links.emplace_back();
      link.from = topology.name(node);
      link.to = topology.name(peer.node);
      link.port = port;
      const port::Counters& counters = network_.counters(node, port);
      link.frames = counters.frames;
      link.bytes = counters.bytes;
      link.queue_bytes_max = counters.queue_bytes_max;
      link.dropped = counters.dropped;
      link.marked = counters.marked;
      link.pauses = counters.pauses;
      link.paused = Time{counters.paused_ps};
      link.credit_stalls = counters.credit_stalls;
      link.lost = counters.lost;
      link.damaged = counters.damaged;
      link.watchdog_trips = counters.watchdog_trips;
      link.watchdog_dropped = counters.watchdog_dropped;
      const double seconds = outcome.end.to_seconds();
      const auto rate = static_cast<double>(topology.links[peer.link].bits_per_second);
      if (seconds > 0) link.utilisation = static_cast<double>(link.bytes) * 8 / seconds / rate;
      outcome.dropped += link.dropped;
      outcome.discarded += counters.discarded;
      outcome.unmapped += counters.unmapped;
      outcome.pkey_dropped += counters.pkey_dropped_in + counters.pkey_dropped_out;
      outcome.marked += link.marked;
      outcome.pauses += link.pauses;
      outcome.paused = sum(outcome.paused, link.paused);
      outcome.credit_stalls += link.credit_stalls;
    }
    if (topology.is_host(node)) continue;
    const fabric::Switch& at = network_.switch_at(node);
    outcome.lossless_dropped += at.lossless_drops();
    outcome.buffer_bytes_max = std::max(outcome.buffer_bytes_max, at.bytes_held_max());
  }
}

void Run::gather_hosts(Outcome& outcome) const {
  for (std::uint32_t host = 0; host < setup_.topology.hosts; ++host) {
    const device::Counters& counters = network_.adapter(host).counters();
    outcome.pkey_violations += counters.pkey_violations;
    outcome.notifications += counters.congestion_notifications;
    outcome.retransmitted += counters.transport.retransmitted_packets;
    outcome.timeouts += counters.transport.ack_timeouts;
  }
}

void Run::gather_stacks(Outcome& outcome) const {
  StackOutcome& stacks = outcome.stacks.emplace();
  Time busiest;
  for (std::uint32_t host = 0; host < setup_.topology.hosts; ++host) {
    const device::HostStack::Counters counters = network_.stack(host)->counters();
    stacks.hosts.push_back({setup_.topology.name(host), counters});
    stacks.cpu_seconds += (counters.busy_kernel + counters.busy_application).to_seconds();
    busiest = std::max(busiest, counters.busy_most);
    outcome.dropped += counters.receive_ring_drops;
  }
  const double gib = static_cast<double>(player_.bytes_done()) / (1u << 30);
  if (gib > 0) stacks.cpu_seconds_per_gib = stacks.cpu_seconds / gib;
  const double seconds = network_.now().to_seconds();
  if (seconds > 0) stacks.busiest_core = busiest.to_seconds() / seconds;
}

void Run::gather_faults(Outcome& outcome) const {
  FaultOutcome& faults = outcome.faults.emplace();
  const sim::FaultTotals totals = network_.fault_totals();
  faults.lost = totals.frames;
  faults.lost_bytes = totals.bytes;
  faults.unrouted = totals.unrouted;
  for (const LinkOutcome& link : outcome.links) {
    faults.damaged += link.damaged;
    faults.watchdog_trips += link.watchdog_trips;
    faults.watchdog_dropped += link.watchdog_dropped;
    if (link.pauses > 0) ++faults.ports_paused;
  }
  const Time first = setup_.network.faults.first();
  if (totals.last_loss > first) faults.recovery = totals.last_loss - first;
}

}  // namespace tulle::scenario
