#include "study/workload/task_player.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "study/workload/part.h"

namespace tulle::workload {
namespace {

constexpr std::uint32_t no_flow = 0xFFFF'FFFF;

// Returns how long so many bytes take at a rate.
Time time_of(std::uint64_t bytes, std::int64_t bits_per_second) {
  const double seconds = static_cast<double>(bytes) * 8 / static_cast<double>(bits_per_second);
  return Time::picoseconds(static_cast<std::int64_t>(seconds * 1e12));
}

bool needs_adapters(const Task& task, const Servers& servers) {
  return task.is_message() && !servers.is_scale_up(task.rank, task.peer);
}

// Makes flows of messages. Flows that go behind one another share a connection. A flow that is
// alone has its own, which goes with it.
class FlowMaker {
 public:
  FlowMaker(const Servers& servers, std::uint32_t first_connection)
      : servers_(servers),
        first_connection_(first_connection),
        next_connection_(first_connection) {}

  void add(TaskGraph::Index index, const Task& task) {
    if (servers_.planes == 1) return add(index, task, 0, task.bytes);
    if (!servers_.sprays) return add(index, task, plane_of(task), task.bytes);
    const std::uint64_t packets = (task.bytes + spray_bytes_min - 1) / spray_bytes_min;
    const std::uint64_t parts = std::min<std::uint64_t>(packets, servers_.planes);
    for (std::uint32_t plane = 0; plane < parts; ++plane) {
      add(index, task, plane, part_of(task.bytes, plane, parts));
    }
  }
  TaskFlows take() {
    flows_.connections = next_connection_ - first_connection_;
    return std::move(flows_);
  }

 private:
  struct Connection {
    std::uint32_t first = 0;   // flow
    std::int32_t number = -1;  // -1: no other flow has come yet
  };
  using Pair = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;  // with the channel

  // The connections of an adapter alternate between the planes.
  std::uint32_t plane_of(const Task& task) {
    const auto [found, is_new] = planes_.try_emplace({task.rank, task.peer, task.channel}, 0);
    if (is_new) found->second = turn_[servers_.host_of(task.rank)]++ % servers_.planes;
    return found->second;
  }

  void add(TaskGraph::Index task, const Task& message, std::uint32_t plane, std::uint64_t bytes) {
    const auto index = static_cast<std::uint32_t>(flows_.flows.size());
    flows_.flows.push_back({servers_.host_towards(message.rank, message.peer) + plane,
                            servers_.host_towards(message.peer, message.rank) + plane, bytes});
    flows_.task_of.push_back(task);
    const Pair pair{message.rank, message.peer, message.channel};
    const auto [found, is_new] = connections_.try_emplace({pair, plane}, Connection{index});
    if (is_new) return;
    Connection& connection = found->second;
    if (connection.number < 0) {
      connection.number = static_cast<std::int32_t>(next_connection_++);
      flows_.flows[connection.first].connection = connection.number;
    }
    flows_.flows[index].connection = connection.number;
  }

