#include "study/workload/serving.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/random.h"
#include "study/workload/part.h"
#include "study/workload/ring.h"
#include "study/workload/training_costs.h"

namespace tulle::workload {
namespace {

using Index = TaskGraph::Index;

// The numbers that follow from the settings, for a group of GPUs that share each layer.
struct Costs {
  double prefill_seconds = 0;
  double round_seconds = 0;    // reads all weights, and the latency of all exchanges
  double request_seconds = 0;  // reads a request's keys and values in a round, and exchanges
  double token_seconds = 0;    // computes a token of a request
};

Costs costs_of(const ServingSettings& settings) {
  TrainingSettings one;
  one.model = settings.model;
  one.model.sequence = settings.prompt;
  one.gpu = settings.gpu;
  one.servers = settings.servers;
  one.tensor = settings.group();
  one.value_bytes = settings.value_bytes;
  const TransformerModel& model = one.model;
  const double layers = model.layers;
  const LayerCosts layer = costs_of(one);
  Costs costs;
  costs.prefill_seconds = layers * (layer.layer_seconds() + layer.exchange_seconds);
  const double rate = settings.gpu.memory_bytes_per_second * settings.group();
  // Both networks of a layer sum what a token has. A ring's latencies would be more than all the
  // rest, so that each GPU sends to each other at once, in a reduce-scatter and an all-gather.
  const double latency =
      one.tensor == 1 ? 0 : layers * 2 * 2 * one.servers.scale_up_latency.to_seconds();
  const double token = layers * 2 *
                       (exchange_seconds(one.servers, one.tensor, layer.copy_bytes) -
                        exchange_seconds(one.servers, one.tensor, 0));
  costs.round_seconds = latency + layers * model.layer_weights() * settings.value_bytes / rate;
  // Its keys and values become more by one token in each round. The mean is taken.
  const double context = settings.prompt + (settings.output - 1.0) / 2;
  costs.request_seconds =
      token + context * static_cast<double>(settings.cache_bytes_of_token()) / rate;
  one.model.sequence = 1;
  costs.token_seconds = layers * costs_of(one).layer_seconds();
  return costs;
}

Result<void> check_model(const ServingSettings& settings) {
  const TransformerModel& model = settings.model;
  if (auto right = check_shape(model); !right) return right;
  if (auto right = check_counts({{settings.prefill, "prefill"},
                                 {settings.batch, "batch"},
                                 {settings.value_bytes, "value_bytes"}});
      !right) {
    return right;
  }
  if (model.hidden % model.heads != 0) {
    return Error{fmt::format("{} heads do not divide hidden, {}", model.heads, model.hidden)};
  }
  if (!(settings.gpu.operations_per_second > 0) || !(settings.gpu.memory_bytes_per_second > 0) ||
      !(settings.gpu.efficiency > 0 && settings.gpu.efficiency <= 1)) {
    return Error{
        "a GPU needs operations_per_second, memory_bytes_per_second, and an efficiency above 0 and "
        "at most 1"};
  }
  if (settings.requests == 0 || !(settings.rate > 0) || settings.prompt == 0 ||
      settings.output == 0) {
    return Error{"[serve] needs requests, rate, prompt and output above 0"};
  }
  return {};
}

Result<void> check(const ServingSettings& settings) {
  if (auto right = check_model(settings); !right) return right;
  const Servers& servers = settings.servers;
  if (settings.prefill >= servers.servers) {
    return Error{fmt::format("prefill on {} servers leaves none of {} to decode", settings.prefill,
                             servers.servers)};
  }
  if (servers.gpus % settings.group() != 0) {
    return Error{fmt::format("a tensor group of {} does not fit into servers of {} GPUs",
                             settings.group(), servers.gpus)};
  }
  if (settings.model.key_value_heads % settings.group() != 0) {
    return Error{fmt::format("{} key_value_heads cannot be dealt to a tensor group of {} evenly",
                             settings.model.key_value_heads, settings.group())};
  }
  const double cache = static_cast<double>(settings.prompt) * settings.model.layers * 2 *
                       settings.model.hidden * settings.value_bytes;
  constexpr double bytes_max = 16.0 * (1ull << 40);
  if (cache > bytes_max) return Error{"the keys and values of a prompt are more than 16 TiB"};
  const double rounds = 1.0 * settings.requests * settings.output;
  const double tasks = 1.0 * settings.requests *
                       (settings.group() * 4.0 + 1 + cache / static_cast<double>(Task::bytes_max));
  if (std::max(rounds, tasks) > static_cast<double>(TaskGraph::tasks_max)) {
    return Error{fmt::format("these requests have more than {} tasks or tokens; take fewer",
                             TaskGraph::tasks_max)};
  }
  const Costs costs = costs_of(settings);
  constexpr double seconds_max = 50 * 86'400.0;
  // Poisson's requests come within 50 times the mean, for all that a seed can do.
  const double seconds =
      settings.requests * (costs.prefill_seconds + 50 / settings.rate) +
      rounds * (costs.round_seconds + costs.request_seconds + costs.token_seconds);
  if (!(seconds < seconds_max)) return Error{"these requests may take more than 50 days"};
  return {};
}

class ServingBuilder {
 public:
  explicit ServingBuilder(const ServingSettings& settings)
      : settings_(settings),
        costs_(costs_of(settings)),
        random_(settings.seed),
        graph_(settings.servers.ranks()),
        arrived_(settings.servers.ranks()) {
    prefill_ = graph_.add_phase("prefill");
    cache_ = graph_.add_phase("cache");
    decode_ = graph_.add_phase("decode");
  }

