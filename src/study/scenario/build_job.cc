#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "study/scenario/build.h"
#include "study/scenario/model_file.h"
#include "study/scenario/profile.h"
#include "study/scenario/reading.h"
#include "study/workload/collectives.h"
#include "study/workload/experts.h"
#include "study/workload/protocol.h"
#include "study/workload/rails.h"
#include "study/workload/serving.h"
#include "study/workload/task_player.h"
#include "study/workload/training.h"

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
  const auto read_costs = [&](std::string_view latency, std::string_view delay,
                              std::optional<workload::StepCosts>& costs) {
    if (!costs && !table.has(latency) && !table.has(delay)) return;
    const workload::StepCosts usual =
        costs.value_or(workload::StepCosts{servers.scale_up_latency, servers.message_delay});
    costs = {table.time(latency, usual.scale_up_latency), table.time(delay, usual.message_delay)};
  };
  read_costs("ll_latency", "ll_message_delay", servers.ll);
  read_costs("ll128_latency", "ll128_message_delay", servers.ll128);
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

namespace {

// Adds the flows of a job to the setup's, and notes which of them are parts of one message. All of
// a message's parts follow one another.
Result<void> add_flows(const workload::TaskFlows& flows, Setup& setup) {
  const auto first_flow = static_cast<std::uint32_t>(setup.flows.size());
  if (auto added = workload::append(setup.flows, flows.flows); !added) return added;
  std::vector<std::uint32_t>& first = setup.first_parts;
  if (!first.empty()) first.pop_back();  // the number of all flows
  for (std::uint32_t i = 0; i < flows.task_of.size(); ++i) {
    const bool is_first = i == 0 || flows.task_of[i] != flows.task_of[i - 1];
    if (is_first) first.push_back(first_flow + i);
  }
  first.push_back(static_cast<std::uint32_t>(setup.flows.size()));
  return {};
}

}  // namespace

TakenJob take_job(TableReader& table, std::string_view key, Result<workload::TaskGraph> made,
                  const Servers& servers, Setup& setup) {
  const auto refuse = [&](const std::string& fault) {
    table.wrong(key, fault);
    return TakenJob();
  };
  if (table.findings().any()) return {};
  if (!made) return refuse(made.error().message);
  if (auto right = made->check(); !right) return refuse(right.error().message);
  if (auto right = check_rails(*made, servers, setup.topology); !right) {
    return refuse(right.error().message);
  }
  TakenJob taken;
  workload::TaskGraph graph = std::move(*made);
  if (servers.relays) {
    auto relayed = workload::with_relays(graph, servers);
    if (!relayed) return refuse(relayed.error().message);
    graph = std::move(relayed->graph);
    taken.places.place = std::move(relayed->place);
  }
  if (auto right = check_parts(graph, servers); !right) return refuse(right.error().message);
  const workload::Job* before = setup.jobs.empty() ? nullptr : &setup.jobs.back();
  const std::uint32_t first_connection = before == nullptr ? 0 : before->end_connection();
  const std::uint32_t first_task = before == nullptr ? 0 : before->end_task();
  if (graph.size() > workload::TaskGraph::tasks_max - first_task) {
    return refuse(fmt::format("the jobs have more than the {} tasks of one run together",
                              workload::TaskGraph::tasks_max));
  }
  workload::TaskFlows flows = workload::flows_of(graph, servers, first_connection);
  const auto first_flow = static_cast<std::uint32_t>(setup.flows.size());
  if (auto added = add_flows(flows, setup); !added) return refuse(added.error().message);
  const Time computation = workload::time_without_communication(graph);
  workload::Job& job = setup.jobs.emplace_back(
      workload::Job{std::move(graph), servers, std::move(flows.task_of), {}, computation});
  job.first_flow = first_flow;
  job.first_connection = first_connection;
  job.first_task = first_task;
  job.connections = flows.connections;
  taken.job = &job;
  return taken;
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
  auto path = find_file(folder, name);
  auto model = path ? read_model_file(*path, folder) : Result<ModelFile>(path.error());
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
  const TakenJob taken = take_job(table, "step", std::move(training->graph), job.servers, setup);
  if (taken.job == nullptr) return;
  for (const workload::TaskRange& each : training->step_ends) {
    taken.job->step_ends.push_back(taken.places.of(each));
  }
  for (const workload::TaskRange& each : training->checkpoints) {
    taken.job->checkpoints.push_back(taken.places.of(each));
  }
  taken.job->checkpoint_bytes = static_cast<std::uint64_t>(settings.checkpoint_bytes());
}

void build_serving(TableReader& table, const JobSettings& job, Setup& setup) {
  auto model = read_named_model(table, "serve", job.folder, setup);
  if (!model) return;
  model->serving.servers = job.servers;
  model->serving.seed = job.seed;
  auto serving = workload::make_serving(model->serving);
  if (!serving) return table.wrong("serve", serving.error().message);
  const TakenJob taken = take_job(table, "serve", std::move(serving->graph), job.servers, setup);
  if (taken.job == nullptr) return;
  for (workload::Request& request : serving->requests) {
    request.prefill = taken.places.of(request.prefill);
    request.decode = taken.places.of(request.decode);
  }
  taken.job->computation = Time::zero();
  taken.job->batches = serving->batches;
  taken.job->requests = std::move(serving->requests);
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
  settings.group_servers = static_cast<std::uint32_t>(
      table.integer("group_servers", 0, 0, std::numeric_limits<std::uint32_t>::max()));
  settings.servers = job.servers;
  settings.servers.aggregation = setup.aggregation;
  std::array<std::string_view, workload::protocol_names.size() + 1> protocols{};
  std::ranges::copy(workload::protocol_names, protocols.begin());
  protocols.back() = "automatic";
  const auto protocol = table.choice<std::size_t>("protocol", protocols, 0);
  const std::int64_t adapter_rate = host_bits_per_second(setup.topology) * setup.topology.planes;
  settings.protocol = protocol < workload::protocol_names.size()
                          ? static_cast<workload::Protocol>(protocol)
                          : workload::usual_protocol(settings, adapter_rate);
  settings.servers = workload::with_protocol(settings.servers, settings.protocol);
  if (settings.algorithm == Algorithm::in_network && !job.servers.places.empty()) {
    table.wrong("algorithm",
                "\"in-network\" goes with a collective in [traffic], which has all hosts: the "
                "trees of switches that reduce join all of them");
  }
  if (table.findings().any()) return;
  const TakenJob taken =
      take_job(table, "collective", workload::make_collective(settings), settings.servers, setup);
  if (taken.job == nullptr) return;
  taken.job->bandwidth = {settings.bytes,
                          workload::bus_factor(settings.collective, settings.servers.ranks())};
  taken.job->method = {workload::algorithm_of(settings), settings.protocol};
}

void build_experts(TableReader& table, const JobSettings& job, Setup& setup) {
  workload::ExpertSettings settings;
  read_experts(table, settings);
  settings.servers = job.servers;
  // GPUs ask their adapters themselves.
  settings.servers.message_delay = table.time("message_delay", Time::zero());
  settings.seed = job.seed;
  if (table.findings().any()) return;
  const TakenJob taken =
      take_job(table, "operation", workload::make_experts(settings), settings.servers, setup);
  if (taken.job != nullptr && settings.operation != workload::ExpertOperation::layer) {
    taken.job->bandwidth = workload::Bandwidth{workload::expert_bytes(settings)};
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