  const Servers& servers_;
  TaskFlows flows_;
  std::map<std::pair<Pair, std::uint32_t>, Connection> connections_;
  std::map<Pair, std::uint32_t> planes_;
  std::map<std::uint32_t, std::uint32_t> turn_;       // by adapter
  std::uint32_t first_connection_, next_connection_;  // numbers of those that are shared
};

}  // namespace

TaskFlows flows_of(const TaskGraph& graph, const Servers& servers, std::uint32_t first_connection) {
  FlowMaker maker(servers, first_connection);
  for (TaskGraph::Index i = 0; i < graph.size(); ++i) {
    if (needs_adapters(graph[i], servers)) maker.add(i, graph[i]);
  }
  return maker.take();
}

TaskPlayer::TaskPlayer(const Job& job, Carrier& carrier, Stage stage)
    : job_(job),
      graph_(job.graph),
      servers_(job.servers),
      task_of_(job.task_of),
      carrier_(carrier),
      stage_(std::move(stage)),
      flow_of_(graph_.size(), no_flow),
      first_dependent_(graph_.size() + 1),
      awaited_(graph_.size()),
      results_(graph_.size()),
      computes_until_(std::size_t{graph_.ranks()} * graph_.processors()),
      sends_until_(graph_.ranks()),
      receives_until_(graph_.ranks()),
      adds_until_(graph_.ranks()),
      channel_until_(servers_.channel_bits_per_second > 0 ? graph_.ranks() : 0),
      cores_(servers_),
      batches_(job.batches, graph_.ranks()) {
  static_assert(TaskGraph::tasks_max <= 1u << step_shift);
  static_assert(static_cast<std::uint32_t>(Step::part_come) <= step_mask);
  static_assert(own_bit > step_mask << step_shift);
  TULLE_CHECK(servers_.all_ranks() >= graph_.ranks() && job.end_task() <= TaskGraph::tasks_max);
  if (servers_.planes > 1) flow_parts_.resize(graph_.size());
  for (std::uint32_t flow = 0; flow < task_of_.size(); ++flow) {
    const TaskGraph::Index task = task_of_[flow];
    flow_of_[task] = std::min(flow_of_[task], job.first_flow + flow);
    if (flow_parts_.empty()) continue;
    ++flow_parts_[task].to_leave;
    ++flow_parts_[task].to_come;
  }
  const auto count = static_cast<TaskGraph::Index>(graph_.size());
  std::size_t parts = 0;
  for (TaskGraph::Index i = 0; i < count; ++i) parts += graph_[i].is_message() ? 2 : 1;
  parts_left_ = parts_ = parts;
  for (TaskGraph::Index i = 0; i < count; ++i) {
    awaited_[i] = static_cast<std::uint32_t>(graph_.waits_for(i).size());
    for (const auto before : graph_.waits_for(i)) ++first_dependent_[before + 1];
  }
  for (std::size_t i = 0; i < count; ++i) first_dependent_[i + 1] += first_dependent_[i];
  dependents_.resize(first_dependent_.back());
  std::vector<std::size_t> next(first_dependent_.begin(), first_dependent_.end() - 1);
  for (TaskGraph::Index i = 0; i < count; ++i) {
    for (const auto before : graph_.waits_for(i)) dependents_[next[before]++] = i;
  }
}

void TaskPlayer::begin() {
  for (TaskGraph::Index i = 0; i < graph_.size(); ++i) {
    if (awaited_[i] == 0) set_alarm(job_.arrival, graph_[i].rank, i, Step::begin);
  }
}

void TaskPlayer::set_alarm(Time at, std::uint32_t rank, TaskGraph::Index task, Step step) {
  stage_.alarm(at, servers_.host_of(rank),
               own_bit | static_cast<std::uint32_t>(step) << step_shift | (job_.first_task + task));
}

void TaskPlayer::handle_alarm(Time now, std::uint32_t token) {
  const TaskGraph::Index task = task_of(token) - job_.first_task;
  switch (static_cast<Step>(token >> step_shift & step_mask)) {
    case Step::begin:
      return begin_task(now, task);
    case Step::over:
      if (cores_.are_shared() && graph_[task].is_message()) end_sending(now, task);
      return leave(now, task);
    case Step::reached:
      return reach(now, task);
    case Step::done:
      return receive(now, task);
    case Step::added:
      if (cores_.are_shared()) end_work(now, graph_[task].peer);
      return arrive(now, task);
    case Step::round:
      return end_round(now, graph_[task].rank);
    case Step::part_left:
      if (--flow_parts_[task].to_leave == 0) leave(now, task);
      return;
    case Step::part_come:
      if (--flow_parts_[task].to_come == 0) receive(now, task);
      return;
  }
}

// Alarms go to another host with a message within a server, and between the ports of an adapter or
// of a node.
bool TaskPlayer::accepts_alarm(std::uint32_t host, std::uint32_t token) const {
  const TaskGraph::Index index = task_of(token) - job_.first_task;
  if (index >= graph_.size() || !graph_[index].is_message()) return false;
  const Task& task = graph_[index];
  const bool is_at_rank = host == servers_.host_of(task.rank);
  const bool is_at_peer = host == servers_.host_of(task.peer);
  switch (static_cast<Step>(token >> step_shift & step_mask)) {
    case Step::reached:
      return is_at_peer && flow_of_[index] == no_flow;
    case Step::done:
      return is_at_peer && servers_.is_node(task.peer);
    case Step::part_come:
      return is_at_peer && !flow_parts_.empty();
    case Step::over:
      return is_at_rank && servers_.is_node(task.rank);
    case Step::part_left:
      return is_at_rank && !flow_parts_.empty();
    default:
      return false;
  }
}

void TaskPlayer::begin_task(Time now, TaskGraph::Index index) {
  const Task& task = graph_[index];
  results_[index].start = now;
  if (task.rounds > 0) {
    batches_.add(task.rank, {index, task.duration, task.rounds});
    begin_round(now, task.rank);
  } else if (!task.is_message()) {
    Time begins = now;
    if (task.duration > Time::zero()) {
      Time& until = computes_until_[std::size_t{task.rank} * graph_.processors() + task.processor];
      begins = std::max(now, until);
      until = begins + task.duration;
    }
    results_[index].start = begins;
    set_alarm(begins + task.duration, task.rank, index, Step::over);
  } else if (flow_of_[index] != no_flow) {
    start_flows(now, index);
  } else {
    send_to_neighbour(now, index);
  }
}

// A node's port may be another host than that of its events, and so may be the port of an adapter
// in planes. Completion across planes adds that latency, so the per-GPU delay is reduced by it.
void TaskPlayer::start_flows(Time now, TaskGraph::Index index) {
  const Task& task = graph_[index];
  const std::uint32_t first = flow_of_[index];
  const Time asks = task.by_host ? Time::zero() : servers_.message_delay;
  if (flow_parts_.empty()) {
    return carrier_.start(now + (servers_.is_node(task.rank) ? stage_.lookahead : asks), first);
  }
  const Time delay = std::max(asks, stage_.lookahead * 2) - stage_.lookahead;
  for (std::uint32_t part = 0; part < flow_parts_[index].to_come; ++part) {
    carrier_.start(now + delay, first + part);
  }
}

// The port sends one message after the other, or those of several channels at once. An event at one
// host can affect another only after the stage's lookahead.
void TaskPlayer::send_to_neighbour(Time now, TaskGraph::Index index) {
  const Task& task = graph_[index];
  if (cores_.are_shared()) {
    const Time moves = time_of(task.bytes, servers_.scale_up_bits_per_second);
    return work(now, task.rank, {index, false, servers_.message_work + moves});
  }
  const Time time = scale_up_time(task);
  Time begins = now, ends = now + time;
  if (servers_.is_gpu(task.rank)) {  // a switch has a port for each GPU
    Time& port_until = sends_until_[task.rank];
    ends = port_until = std::max(now, port_until) + time;
    begins = ends - time;
  }
  if (is_of_channel(task)) {
    // The port interleaves bytes of several channels, so that a message does not wait for those of
    // other channels. All bytes that the port was given before have left when this one's have.
    const Time takes = std::max(time, channel_time(task));
    Time& channel_until = channel_until_[task.rank][{task.peer, task.channel}];
    ends = channel_until = std::max(std::max(now, channel_until) + takes, ends);
    begins = ends - takes;
  }
  results_[index].start = begins;
  set_alarm(ends, task.rank, index, Step::over);
  const Time latency =
      reduces_inside(task) ? servers_.scale_up_reduce_latency : servers_.scale_up_latency;
  set_alarm(begins + std::max(latency, stage_.lookahead), task.peer, index, Step::reached);
}

// Returns true if one end of a message within a server is the switch that reduces.
bool TaskPlayer::reduces_inside(const Task& task) const {
  return !servers_.is_gpu(task.rank) || !servers_.is_gpu(task.peer);
}

Time TaskPlayer::scale_up_time(const Task& task) const {
  return time_of(task.bytes, reduces_inside(task) ? servers_.scale_up_reduce_bits_per_second
                                                  : servers_.scale_up_bits_per_second);
}

// Returns true if a channel between two GPUs may be slower than their ports.
bool TaskPlayer::is_of_channel(const Task& task) const {
  return servers_.channel_bits_per_second > 0 && !reduces_inside(task);
}

Time TaskPlayer::channel_time(const Task& task) const {
  return time_of(task.bytes, servers_.channel_bits_per_second);
}

// The port receives one message after the other, while their bytes come.
void TaskPlayer::reach(Time now, TaskGraph::Index index) {
  if (cores_.are_shared()) return receive(now, index);
  const Task& task = graph_[index];
  if (!servers_.is_gpu(task.peer)) {
    return set_alarm(now + scale_up_time(task), task.peer, index, Step::done);
  }
  Time& busy = receives_until_[task.peer];
  busy = std::max(now, busy) + scale_up_time(task);
  const Time comes_until = is_of_channel(task) ? now + channel_time(task) : now;
  set_alarm(std::max(busy, comes_until), task.peer, index, Step::done);
}

// The bytes are there. The receiver may have to add them, one message after the other.
void TaskPlayer::receive(Time now, TaskGraph::Index index) {
  const Task& task = graph_[index];
  // The switch of a server adds as fast as data come.
  const std::int64_t rate = servers_.is_gpu(task.peer)    ? servers_.reduce_bits_per_second
                            : servers_.is_node(task.peer) ? servers_.aggregation.bits_per_second
                                                          : 0;
  const bool takes_time = task.reduces && rate > 0;
  const Time adds = takes_time ? time_of(task.bytes, rate) : Time::zero();
  if (cores_.are_shared()) {
    return work(now, task.peer, {index, true, servers_.message_work + adds});
  }
  if (!takes_time) return arrive(now, index);
  Time& busy = adds_until_[task.peer];
  busy = std::max(now, busy) + adds;
  set_alarm(busy, task.peer, index, Step::added);
}

// The sender's core has moved the bytes.
void TaskPlayer::end_sending(Time now, TaskGraph::Index index) {
  const Time latency = std::max(servers_.scale_up_latency, stage_.lookahead);
  set_alarm(now + latency, graph_[index].peer, index, Step::reached);
  end_work(now, graph_[index].rank);
}

void TaskPlayer::work(Time now, std::uint32_t rank, const Cores::Work& work) {
  cores_.add(rank, work);
  begin_work(now, servers_.server_of(rank));
}

void TaskPlayer::begin_work(Time now, std::uint32_t server) {
  while (const auto begun = cores_.begin(server)) {
    const Cores::Work& work = begun->work;
    if (!work.receives) results_[work.task].start = now;
    set_alarm(now + work.time, begun->rank, work.task, work.receives ? Step::added : Step::over);
  }
}

void TaskPlayer::end_work(Time now, std::uint32_t rank) {
  cores_.end(rank);
  begin_work(now, servers_.server_of(rank));
}

void TaskPlayer::begin_round(Time now, std::uint32_t rank) {
  const auto takes = batches_.begin(rank);
  if (takes) set_alarm(now + *takes, rank, batches_.first(rank), Step::round);
}

void TaskPlayer::end_round(Time now, std::uint32_t rank) {
  for (const Batches::Member& member : batches_.end(rank)) {
    if (member.is_new) results_[member.task].arrived = now;
    if (member.rounds_left == 0) leave(now, member.task);
  }
  begin_round(now, rank);
}

// A node learns at its home what happens at its ports, and begins to send there
// (begin_task()). The two ways together take its latency.
void TaskPlayer::arrived(Time now, std::uint32_t flow) {
  const TaskGraph::Index index = task_of_[flow - job_.first_flow];
  const std::uint32_t peer = graph_[index].peer;
  if (!flow_parts_.empty()) return set_alarm(now + stage_.lookahead, peer, index, Step::part_come);
  if (!servers_.is_node(peer)) return receive(now, index);
  const Time latency =
      std::max(servers_.aggregation.latency, stage_.lookahead * 2) - stage_.lookahead;
  set_alarm(now + latency, peer, index, Step::done);
}

void TaskPlayer::sent(Time now, std::uint32_t flow) {
  const TaskGraph::Index index = task_of_[flow - job_.first_flow];
  const std::uint32_t rank = graph_[index].rank;
  if (!flow_parts_.empty()) return set_alarm(now + stage_.lookahead, rank, index, Step::part_left);
  if (!servers_.is_node(rank)) return leave(now, index);
  set_alarm(now + stage_.lookahead, rank, index, Step::over);
}

Time TaskPlayer::end() const {
  Time end;
  for (TaskGraph::Index i = 0; i < results_.size(); ++i) {
    const TaskResult& result = results_[i];
    if (!result.end.is_never()) end = std::max(end, result.end);
    if (graph_[i].is_message() && !result.arrived.is_never()) end = std::max(end, result.arrived);
  }
  return end;
}

Time TaskPlayer::begin_of(const TaskRange& range) const {
  Time begin = Time::never();
  for (TaskGraph::Index i = range.first; i < range.end; ++i) {
    begin = std::min(begin, results_[i].start);
  }
  return begin;
}

Time TaskPlayer::end_of(const TaskRange& range) const {
  Time end;
  for (TaskGraph::Index i = range.first; i < range.end; ++i) {
    end = std::max(end, results_[i].end);
    if (graph_[i].is_message()) end = std::max(end, results_[i].arrived);
  }
  return end;
}

// A task's times are known at one of its hosts each, and never at the others.
void TaskPlayer::merge(TaskGraph::Index task, const TaskResult& other) {
  TaskResult& result = results_[task];
  result.start = std::min(result.start, other.start);
  result.end = std::min(result.end, other.end);
  result.arrived = std::min(result.arrived, other.arrived);
}

void TaskPlayer::leave(Time now, TaskGraph::Index index) {
  results_[index].end = now;
  parts_left_.fetch_sub(1, std::memory_order_relaxed);
  release(now, index, graph_[index].rank);
}

void TaskPlayer::arrive(Time now, TaskGraph::Index index) {
  results_[index].arrived = now;
  parts_left_.fetch_sub(1, std::memory_order_relaxed);
  release(now, index, graph_[index].peer);
}

// Begins the tasks of a rank that waited for nothing else.
void TaskPlayer::release(Time now, TaskGraph::Index index, std::uint32_t rank) {
  for (std::size_t i = first_dependent_[index]; i < first_dependent_[index + 1]; ++i) {
    const TaskGraph::Index next = dependents_[i];
    if (graph_[next].rank != rank || --awaited_[next] > 0) continue;
    begin_task(now, next);
  }
}

}  // namespace tulle::workload
