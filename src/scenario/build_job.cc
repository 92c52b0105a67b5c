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

Servers read_servers(TableReader table, const std::string& folder, std::uint32_t hosts) {
  Servers servers;
  servers.gpus = servers.adapters = 1;
  servers.scale_up_bits_per_second = 3'600'000'000'000;
  servers.scale_up_latency = Time::microseconds(1);
  read_profile(table, folder, "servers", [&](TableReader& file) { read_server(file, servers); });
  read_server(table, servers);
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

void take_job(TableReader& table, std::string_view key, Result<workload::TaskGraph> made,
              const Servers& servers, Setup& setup) {
  if (!made) return table.wrong(key, made.error().message);
  if (auto right = made->check(); !right) return table.wrong(key, right.error().message);
  workload::TaskGraph graph = std::move(*made);
  workload::TaskFlows flows = workload::flows_of(graph, servers);
  const Time computation = workload::time_without_communication(graph);
  setup.job = workload::Job{std::move(graph), servers, std::move(flows.task_of), {}, computation};
  setup.flows = std::move(flows.flows);
  setup.first_parts.resize(setup.flows.size() + 1);
  for (std::uint32_t i = 0; i < setup.first_parts.size(); ++i) setup.first_parts[i] = i;
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
  const Servers servers = read_servers(table.table("servers"), folder, setup.topology.adapters());
  auto model = read_named_model(table, "step", folder, setup);
  if (!model) return;
  model->step.servers = servers;
  model->step.seed = setup.network.seed;
  take_job(table, "step", workload::make_training_step(model->step), servers, setup);
}

void build_serving(TableReader& table, const std::string& folder, Setup& setup) {
  const Servers servers = read_servers(table.table("servers"), folder, setup.topology.adapters());
  auto model = read_named_model(table, "serve", folder, setup);
  if (!model) return;
  model->serving.servers = servers;
  model->serving.seed = setup.network.seed;
  auto serving = workload::make_serving(model->serving);
  if (!serving) return table.wrong("serve", serving.error().message);
  take_job(table, "serve", std::move(serving->graph), servers, setup);
  if (!setup.job) return;
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
  settings.servers = read_servers(table.table("servers"), folder, setup.topology.adapters());
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
  settings.servers = read_servers(table.table("servers"), folder, setup.topology.adapters());
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
