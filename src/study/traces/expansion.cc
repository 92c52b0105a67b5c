#include "study/traces/expansion.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

namespace tulle::traces {

using workload::CollectiveSettings;
using workload::Servers;
using workload::TaskGraph;
using Kind = Node::Kind;

namespace {

// Channel 0 has the messages of sends. Each group has separate channels: two for each adapter of a
// server at most (two trees), of which a server has at most 1,024.
constexpr std::uint32_t group_channels = 4'096;
std::uint32_t channel_of(std::uint32_t group, std::uint32_t channel) {
  return 1 + group * group_channels + channel % group_channels;
}

CollectiveSettings settings_of(const Node& call, std::uint64_t bytes, const Servers& shape) {
  CollectiveSettings settings;
  settings.collective = call.collective;
  settings.servers = shape;
  // A short collective, such as a barrier, goes by one channel, with a byte for each rank.
  settings.bytes = std::max<std::uint64_t>(bytes, shape.ranks());
  settings.channels = settings.bytes < std::uint64_t{shape.ranks()} * shape.adapters ? 1 : 0;
  return settings;
}

// Returns more tasks than a collective takes, before any is made.
double tasks_at_most(const CollectiveSettings& settings) {
  const double ranks = settings.servers.ranks();
  const double channels = 2.0 * std::max(settings.channels, settings.servers.adapters);
  const auto bytes = static_cast<double>(settings.bytes);
  const double pieces = 4 * ranks * bytes / static_cast<double>(workload::Task::bytes_max);
  if (settings.collective == workload::Collective::all_to_all) return ranks * ranks + pieces;
  if (settings.collective == workload::Collective::broadcast) {
    return ranks * (bytes / static_cast<double>(settings.chunk_bytes) + channels) + pieces;
  }
  return 2 * ranks * (ranks + 2) * channels + pieces;
}

}  // namespace

Servers shape_of(std::span<const std::uint32_t> group, const Servers& servers) {
  Servers shape = servers;
  shape.servers = static_cast<std::uint32_t>(group.size());
  shape.gpus = shape.adapters = 1;
  std::uint32_t used = 0, gpus = 0, adapters = 0;  // gpus and adapters: of the first server
  for (std::size_t begin = 0, end = 0; begin < group.size(); begin = end) {
    std::uint32_t hosts = 0;
    while (end < group.size() && servers.server_of(group[end]) == servers.server_of(group[begin])) {
      if (end == begin || servers.host_of(group[end]) != servers.host_of(group[end - 1])) ++hosts;
      ++end;
    }
    const auto here = static_cast<std::uint32_t>(end - begin);
    if (used++ == 0) {
      gpus = here;
      adapters = hosts;
    }
    if (here != gpus || hosts != adapters || gpus % adapters != 0) return shape;
  }
  shape.servers = used;
  shape.gpus = gpus;
  shape.adapters = adapters;
  return shape;
}

Expansion::Expansion(const Trace& trace, const Matching& matching, const Order& order,
                     const Servers& servers)
    : trace_(trace),
      matching_(matching),
      order_(order),
      servers_(servers),
      graph_(trace.ranks()),
      starts_(trace.size(), none),
      ends_(trace.size(), none),
      start_is_awaited_(trace.size()) {
  for (const auto& each : trace.dependencies_) {
    if (each.of_start) start_is_awaited_[each.before] = true;
  }
}

Result<TaskGraph> Expansion::expand() {
  for (const std::uint32_t unit : order_.units()) {
    if (auto right = add_unit(unit); !right) return right.error();
  }
  return std::move(graph_);
}

std::uint32_t Expansion::phase(std::size_t number, std::string_view name) {
  if (phases_[number] == 0) phases_[number] = graph_.add_phase(std::string(name));
  return phases_[number];
}

Result<void> Expansion::check_room(Index node, double more) const {
  if (static_cast<double>(graph_.size()) + more <= static_cast<double>(trace_.limits().tasks)) {
    return {};
  }
  return trace_.error(node, fmt::format("the trace takes more than {} messages and computations; "
                                        "take a part of it, or fewer ranks",
                                        trace_.limits().tasks));
}

// Returns what a node waits for: ends of nodes of its rank and, for a receive, the message.
std::vector<Expansion::Task> Expansion::waits_of(Index node) const {
  std::vector<Task> waits;
  const auto add = [&](Task task) {
    if (task != none) waits.push_back(task);
  };
  for (const std::uint32_t wait : order_.waits_of(node)) {
    const auto& dependency = trace_.dependencies_[wait];
    add(dependency.of_start ? starts_[dependency.before] : ends_[dependency.before]);
  }
  if (trace_[node].kind == Kind::receive) add(ends_[matching_.send_of(node)]);
  std::sort(waits.begin(), waits.end());
  waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
  return waits;
}

// Returns a task that ends when all of these have, at a rank that knows of them.
Expansion::Task Expansion::join(std::uint32_t rank, const std::vector<Task>& tasks) {
  if (tasks.empty()) return none;
  if (tasks.size() == 1) return tasks[0];
  workload::Task task;
  task.kind = workload::Task::Kind::computation;
  task.rank = rank;
  return graph_.add(task, tasks);
}

workload::Task Expansion::task_of(const Node& node) {
  workload::Task task;
  task.rank = node.rank;
  if (node.kind == Kind::send) {
    task.peer = node.peer;
    task.bytes = node.bytes;
    task.phase = phase(1, "messages");
    return task;
  }
  task.kind = workload::Task::Kind::computation;
  task.duration = node.duration;
  task.processor = node.processor;
  task.exchanges = node.is_pause;
  task.phase = phase(0, "computation");
  return task;
}

Result<void> Expansion::add_unit(std::uint32_t unit) {
  const std::span<const Index> members = matching_.members(unit);
  const Index index = members[0];
  const Node& node = trace_[index];
  if (node.kind == Kind::collective) return add_collective(members);
  const double pieces =
      2 + static_cast<double>(node.bytes) / static_cast<double>(workload::Task::bytes_max);
  if (auto right = check_room(index, pieces + 1); !right) return right.error();
  std::vector<Task> waits = waits_of(index);
  if (start_is_awaited_[index] && node.kind != Kind::receive) {
    starts_[index] = join(node.rank, waits);
    if (starts_[index] != none) waits = {starts_[index]};
  } else if (start_is_awaited_[index]) {
    // A receive begins before its message comes.
    std::erase(waits, ends_[matching_.send_of(index)]);
    starts_[index] = join(node.rank, waits);
    waits = {ends_[matching_.send_of(index)]};
    if (starts_[index] != none) waits.push_back(starts_[index]);
  }
  switch (node.kind) {
    case Kind::computation:
      ends_[index] = graph_.add(task_of(node), waits);
      break;
    case Kind::send:
      ends_[index] = graph_.add_message(task_of(node), waits);
      break;
    default:
      ends_[index] = join(node.rank, waits);
  }
  return {};
}

Result<void> Expansion::add_collective(std::span<const Index> calls) {
  if (calls.size() == 1) {
    const Index call = calls[0];
    if (auto right = check_room(call, 1); !right) return right.error();
    starts_[call] = ends_[call] = join(trace_[call].rank, waits_of(call));
    return {};
  }
  auto messages = messages_of(calls);
  if (!messages) return messages.error();
  if (auto right =
          check_room(calls[0], static_cast<double>((*messages)->size() + 2 * calls.size()));
      !right) {
    return right.error();
  }
  add_messages(calls, **messages);
  return {};
}

// Makes the messages of a collective, among the ranks 0, 1, … of its group.
Result<const TaskGraph*> Expansion::messages_of(std::span<const Index> calls) {
  const Node& first = trace_[calls[0]];
  std::uint64_t bytes = 0;
  for (const Index call : calls) bytes = std::max(bytes, trace_[call].bytes);
  const Cached wanted{first.collective, bytes, first.group};
  if (cached_messages_ != nullptr && cached_ == wanted) return cached_messages_.get();
  const CollectiveSettings settings =
      settings_of(first, bytes, shape_of(trace_.group(first.group), servers_));
  if (auto right = check_room(calls[0], tasks_at_most(settings)); !right) return right.error();
  auto messages = workload::make_collective(settings);
  if (!messages) return trace_.error(calls[0], messages.error().message);
  cached_ = wanted;
  cached_messages_ = std::make_unique<TaskGraph>(std::move(*messages));
  return cached_messages_.get();
}

// Adds the messages. Each one that waits for nothing that its rank did in this collective waits for
// the rank's call.
void Expansion::add_messages(std::span<const Index> calls, const TaskGraph& messages) {
  const Node& call = trace_[calls[0]];
  for (const Index each : calls) starts_[each] = join(trace_[each].rank, waits_of(each));
  const auto first = static_cast<Task>(graph_.size());
  const std::uint32_t own_phase =
      phase(2 + static_cast<std::size_t>(call.collective), name_of(call.collective));
  const std::vector<std::uint32_t>& ranks = trace_.group(call.group);
  std::vector<Task> waits;
  for (Task i = 0; i < messages.size(); ++i) {
    workload::Task task = messages[i];
    bool is_behind_own = false;
    waits.clear();
    for (const Task before : messages.waits_for(i)) {
      is_behind_own = is_behind_own || messages[before].rank == task.rank;
      waits.push_back(first + before);
    }
    if (!is_behind_own && starts_[calls[task.rank]] != none) {
      waits.push_back(starts_[calls[task.rank]]);
    }
    task.rank = ranks[task.rank];
    task.peer = ranks[task.peer];
    task.channel = channel_of(call.group, task.channel);
    task.phase = own_phase;
    graph_.add(task, waits);
  }
  end_collective(calls, messages, first);
}

// A rank's call ends with its last messages: all to and from the rank that its own messages do not
// wait for.
void Expansion::end_collective(std::span<const Index> calls, const TaskGraph& messages,
                               Task first) {
  std::vector<bool> is_awaited_here(messages.size()), is_awaited_there(messages.size());
  for (Task i = 0; i < messages.size(); ++i) {
    for (const Task before : messages.waits_for(i)) {
      if (messages[before].rank == messages[i].rank) is_awaited_here[before] = true;
      if (messages[before].peer == messages[i].rank) is_awaited_there[before] = true;
    }
  }
  std::vector<std::vector<Task>> last(calls.size());
  for (Task i = 0; i < messages.size(); ++i) {
    if (!is_awaited_here[i]) last[messages[i].rank].push_back(first + i);
    if (!is_awaited_there[i]) last[messages[i].peer].push_back(first + i);
  }
  for (std::size_t place = 0; place < calls.size(); ++place) {
    ends_[calls[place]] = join(trace_[calls[place]].rank, last[place]);
  }
}

}  // namespace tulle::traces
