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

workload::Job* take_job(TableReader& table, std::string_view key, Result<workload::TaskGraph> made,
                        const Servers& servers, Setup& setup) {
  const auto refuse = [&](const std::string& fault) -> workload::Job* {
    table.wrong(key, fault);
    return nullptr;
  };
  if (!made) return refuse(made.error().message);
  if (auto right = made->check(); !right) return refuse(right.error().message);
  workload::TaskGraph graph = std::move(*made);
  const workload::Job* before = setup.jobs.empty() ? nullptr : &setup.jobs.back();
  const std::uint32_t first_connection = before == nullptr ? 0 : before->end_connection();
  const std::uint32_t first_task = before == nullptr ? 0 : before->end_task();
  if (graph.size() > workload::TaskGraph::tasks_max - first_task) {
    return refuse(fmt::format("the jobs have more than the {} tasks of one run together",
                              workload::TaskGraph::tasks_max));
  }
  workload::TaskFlows flows = workload::flows_of(graph, servers, first_connection);
  const auto first_flow = static_cast<std::uint32_t>(setup.flows.size());
  if (auto added = workload::append(setup.flows, flows.flows); !added) {
    return refuse(added.error().message);
  }
  const Time computation = workload::time_without_communication(graph);
  workload::Job& job = setup.jobs.emplace_back(
      workload::Job{std::move(graph), servers, std::move(flows.task_of), {}, computation});
  job.first_flow = first_flow;
  job.first_connection = first_connection;
  job.first_task = first_task;
  job.connections = flows.connections;
  setup.first_parts.resize(setup.flows.size() + 1);
  for (std::uint32_t i = first_flow; i < setup.first_parts.size(); ++i) setup.first_parts[i] = i;
  return &job;
}

std::uint32_t read_storage_servers(TableReader& checkpoint) {
  if (!checkpoint.is_given()) return 0;
  return static_cast<std::uint32_t>(checkpoint.integer("storage", 1, 1, 65'536));
}

namespace {

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

// Reads the number of steps, and the table about checkpoints among them.
void read_steps(TableReader& table, workload::TrainingSettings& settings) {
  constexpr std::int64_t most = 1'000'000;
  TableReader checkpoint = table.table("checkpoint");
  workload::CheckpointSettings& read = settings.checkpoint;
  read.storage = read_storage_servers(checkpoint);
  const auto count = [&](std::string_view key, std::uint32_t otherwise) {
    return static_cast<std::uint32_t>(checkpoint.integer(key, otherwise, 1, most));
  };
  read.every = count("every", read.every);
  read.depth = count("depth", read.depth);
  read.overlaps = checkpoint.boolean("overlaps", read.overlaps);
  read.drive_bits_per_second = checkpoint.rate("drive_rate", read.drive_bits_per_second);
  read.piece_bytes = checkpoint.bytes("piece", read.piece_bytes);
  checkpoint.finish();
  const std::int64_t usual = read.storage > 0 ? std::int64_t{read.every} + 1 : 1;
  settings.steps = static_cast<std::uint32_t>(table.integer("steps", usual, 1, most + 1));
  if (read.storage > 0 && settings.steps <= read.every) {
    table.wrong("steps", fmt::format("must be more than {}: a step follows each checkpoint, and "
                                     "so shows what it costs",
                                     read.every));
  }
}

void build_step(TableReader& table, const JobSettings& job, Setup& setup) {
  auto model = read_named_model(table, "step", job.folder, setup);
  workload::TrainingSettings settings;
  if (model) settings = model->step;
  read_steps(table, settings);
  if (!model || table.findings().any()) return;
  settings.servers = job.servers;
  settings.seed = job.seed;
  auto training = workload::make_training(settings);
  if (!training) return table.wrong("step", training.error().message);
  workload::Job* taken = take_job(table, "step", std::move(training->graph), job.servers, setup);
  if (taken == nullptr) return;
  taken->step_ends = std::move(training->step_ends);
  taken->checkpoints = std::move(training->checkpoints);
  taken->checkpoint_bytes = static_cast<std::uint64_t>(settings.checkpoint_bytes());
}

void build_serving(TableReader& table, const JobSettings& job, Setup& setup) {
  auto model = read_named_model(table, "serve", job.folder, setup);
  if (!model) return;
  model->serving.servers = job.servers;
  model->serving.seed = job.seed;
  auto serving = workload::make_serving(model->serving);
  if (!serving) return table.wrong("serve", serving.error().message);
  workload::Job* taken = take_job(table, "serve", std::move(serving->graph), job.servers, setup);
  if (taken == nullptr) return;
  taken->computation = Time::zero();
  taken->batches = serving->batches;
  taken->requests = std::move(serving->requests);
}

void build_collective(TableReader& table, const JobSettings& job, Setup& setup) {
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
  settings.servers = job.servers;
  settings.servers.aggregation = setup.aggregation;
  if (settings.algorithm == Algorithm::in_network && !job.servers.places.empty()) {
    table.wrong("algorithm",
                "\"in-network\" goes with a collective in [traffic], which has all hosts: the "
                "trees of switches that reduce join all of them");
  }
  if (table.findings().any()) return;
  workload::Job* taken =
      take_job(table, "collective", workload::make_collective(settings), settings.servers, setup);
  if (taken == nullptr) return;
  taken->bandwidth = {settings.bytes,
                      workload::bus_factor(settings.collective, settings.servers.ranks())};
}

void build_experts(TableReader& table, const JobSettings& job, Setup& setup) {
  workload::ExpertSettings settings;
  read_experts(table, settings);
  settings.servers = job.servers;
  // GPUs ask their adapters themselves.
  settings.servers.message_delay = table.time("message_delay", Time::zero());
  settings.seed = job.seed;
  if (table.findings().any()) return;
  workload::Job* taken =
      take_job(table, "operation", workload::make_experts(settings), settings.servers, setup);
  if (taken != nullptr && settings.operation != workload::ExpertOperation::layer) {
    taken->bandwidth = workload::Bandwidth{workload::expert_bytes(settings)};
  }
}

}  // namespace

const std::array<JobPattern, job_patterns>& all_job_patterns() {
  static constexpr std::array<JobPattern, job_patterns> all = {{{"collective", build_collective},
                                                                {"experts", build_experts},
                                                                {"step", build_step},
                                                                {"serve", build_serving},
                                                                {"trace", build_trace}}};
  return all;
}

}  // namespace tulle::scenario
