#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "scenario/build.h"
#include "scenario/profile.h"
#include "workload/task_player.h"

namespace tulle::scenario {

using workload::Algorithm;
using workload::Collective;
using workload::CollectiveSettings;
using workload::Servers;

namespace {

constexpr std::array<std::string_view, 5> collective_names = {
    "all-reduce", "reduce-scatter", "all-gather", "broadcast", "all-to-all"};
constexpr std::array<std::string_view, 6> algorithm_names = {
    "automatic", "ring", "tree", "hierarchical", "halving-doubling", "direct"};

void read_server(TableReader& table, Servers& servers) {
  constexpr std::int64_t most = 1'024;
  servers.gpus = static_cast<std::uint32_t>(table.integer("gpus", servers.gpus, 1, most));
  servers.adapters =
      static_cast<std::uint32_t>(table.integer("adapters", servers.adapters, 1, most));
  servers.scale_up_bits_per_second = table.rate("scale_up_rate", servers.scale_up_bits_per_second);
  servers.scale_up_latency = table.time("scale_up_latency", servers.scale_up_latency);
  servers.message_delay = table.time("message_delay", servers.message_delay);
}

// Reads [traffic.servers]. All hosts of the topology are adapters of servers.
Servers read_servers(TableReader table, const std::string& folder, std::uint32_t hosts) {
  Servers servers;
  servers.gpus = servers.adapters = 1;
  servers.scale_up_bits_per_second = 3'600'000'000'000;
  servers.scale_up_latency = Time::microseconds(1);
  read_profile(table, folder, "servers", [&](TableReader& file) { read_server(file, servers); });
  read_server(table, servers);
  if (servers.gpus % servers.adapters != 0) {
    table.wrong("adapters", fmt::format("must divide {}, the GPUs of a server", servers.gpus));
  } else if (hosts % servers.adapters != 0) {
    table.wrong("adapters", fmt::format("must divide {}, the hosts: each is one adapter", hosts));
  } else {
    servers.servers = hosts / servers.adapters;
  }
  table.finish();
  return servers;
}

}  // namespace

void build_job(TableReader& table, const std::string& folder, Setup& setup) {
  CollectiveSettings settings;
  settings.collective = table.choice("collective", collective_names, Collective::all_reduce);
  const auto algorithm = table.choice<std::size_t>("algorithm", algorithm_names, 0);
  if (algorithm > 0) settings.algorithm = static_cast<Algorithm>(algorithm - 1);
  settings.bytes = table.bytes("bytes", 256u << 20);
  settings.channels = static_cast<std::uint32_t>(table.integer("channels", 0, 0, 1'024));
  settings.chunk_bytes = table.bytes("chunk", settings.chunk_bytes);
  settings.window = static_cast<std::uint32_t>(table.integer("window", settings.window, 1, 65'536));
  settings.servers = read_servers(table.table("servers"), folder, setup.topology.hosts);
  if (table.findings().any()) return;
  auto graph = workload::make_collective(settings);
  if (!graph) return table.wrong("collective", graph.error().message);
  if (auto right = graph->check(); !right) return table.wrong("collective", right.error().message);
  workload::TaskFlows flows = workload::flows_of(*graph, settings.servers);
  setup.job =
      workload::Job{std::move(*graph), settings.servers, std::move(flows.task_of), settings};
  setup.flows = std::move(flows.flows);
  setup.first_parts.resize(setup.flows.size() + 1);
  for (std::uint32_t i = 0; i < setup.first_parts.size(); ++i) setup.first_parts[i] = i;
}

}  // namespace tulle::scenario
