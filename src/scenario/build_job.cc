#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "scenario/build.h"
#include "scenario/model_file.h"
#include "scenario/profile.h"
#include "workload/collectives.h"
#include "workload/experts.h"
#include "workload/rails.h"
#include "workload/serving.h"
#include "workload/task_player.h"
#include "workload/training.h"

namespace tulle::scenario {

using workload::Algorithm;
using workload::Collective;
using workload::CollectiveSettings;
using workload::Servers;

namespace {

void read_server(TableReader& table, Servers& servers) {
  constexpr std::int64_t most = 1'024;
  servers.gpus = static_cast<std::uint32_t>(table.integer("gpus", servers.gpus, 1, most));
  servers.adapters =
      static_cast<std::uint32_t>(table.integer("adapters", servers.adapters, 1, most));
  servers.scale_up_bits_per_second = table.rate("scale_up_rate", servers.scale_up_bits_per_second);
  servers.channel_bits_per_second = table.rate("channel_rate", servers.channel_bits_per_second);
  servers.scale_up_latency = table.time("scale_up_latency", servers.scale_up_latency);
  servers.scale_up_reduce_bits_per_second =
      table.rate("scale_up_reduce_rate", servers.scale_up_reduce_bits_per_second);
  servers.scale_up_reduce_latency =
      table.time("scale_up_reduce_latency", servers.scale_up_reduce_latency);
  servers.message_delay = table.time("message_delay", servers.message_delay);
  servers.reduce_bits_per_second = table.rate("reduce_rate", servers.reduce_bits_per_second);
  servers.cores = static_cast<std::uint32_t>(table.integer("cores", servers.cores, 0, most));
  servers.message_work = table.time("message_work", servers.message_work);
}

}  // namespace

namespace {

constexpr std::array<std::string_view, 3> across_names = {"automatic", "network", "scale-up"};
enum class Across { automatic, network, scale_up };

// Reads how messages get to GPUs on other rails. By default they take the network if they can.
void read_across_rails(TableReader& table, const fabric::Topology& topology, Across across,
                       Servers& servers) {
  const std::uint32_t rails = topology.separate_rails();
  if (rails > 1 && servers.adapters != rails) {
    return table.wrong("adapters",
                       fmt::format("must be {}, the rails of this topology, which are separate: "
                                   "each has an adapter of each server",
                                   rails));
  }
  servers.relays = across == Across::scale_up || (across == Across::automatic && rails > 1);
  if (across == Across::scale_up && servers.adapters == 1) {
    table.wrong("across_rails", "\"scale-up\" goes with servers of several adapters");
  }
}

// Fails if a message has to cross between rails that have no link between them.
Result<void> check_rails(const workload::TaskGraph& graph, const Servers& servers,
                         const fabric::Topology& topology) {
  if (topology.separate_rails() == 1 || servers.relays) return {};
  for (workload::TaskGraph::Index i = 0; i < graph.size(); ++i) {
    if (!workload::crosses_rails(graph[i], servers)) continue;
    return Error{
        fmt::format("GPU {} sends to GPU {}, which is on another rail, and the rails of this "
                    "topology are separate; take servers.across_rails = \"scale-up\"",
                    graph[i].rank, graph[i].peer)};
  }
  return {};
}

// Fails if the parts of messages in planes would be more flows than a run can have.
Result<void> check_parts(const workload::TaskGraph& graph, const Servers& servers) {
  if (servers.planes == 1) return {};
  std::uint64_t messages = 0;
  for (workload::TaskGraph::Index i = 0; i < graph.size(); ++i) messages += graph[i].is_message();
  if (messages * (servers.sprays ? servers.planes : 1) <= workload::flows_max) return {};
  return Error{
      fmt::format("{} messages in {} planes are more than {} flows; take fewer GPUs or "
                  "planes, or plane = \"flow\"",
                  messages, servers.planes, workload::flows_max)};
}

}  // namespace

bool read_plane(TableReader& traffic, const fabric::Topology& topology) {
  constexpr std::array<std::string_view, 2> names = {"spray", "flow"};
  const bool sprays = traffic.choice<std::size_t>("plane", names, 0) == 0;
  if (!sprays && topology.planes == 1) {
    traffic.wrong("plane", "\"flow\" goes with topology.planes of 2 or more");
  }
  return sprays;
}

Servers read_servers(TableReader& traffic, const std::string& folder,
                     const fabric::Topology& topology) {
  TableReader table = traffic.table("servers");
  const std::uint32_t hosts = topology.whole_adapters();
  Servers servers;
  servers.planes = topology.planes;
  servers.sprays = read_plane(traffic, topology);
  servers.gpus = servers.adapters = 1;
  servers.scale_up_bits_per_second = 3'600'000'000'000;
  servers.scale_up_latency = Time::microseconds(1);
  read_profile(table, folder, "servers", [&](TableReader& file) { read_server(file, servers); });
  read_server(table, servers);
  const Across across = table.choice("across_rails", across_names, Across::automatic);
  servers.relay_bytes = table.bytes("relay_chunk", servers.relay_bytes);
  if (servers.relay_bytes == 0) table.wrong("relay_chunk", "must be 1B or more");
  if (servers.cores > 0 && servers.adapters > 1) {
    table.wrong("cores", "goes with servers of one adapter");
  } else if (servers.cores > 0 && servers.channel_bits_per_second > 0) {
    table.wrong("channel_rate", "goes with GPUs, and cores have no channels");
  } else if (servers.gpus % servers.adapters != 0) {
    table.wrong("adapters", fmt::format("must divide {}, the GPUs of a server", servers.gpus));
  } else if (hosts % servers.adapters != 0) {
    table.wrong("adapters", fmt::format("must divide {}, the hosts: each is one adapter", hosts));
  } else {
    servers.servers = hosts / servers.adapters;
    read_across_rails(table, topology, across, servers);
  }
  table.finish();
  return servers;
}

namespace {

void read_experts(TableReader& table, workload::ExpertSettings& settings) {
  const auto count = [&](std::string_view key, std::uint32_t otherwise, std::int64_t least) {
    return static_cast<std::uint32_t>(table.integer(key, otherwise, least, 10'000'000));
  };
  settings.operation =
      table.choice("operation", std::span<const std::string_view>(workload::expert_operation_names),
                   settings.operation);
  settings.route = table.choice(
      "route", std::span<const std::string_view>(workload::expert_route_names), settings.route);
  settings.group = count("group", settings.group, 0);
  settings.experts = count("experts", settings.experts, 0);
  settings.experts_of_token = count("experts_of_token", settings.experts_of_token, 1);
  settings.servers_of_token = count("servers_of_token", settings.servers_of_token, 0);
  settings.tokens = count("tokens", settings.tokens, 1);
  settings.dispatch_bytes = table.bytes("dispatch_bytes", settings.dispatch_bytes);
  settings.combine_bytes = table.bytes("combine_bytes", settings.combine_bytes);
  settings.chunk_tokens = count("chunk_tokens", settings.chunk_tokens, 1);
  settings.skew = table.number("skew", settings.skew, 0, 10);
  settings.overhead = table.time("overhead", settings.overhead);
  settings.attention_time = table.time("attention_time", settings.attention_time);
  settings.token_time = table.time("token_time", settings.token_time);
  settings.layers = count("layers", settings.layers, 1);
  settings.micro_batches = count("micro_batches", settings.micro_batches, 1);
}

}  // namespace

std::vector<workload::TaskGraph::Index> take_job(TableReader& table, std::string_view key,
                                                 Result<workload::TaskGraph> made,
                                                 const Servers& servers, Setup& setup) {
  const auto refuse = [&](const Error& error) {
    table.wrong(key, error.message);
    return std::vector<workload::TaskGraph::Index>();
  };
  if (table.findings().any()) return {};
  if (!made) return refuse(made.error());
  if (auto right = made->check(); !right) return refuse(right.error());
  if (auto right = check_rails(*made, servers, setup.topology); !right) {
    return refuse(right.error());
  }
  std::vector<workload::TaskGraph::Index> places;
  workload::TaskGraph graph = std::move(*made);
  if (servers.relays) {
    auto relayed = workload::with_relays(graph, servers);
    if (!relayed) return refuse(relayed.error());
    graph = std::move(relayed->graph);
    places = std::move(relayed->place);
  }
  if (auto right = check_parts(graph, servers); !right) return refuse(right.error());
  workload::TaskFlows flows = workload::flows_of(graph, servers);
  const Time computation = workload::time_without_communication(graph);
  setup.job = workload::Job{std::move(graph), servers, std::move(flows.task_of), {}, computation};
  setup.flows = std::move(flows.flows);
  const std::vector<workload::TaskGraph::Index>& task_of = setup.job->task_of;
  for (std::uint32_t i = 0; i < task_of.size(); ++i) {
    if (i == 0 || task_of[i] != task_of[i - 1]) setup.first_parts.push_back(i);
  }
  setup.first_parts.push_back(static_cast<std::uint32_t>(task_of.size()));
  return places;
}

// Reads the model's file, which the key names. Returns nothing after an error.
std::optional<ModelFile> read_named_model(TableReader& table, std::string_view key,
                                          const std::string& folder, Setup& setup) {
  const std::string name = table.text(key, "");
  if (name.empty()) {
    table.wrong(key, "is needed: a file of a model");
    return {};
  }
  auto model = read_model_file((std::filesystem::path(folder) / name).string(), folder);
  if (!model) table.wrong(key, model.error().message);
  if (table.findings().any()) return {};
  setup.may_be_trains = true;
  return std::move(*model);
}

void build_step(TableReader& table, const std::string& folder, Setup& setup) {
  const Servers servers = read_servers(table, folder, setup.topology);
  auto model = read_named_model(table, "step", folder, setup);
  if (!model) return;
  model->step.servers = servers;
  model->step.seed = setup.network.seed;
  take_job(table, "step", workload::make_training_step(model->step), servers, setup);
}

void build_serving(TableReader& table, const std::string& folder, Setup& setup) {
  const Servers servers = read_servers(table, folder, setup.topology);
  auto model = read_named_model(table, "serve", folder, setup);
  if (!model) return;
  model->serving.servers = servers;
  model->serving.seed = setup.network.seed;
  auto serving = workload::make_serving(model->serving);
  if (!serving) return table.wrong("serve", serving.error().message);
  const auto places = take_job(table, "serve", std::move(serving->graph), servers, setup);
  if (!setup.job) return;
  for (workload::Request& request : serving->requests) {
    if (places.empty()) break;
    request.prefill = places[request.prefill];
    request.decode = places[request.decode];
  }
  setup.job->computation = Time::zero();
  setup.job->batches = serving->batches;
  setup.job->requests = std::move(serving->requests);
}

void build_collective(TableReader& table, const std::string& folder, Setup& setup) {
  CollectiveSettings settings;
  settings.collective =
      table.choice("collective", std::span<const std::string_view>(workload::collective_names),
                   Collective::all_reduce);
  std::array<std::string_view, workload::algorithm_names.size() + 1> algorithms{"automatic"};
  std::ranges::copy(workload::algorithm_names, algorithms.begin() + 1);
  const auto algorithm = table.choice<std::size_t>("algorithm", algorithms, 0);
  if (algorithm > 0) settings.algorithm = static_cast<Algorithm>(algorithm - 1);
  settings.bytes = table.bytes("bytes", 256u << 20);
  settings.channels = static_cast<std::uint32_t>(table.integer("channels", 0, 0, 1'024));
  settings.chunk_bytes = table.bytes("chunk", settings.chunk_bytes);
  settings.window = static_cast<std::uint32_t>(table.integer("window", settings.window, 1, 65'536));
  settings.servers = read_servers(table, folder, setup.topology);
  settings.servers.aggregation = setup.aggregation;
  if (table.findings().any()) return;
  take_job(table, "collective", workload::make_collective(settings), settings.servers, setup);
  if (!setup.job) return;
  setup.job->bandwidth = {settings.bytes,
                          workload::bus_factor(settings.collective, settings.servers.ranks())};
}

void build_experts(TableReader& table, const std::string& folder, Setup& setup) {
  workload::ExpertSettings settings;
  read_experts(table, settings);
  settings.servers = read_servers(table, folder, setup.topology);
  // GPUs ask their adapters themselves.
  settings.servers.message_delay = table.time("message_delay", Time::zero());
  settings.seed = setup.network.seed;
  if (table.findings().any()) return;
  take_job(table, "operation", workload::make_experts(settings), settings.servers, setup);
  if (setup.job && settings.operation != workload::ExpertOperation::layer) {
    setup.job->bandwidth = workload::Bandwidth{workload::expert_bytes(settings)};
  }
}

}  // namespace tulle::scenario
