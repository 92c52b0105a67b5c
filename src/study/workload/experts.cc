#include "study/workload/experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "study/workload/ring.h"
#include "study/workload/router.h"

namespace tulle::workload {
namespace {

using Index = TaskGraph::Index;

// The numbers that follow from the settings.
struct Shape {
  std::uint32_t group = 0;    // GPUs
  std::uint32_t experts = 0;  // of a group
  std::uint32_t servers = 0;  // of a group
  std::uint32_t gpus = 0;     // of a group's server
};

Shape shape_of(const ExpertSettings& settings) {
  Shape shape;
  shape.group = settings.group == 0 ? settings.servers.ranks() : settings.group;
  constexpr std::uint32_t usual = 256;
  shape.experts = settings.experts;
  if (shape.experts == 0) {
    shape.experts = (usual + shape.group - 1) / shape.group * shape.group;
  }
  shape.gpus = std::min(shape.group, settings.servers.gpus);
  shape.servers = shape.group / shape.gpus;
  return shape;
}

// Builds the graph of one group of GPUs after the other.
class ExpertsBuilder {
 public:
  ExpertsBuilder(const ExpertSettings& settings, const Shape& shape)
      : settings_(settings),
        shape_(shape),
        router_({shape.experts, settings.experts_of_token, shape.servers, settings.servers_of_token,
                 settings.skew, settings.seed}),
        graph_(settings.servers.ranks()),
        attention_(graph_.add_phase("attention")),
        dispatch_(graph_.add_phase("dispatch")),
        experts_(graph_.add_phase("experts")),
        combine_(graph_.add_phase("combine")) {}

  TaskGraph build() {
    for (first_ = 0; first_ < graph_.ranks(); first_ += shape_.group) {
      for (batch_ = 0; batch_ < settings_.micro_batches; ++batch_) {
        std::vector<Waits> ready(shape_.group);
        for (std::uint32_t i = 0; i < settings_.layers; ++i) ready = add_layer(std::move(ready));
      }
    }
    return std::move(graph_);
  }

 private:
  // The tokens that a GPU sends to another one's experts. Members are numbers within the group.
  struct Copy {
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    std::uint32_t token = 0;
  };
  bool has(ExpertOperation operation) const {
    return settings_.operation == operation || settings_.operation == ExpertOperation::layer;
  }
  std::vector<Copy> route();
  std::vector<Waits> add_layer(std::vector<Waits> ready);
  std::vector<Waits> compute(std::uint32_t phase, const std::vector<Time>& times,
                             std::vector<Waits> after, bool exchanges);
  std::vector<Waits> send_directly(const std::vector<Copy>& copies, bool is_back,
                                   const std::vector<Waits>& after);
  std::vector<Waits> send_by_server(std::vector<Copy> copies, bool is_back,
                                    const std::vector<Waits>& after);
  // Between a GPU and another server, a chunk goes to or comes from the GPU of the same number
  // there, the gate, and has each token once. On the way back the gate adds up what its server has
  // for a token.
  void send_chunk(std::span<const Copy> copies, bool is_back, const std::vector<Waits>& after,
                  std::vector<Waits>& received);
  std::vector<Waits> exchange(const std::vector<Copy>& copies, bool is_back,
                              std::vector<Waits> after);
  Index send(std::uint32_t from, std::uint32_t to, std::uint64_t tokens, bool is_back,
             const Waits& after);