  Serving build();

 private:
  Index compute(std::uint32_t rank, Time duration, std::uint32_t phase, const Waits& after,
                std::uint32_t rounds = 0, std::uint8_t processor = 0);
  Index send(std::uint32_t from, std::uint32_t to, std::uint64_t bytes, const Waits& after);
  Request add_request(std::uint32_t number, Time arrival);

  const ServingSettings& settings_;
  Costs costs_;
  Random random_;
  TaskGraph graph_;
  std::uint32_t prefill_, cache_, decode_;  // phases
  struct Arrived {
    Waits task;  // the rank's last request has arrived
    Time at;
  };
  std::vector<Arrived> arrived_;  // by rank
};

Index ServingBuilder::compute(std::uint32_t rank, Time duration, std::uint32_t phase,
                              const Waits& after, std::uint32_t rounds, std::uint8_t processor) {
  Task task;
  task.kind = Task::Kind::computation;
  task.rank = rank;
  task.duration = duration;
  task.phase = phase;
  task.rounds = rounds;
  task.processor = processor;
  return graph_.add(task, after);
}

Index ServingBuilder::send(std::uint32_t from, std::uint32_t to, std::uint64_t bytes,
                           const Waits& after) {
  Task task;
  task.rank = from;
  task.peer = to;
  task.bytes = bytes;
  task.phase = cache_;
  return graph_.add_message(task, after);
}

// Prefill groups take requests round robin, and a decode group is drawn, so that each prefill group
// sends to all of them. Each GPU of a prefill group has its part of the keys' and values' heads,
// and sends it to the GPU of the same number of the decode group. The first GPU there makes the
// tokens when the others have notified it that they have their parts.
Request ServingBuilder::add_request(std::uint32_t number, Time arrival) {
  const std::uint32_t group = settings_.group();
  const std::uint32_t of_server = settings_.servers.gpus / group;
  const std::uint32_t prefills = settings_.prefill * of_server;
  const std::uint32_t decodes = settings_.servers.servers * of_server - prefills;
  const std::uint32_t from = number % prefills * group;
  const auto to = (prefills + static_cast<std::uint32_t>(random_.below(decodes))) * group;
  Request request;
  request.arrival = arrival;
  request.tokens = settings_.output;
  Waits there;
  for (std::uint32_t i = 0; i < group; ++i) {
    Arrived& arrived = arrived_[from + i];
    arrived.task = {compute(from + i, arrival - arrived.at, prefill_, arrived.task, 0,
                            Request::arrivals_processor)};
    arrived.at = arrival;
    const Index computed =
        compute(from + i, time_from(costs_.prefill_seconds), prefill_, arrived.task);
    if (i == 0) request.prefill = computed;
    const Index sent =
        send(from + i, to + i, part_of(settings_.cache_bytes(), i, group), {computed});
    there.push_back(i == 0 ? sent : send(to + i, to, 1, {sent}));
  }
  request.decode = compute(to, time_from(costs_.request_seconds), decode_, there, settings_.output);
  return request;
}

Serving ServingBuilder::build() {
  Serving serving;
  serving.batches = {time_from(costs_.round_seconds), time_from(costs_.token_seconds),
                     settings_.batch};
  double seconds = 0;
  for (std::uint32_t i = 0; i < settings_.requests; ++i) {
    serving.requests.push_back(add_request(i, time_from(seconds)));
    seconds += (settings_.is_poisson ? random_.exponential() : 1) / settings_.rate;
  }
  serving.graph = std::move(graph_);
  return serving;
}

}  // namespace

std::uint64_t ServingSettings::cache_bytes_of_token() const {
  const std::uint64_t head = model.hidden / model.heads;
  return 2ull * model.layers * model.key_value_heads * head * value_bytes;
}

Result<Serving> make_serving(const ServingSettings& settings) {
  if (auto right = check(settings); !right) return right.error();
  return ServingBuilder(settings).build();
}

}  // namespace tulle::workload
