#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "study/report/quantity.h"
#include "study/scenario/build.h"
#include "study/scenario/reading.h"
#include "study/workload/distribution.h"
#include "study/workload/flow_file.h"

namespace tulle::scenario {

using workload::Flows;
using workload::SizeDistribution;

namespace {

constexpr std::array<std::string_view, 8> flow_patterns = {
    "permutation", "shift", "incast", "all-to-all", "poisson", "ring-all-reduce", "file", "jobs"};
enum class Pattern {
  permutation,
  shift,
  incast,
  all_to_all,
  poisson,
  ring_all_reduce,
  file,
  jobs,  // those of [[jobs]]; behind it come the patterns of one job
};
constexpr std::string_view goes_with_flows = "goes with flows, and not with a job";
constexpr bool is_job(Pattern pattern) { return pattern >= Pattern::jobs; }

Pattern read_pattern(TableReader& table, Pattern otherwise = Pattern::permutation) {
  std::array<std::string_view, flow_patterns.size() + job_patterns> names{};
  std::ranges::copy(flow_patterns, names.begin());
  std::ranges::transform(all_job_patterns(), names.begin() + flow_patterns.size(),
                         &JobPattern::name);
  return table.choice("pattern", std::span<const std::string_view>(names), otherwise);
}

constexpr std::array<std::string_view, 4> size_names = {"fixed", "web-search", "hadoop", "file"};
enum class Sizes { fixed, web_search, hadoop, file };

constexpr std::array<std::string_view, 2> round_names = {"at-once", "staggered"};
constexpr std::array<std::string_view, 2> payload_names = {"ghost", "bytes"};
constexpr std::array<std::string_view, 2> jitter_names = {"flow", "host"};

Result<SizeDistribution> sizes(TableReader& table, const std::string& folder) {
  switch (table.choice("sizes", size_names, Sizes::web_search)) {
    case Sizes::fixed:
      return SizeDistribution::fixed(table.bytes("bytes", 1'000'000));
    case Sizes::hadoop:
      return SizeDistribution::hadoop();
    case Sizes::file: {
      auto path = find_file(folder, table.text("sizes_file", ""));
      if (!path) return path.error();
      auto text = read_file(*path);
      if (!text) return text.error();
      return SizeDistribution::from_csv(*text, *path);
    }
    default:
      return SizeDistribution::web_search();
  }
}

Result<Flows> poisson(TableReader& table, const std::string& folder,
                      const fabric::Topology& topology, std::uint32_t hosts, std::uint64_t seed,
                      Time start) {
  workload::PoissonSettings settings;
  settings.hosts = hosts;
  settings.link_bits_per_second = host_bits_per_second(topology) * topology.planes;
  settings.load = table.number("load", 0.5, 1e-6, 1);
  settings.duration = table.time("duration", Time::milliseconds(1), last_moment);
  settings.start = start;
  settings.seed = seed;
  auto distribution = sizes(table, folder);
  if (!distribution) return distribution.error();
  settings.sizes = std::move(*distribution);
  return workload::poisson(settings);
}

Result<Flows> ring(TableReader& table, std::uint32_t hosts, Time start) {
  workload::RingAllReduceSettings settings;
  settings.bytes = table.bytes("bytes", 1'000'000);
  settings.rings = static_cast<std::uint32_t>(table.integer("rings", 1, 1, 1'024));
  settings.chunks = static_cast<std::uint32_t>(table.integer("chunks", 1, 1, 1'024));
  settings.start = start;
  // There are as many rings side by side as rails, each through the hosts of one rail. Data on
  // several rails of one server are summed within the server, without the network.
  const auto rails = static_cast<std::uint32_t>(table.integer("rails", 1, 1, hosts));
  if (hosts % rails != 0) return Error{fmt::format("rails must divide {}, the hosts", hosts)};
  Flows flows;
  for (std::uint32_t rail = 0; rail < rails; ++rail) {
    settings.ring.clear();
    for (std::uint32_t host = rail; host < hosts; host += rails) settings.ring.push_back(host);
    auto added = workload::ring_all_reduce(settings);
    if (!added) return added.error();
    if (auto appended = workload::append(flows, *added); !appended) return appended.error();
  }
  return flows;
}

Result<Flows> read_flows(const std::string& folder, const std::string& name, std::uint32_t hosts) {
  auto path = find_file(folder, name);
  if (!path) return path.error();
  auto text = read_file(*path);
  if (!text) return text.error();
  return workload::parse_flows(*text, *path, hosts);
}

Result<Flows> from_file(TableReader& table, const std::string& folder, std::uint32_t hosts) {
  const std::string name = table.text("file", "");
  if (name.empty()) return Error{"file is needed: a table of flows, src,dst,bytes,start_ns"};
  return read_flows(folder, name, hosts);
}

// Builds a pattern once, among `hosts` hosts.
Result<Flows> build(TableReader& table, Pattern pattern, const std::string& folder,
                    const fabric::Topology& topology, std::uint32_t hosts, std::uint64_t seed) {
  const Time start = table.time("start", Time::zero(), last_moment);
  switch (pattern) {
    case Pattern::permutation:
      return workload::permutation({hosts, table.bytes("bytes", 1'000'000), start, seed});
    case Pattern::shift:
      return workload::shift({hosts,
                              static_cast<std::uint32_t>(table.integer("distance", 1, 1, hosts)),
                              table.bytes("bytes", 1'000'000), start});
    case Pattern::incast: {
      workload::IncastSettings settings;
      settings.hosts = hosts;
      settings.senders =
          static_cast<std::uint32_t>(table.integer("senders", hosts - 1, 1, hosts - 1));
      if (table.has("receiver")) {
        settings.receiver = static_cast<std::uint32_t>(table.integer("receiver", 0, 0, hosts - 1));
      }
      settings.bytes = table.bytes("bytes", 1'000'000);
      settings.start = start;
      settings.seed = seed;
      return workload::incast(settings);
    }
    case Pattern::all_to_all:
      return workload::all_to_all(
          {hosts, table.bytes("bytes", 100'000),
           table.choice("rounds", round_names, workload::AllToAllSettings::Rounds::staggered),
           start});
    case Pattern::poisson:
      return poisson(table, folder, topology, hosts, seed, start);
    default:
      return ring(table, hosts, start);
  }
}

// Builds a pattern among some of the hosts, as many times as the table asks for.
Result<Flows> build_kind(TableReader& table, const std::string& folder,
                         const fabric::Topology& topology, std::uint64_t seed) {
  const Pattern pattern = read_pattern(table);
  if (is_job(pattern)) return Error{"a job goes without other traffic, and has all hosts"};
  const std::vector<std::uint32_t> members = read_hosts(table, "hosts", topology.whole_adapters());
  const auto times = static_cast<std::uint64_t>(table.integer("times", 1, 1, 1'000'000));
  const Time every = table.time("every", Time::zero(), last_moment);
  if (pattern == Pattern::file) {
    if (!members.empty() || times > 1) return Error{"\"file\" itself defines who sends, and when"};
    return from_file(table, folder, topology.whole_adapters());
  }
  const auto hosts =
      members.empty() ? topology.whole_adapters() : static_cast<std::uint32_t>(members.size());
  if (members.size() == 1) return Error{"hosts must be two or more"};
  Flows flows;
  for (std::uint64_t i = 0; i < times; ++i) {
    auto once = build(table, pattern, folder, topology, hosts, seed + i);
    if (!once) return once.error();
    for (workload::Flow& flow : *once) {
      flow.start = flow.start + Time{every.ps * static_cast<std::int64_t>(i)};
      if (members.empty()) continue;
      flow.source = members[flow.source];
      flow.destination = members[flow.destination];
    }
    if (auto appended = workload::append(flows, *once); !appended) return appended.error();
  }
  return flows;
}

// Adds the traffic of [[traffic.and]] to the flows, and the names of all kinds to the setup.
void add_kinds(TableReader& table, const std::string& folder, std::uint64_t seed, Setup& setup,
               Flows& flows) {
  const std::string name = table.text("name", "");
  std::vector<TableReader> others = table.tables("and");
  if (name.empty() && others.empty()) return;
  setup.kinds.push_back({name.empty() ? "traffic" : name, 0});
  for (TableReader& other : others) {
    const std::string called = other.text("name", "");
    const bool is_new = std::ranges::none_of(
        setup.kinds, [&](const TrafficKind& kind) { return kind.name == called; });
    if (called.empty() || !is_new) {
      other.wrong("name", "is needed, and another than the others'");
    }
    setup.kinds.push_back({called, flows.size()});
    const auto own_seed = static_cast<std::uint64_t>(other.integer(
        "seed", static_cast<std::int64_t>(seed >> 1), 0, std::numeric_limits<std::int64_t>::max()));
    auto more = build_kind(other, folder, setup.topology, own_seed);
    if (!more) {
      other.wrong("pattern", more.error().message);
    } else if (auto appended = workload::append(flows, *more); !appended) {
      other.wrong("pattern", appended.error().message);
    }
    other.finish();
  }
}

// Checks that payloads fit in memory. Each byte is there twice, at its source and at its
// destination.
void check_payload_memory(TableReader& table, const Flows& flows, std::uint64_t most) {
  std::uint64_t needed = 0;
  for (const workload::Flow& flow : flows) {
    needed += 2 * flow.bytes;
    if (needed <= most) continue;
    return table.wrong(
        "payload",
        fmt::format(
            "\"bytes\" needs all flows' in memory, twice, which is more than payload_memory, "
            "{}; take \"ghost\", or allow more",
            report::bytes_text(static_cast<double>(most))));
  }
}

// Checks that there are ports for flows over TCP.
void check_stream_flows(TableReader& table, const Flows& flows, const Setup& setup) {
  if (!setup.network.host.plays_tcp || flows.size() <= workload::stream_flows_max) return;
  table.wrong("pattern", fmt::format("makes {} flows; over TCP there may be {}, by their ports",
                                     flows.size(), workload::stream_flows_max));
}

// Fails if a flow has no way, since its ends are on rails that are separate networks.
Result<void> check_rails(const Flows& flows, const fabric::Topology& topology) {
  const std::uint32_t rails = topology.separate_rails();
  if (rails == 1) return {};
  for (const workload::Flow& flow : flows) {
    if (flow.source % rails == flow.destination % rails) continue;
    return Error{
        fmt::format("host {} sends to host {}, which is on another rail, and the rails of this "
                    "topology are separate; take hosts of one rail, or \"rail-optimised\"",
                    flow.source, flow.destination)};
  }
  return {};
}

// Cuts each message into the flows that share it.
Result<std::vector<std::uint32_t>> deal(Flows& flows, std::uint32_t queue_pairs, bool sprays,
                                        const fabric::Topology& topology) {
  if (topology.planes == 1) return workload::split(flows, queue_pairs);
  if (queue_pairs > 1) return Error{"goes with one plane; in planes each part has a queue pair"};
  return workload::deal_over_planes(flows, topology.planes, sprays);
}

// A job itself defines when its messages begin, and excludes other flows. The keys that all
// patterns have in common were read.
void build_job(TableReader& table, Pattern pattern, std::vector<TableReader> jobs,
               const std::string& folder, Setup& setup) {
  const JobSettings settings{folder, read_servers(table, folder, setup.topology),
                             setup.network.seed};
  if (pattern == Pattern::jobs) {
    build_jobs(std::move(jobs), settings, setup);
  } else {
    const auto number = static_cast<std::size_t>(pattern) - flow_patterns.size();
    all_job_patterns()[number].build(table, settings, setup);
  }
  check_stream_flows(table, setup.flows, setup);
  for (const std::string_view key : {"and_file", "name"}) {
    if (!table.text(key, "").empty()) table.wrong(key, goes_with_flows);
  }
  if (!table.tables("and").empty()) table.wrong("and", goes_with_flows);
  table.finish();
}

workload::JitterSettings read_jitter(TableReader& table, std::uint64_t seed) {
  workload::JitterSettings jitter;
  jitter.jitter = table.time("jitter", Time::zero(), last_moment);
  jitter.per = table.choice("jitter_per", jitter_names, workload::JitterSettings::Per::flow);
  jitter.seed = seed;
  return jitter;
}

// Reads more traffic on top of the pattern, such as a victim of an incast.
void append_flows_of_file(TableReader& table, const std::string& name, const std::string& folder,
                          const fabric::Topology& topology, std::vector<workload::Flow>& flows) {
  if (name.empty()) return;
  auto more = read_flows(folder, name, topology.whole_adapters());
  if (!more) {
    table.wrong("and_file", more.error().message);
  } else if (auto appended = workload::append(flows, *more); !appended) {
    table.wrong("and_file", appended.error().message);
  }
}

}  // namespace

void build_traffic(TableReader table, std::vector<TableReader> jobs, const std::string& folder,
                   Setup& setup) {
  const fabric::Topology& topology = setup.topology;
  if (!table.is_given() && jobs.empty()) {
    table.findings().add(0, "traffic",
                         "is required: it describes who sends what to whom; or use [[jobs]]");
    return;
  }
  const auto own_seed = static_cast<std::uint64_t>(
      table.integer("seed", static_cast<std::int64_t>(setup.network.seed), 0,
                    std::numeric_limits<std::int64_t>::max()));
  const workload::JitterSettings jitter = read_jitter(table, own_seed);
  setup.player.notify = table.boolean("notify", false);
  const bool carries_bytes = table.choice<std::size_t>("payload", payload_names, 0) == 1;
  setup.player.carries_bytes = setup.network.carries_bytes = carries_bytes;
  const std::uint64_t payload_memory = table.bytes("payload_memory", 1'000'000'000);
  const auto queue_pairs = static_cast<std::uint32_t>(table.integer("queue_pairs", 1, 1, 1 << 20));
  const Pattern pattern = read_pattern(table, jobs.empty() ? Pattern::permutation : Pattern::jobs);
  if ((pattern == Pattern::jobs) == jobs.empty()) {
    return table.wrong("pattern", jobs.empty() ? "\"jobs\" needs the list [[jobs]]"
                                               : "must be \"jobs\", or absent, with [[jobs]]");
  }
  if (is_job(pattern)) {
    if (jitter.jitter > Time::zero()) table.wrong("jitter", goes_with_flows);
    if (queue_pairs > 1) table.wrong("queue_pairs", goes_with_flows);
    build_job(table, pattern, std::move(jobs), folder, setup);
    if (carries_bytes) check_payload_memory(table, setup.flows, payload_memory);
    return;
  }
  const bool sprays = read_plane(table, topology);
  auto flows = build_kind(table, folder, topology, own_seed);
  const std::string more_name = table.text("and_file", "");
  if (flows) {
    append_flows_of_file(table, more_name, folder, topology, *flows);
    add_kinds(table, folder, own_seed, setup, *flows);
    if (auto right = check_rails(*flows, topology); !right) {
      return table.wrong("pattern", right.error().message);
    }
    auto parts = deal(*flows, queue_pairs, sprays, topology);
    if (!parts) return table.wrong("queue_pairs", parts.error().message);
    setup.first_parts = std::move(*parts);
  }
  if (flows && std::any_of(flows->begin(), flows->end(), [](const workload::Flow& flow) {
        return flow.bytes > workload::flow_bytes_max;
      })) {
    table.wrong("bytes", "a flow has at most 32 TiB");
  }
  if (flows) check_stream_flows(table, *flows, setup);
  if (flows && carries_bytes) check_payload_memory(table, *flows, payload_memory);
  table.finish();
  if (flows && jitter.jitter > Time::zero()) {
    if (auto added = workload::add_jitter(*flows, jitter); !added) {
      table.wrong("jitter", added.error().message);
    }
  }
  if (!flows) return table.wrong("pattern", flows.error().message);
  if (std::ranges::any_of(*flows, [](const auto& flow) { return flow.start > last_moment; })) {
    table.wrong("start", fmt::format("a flow begins after {}, the end of virtual time",
                                     report::time_text(last_moment)));
  }
  setup.flows = std::move(*flows);
}

}  // namespace tulle::scenario