  const ExpertSettings& settings_;
  Shape shape_;
  Router router_;
  TaskGraph graph_;
  std::uint32_t attention_, dispatch_, experts_, combine_;  // phases
  std::uint32_t first_ = 0;                                 // rank of the group
  std::uint32_t batch_ = 0;
};

// Tokens of all GPUs take turns, as they do on a network. Copies of one token follow each other.
std::vector<ExpertsBuilder::Copy> ExpertsBuilder::route() {
  std::vector<Copy> copies;
  copies.reserve(std::size_t{settings_.tokens} * shape_.group * settings_.experts_of_token);
  const std::uint32_t experts_of_gpu = shape_.experts / shape_.group;
  for (std::uint32_t token = 0; token < settings_.tokens; ++token) {
    for (std::uint32_t from = 0; from < shape_.group; ++from) {
      for (const std::uint32_t expert : router_.choose()) {
        copies.push_back({from, expert / experts_of_gpu, token});
      }
    }
  }
  return copies;
}

// Adds a computation to each GPU, and returns what its next task waits for. A computation without a
// time represents all that it waits for.
std::vector<Waits> ExpertsBuilder::compute(std::uint32_t phase, const std::vector<Time>& times,
                                           std::vector<Waits> after, bool exchanges) {
  for (std::uint32_t gpu = 0; gpu < shape_.group; ++gpu) {
    if (times[gpu] == Time::zero() && after[gpu].size() <= 1) continue;
    Task task;
    task.kind = Task::Kind::computation;
    task.rank = first_ + gpu;
    task.duration = times[gpu];
    task.exchanges = exchanges;
    task.phase = phase;
    after[gpu] = {graph_.add(task, after[gpu])};
  }
  return after;
}

Index ExpertsBuilder::send(std::uint32_t from, std::uint32_t to, std::uint64_t tokens, bool is_back,
                           const Waits& after) {
  Task task;
  task.rank = first_ + from;
  task.peer = first_ + to;
  task.bytes = tokens * (is_back ? settings_.combine_bytes : settings_.dispatch_bytes);
  task.channel = batch_;
  task.phase = is_back ? combine_ : dispatch_;
  return graph_.add_message(task, after);
}

std::vector<Waits> ExpertsBuilder::send_directly(const std::vector<Copy>& copies, bool is_back,
                                                 const std::vector<Waits>& after) {
  std::vector<Waits> received(shape_.group);
  for (const Copy& copy : copies) {
    if (copy.from == copy.to) continue;
    const std::uint32_t from = is_back ? copy.to : copy.from;
    const std::uint32_t to = is_back ? copy.from : copy.to;
    received[to].push_back(send(from, to, 1, is_back, after[from]));
  }
  return received;
}

// Tokens go in chunks, one after the other, those of all GPUs in turns.
std::vector<Waits> ExpertsBuilder::send_by_server(std::vector<Copy> copies, bool is_back,
                                                  const std::vector<Waits>& after) {
  const auto place = [&](const Copy& copy) {
    return std::pair(copy.token / settings_.chunk_tokens, copy.from);
  };
  std::ranges::stable_sort(copies, {}, place);
  std::vector<Waits> received(shape_.group);
  for (auto begin = copies.begin(); begin != copies.end();) {
    const auto end = std::ranges::upper_bound(begin, copies.end(), place(*begin), {}, place);
    send_chunk({begin, end}, is_back, after, received);
    begin = end;
  }
  return received;
}

// Sends a chunk of one GPU to all servers that have experts of it, its own one first. A token
// counts once for each GPU and once for each server.
void ExpertsBuilder::send_chunk(std::span<const Copy> copies, bool is_back,
                                const std::vector<Waits>& after, std::vector<Waits>& received) {
  struct Tokens {
    std::uint32_t count = 0;
    std::uint32_t last = ~0u;
    void add(std::uint32_t token) {
      if (std::exchange(last, token) != token) ++count;
    }
  };
  struct AtServer {
    Tokens all;
    std::map<std::uint32_t, Tokens> by_gpu;
  };
  const std::uint32_t from = copies.front().from;
  const std::uint32_t own = from / shape_.gpus;
  std::map<std::uint32_t, AtServer> servers;  // by distance from the own one
  for (const Copy& copy : copies) {
    AtServer& server = servers[(copy.to / shape_.gpus + shape_.servers - own) % shape_.servers];
    server.all.add(copy.token);
    server.by_gpu[copy.to].add(copy.token);
  }
  for (const auto& [distance, server] : servers) {
    const std::uint32_t gate = (own + distance) % shape_.servers * shape_.gpus + from % shape_.gpus;
    // The gate has to wait for these before it sends.
    Waits at_gate = after[is_back ? gate : from];
    if (!is_back && gate != from) {
      at_gate = {send(from, gate, server.all.count, false, at_gate)};
      received[gate].push_back(at_gate[0]);
    }
    for (const auto& [gpu, tokens] : server.by_gpu) {
      if (gpu == gate) continue;
      if (is_back) {
        at_gate.push_back(send(gpu, gate, tokens.count, true, after[gpu]));
      } else {
        received[gpu].push_back(send(gate, gpu, tokens.count, false, at_gate));
      }
    }
    if (is_back && gate != from) at_gate = {send(gate, from, server.all.count, true, at_gate)};
    if (is_back) received[from].insert(received[from].end(), at_gate.begin(), at_gate.end());
  }
}

// Adds a dispatch or a combine. Returns by GPU what it has received in the end.
std::vector<Waits> ExpertsBuilder::exchange(const std::vector<Copy>& copies, bool is_back,
                                            std::vector<Waits> after) {
  const std::vector<Time> overheads(shape_.group, settings_.overhead);
  after = compute(is_back ? combine_ : dispatch_, overheads, std::move(after), true);
  std::vector<Waits> received = settings_.route == ExpertRoute::direct
                                    ? send_directly(copies, is_back, after)
                                    : send_by_server(copies, is_back, after);
  // A GPU continues when it has done its own part, too.
  for (std::uint32_t gpu = 0; gpu < shape_.group; ++gpu) {
    received[gpu].insert(received[gpu].end(), after[gpu].begin(), after[gpu].end());
  }
  return received;
}

std::vector<Waits> ExpertsBuilder::add_layer(std::vector<Waits> ready) {
  const std::vector<Copy> copies = route();
  if (settings_.operation == ExpertOperation::layer) {
    const std::vector<Time> attention(shape_.group, settings_.attention_time);
    ready = compute(attention_, attention, std::move(ready), false);
  }
  if (has(ExpertOperation::dispatch)) ready = exchange(copies, false, std::move(ready));
  if (settings_.operation == ExpertOperation::layer) {
    std::vector<Time> times(shape_.group);
    for (const Copy& copy : copies) times[copy.to] += settings_.token_time;
    ready = compute(experts_, times, std::move(ready), false);
  }
  if (has(ExpertOperation::combine)) ready = exchange(copies, true, std::move(ready));
  return ready;
}

Result<void> check_group(const ExpertSettings& settings, const Shape& shape) {
  const std::uint32_t ranks = settings.servers.ranks();
  if (shape.group < 2) return Error{"a group needs at least 2 GPUs"};
  if (ranks % shape.group != 0) {
    return Error{fmt::format("{} GPUs cannot be dealt into groups of {}", ranks, shape.group)};
  }
  if (shape.group % shape.gpus != 0 || settings.servers.gpus % shape.gpus != 0) {
    return Error{
        fmt::format("a group of {} GPUs has neither whole servers of {} nor a part of one "
                    "that divides it",
                    shape.group, settings.servers.gpus)};
  }
  return {};
}

Result<void> check(const ExpertSettings& settings, const Shape& shape) {
  if (auto right = check_group(settings, shape); !right) return right;
  if (shape.experts % shape.group != 0) {
    return Error{fmt::format("{} experts cannot be dealt to the {} GPUs of a group evenly",
                             shape.experts, shape.group)};
  }
  const std::uint32_t limit = settings.servers_of_token;
  const std::uint32_t reachable =
      limit == 0 ? shape.experts : std::min(limit, shape.servers) * (shape.experts / shape.servers);
  if (settings.experts_of_token == 0 || settings.experts_of_token > reachable) {
    return Error{fmt::format("a token takes 1 to {} experts, and not {}", reachable,
                             settings.experts_of_token)};
  }
  if (settings.tokens == 0 || settings.layers == 0 || settings.micro_batches == 0 ||
      settings.chunk_tokens == 0 || settings.dispatch_bytes == 0 || settings.combine_bytes == 0) {
    return Error{"tokens, layers, micro-batches, chunks and bytes are at least 1"};
  }
  const double copies = static_cast<double>(settings.tokens) * settings.experts_of_token *
                        settings.servers.ranks() * settings.layers * settings.micro_batches;
  if (2 * copies > static_cast<double>(TaskGraph::tasks_max)) {
    return Error{
        fmt::format("{:.0f} copies of tokens are more than the {} of one run; take fewer "
                    "tokens, layers or GPUs",
                    copies, TaskGraph::tasks_max / 2)};
  }
  return {};
}

}  // namespace

Result<TaskGraph> make_experts(const ExpertSettings& settings) {
  const Shape shape = shape_of(settings);
  if (auto right = check(settings, shape); !right) return right.error();
  return ExpertsBuilder(settings, shape).build();
}

std::uint64_t expert_bytes(const ExpertSettings& settings) {
  const bool is_back = settings.operation == ExpertOperation::combine;
  return std::uint64_t{settings.tokens} * settings.experts_of_token *
         (is_back ? settings.combine_bytes : settings.dispatch_bytes);
}

}  // namespace tulle::workload
