#include "workload/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "workload/part.h"
#include "workload/ring.h"

namespace tulle::workload {
namespace {

using Index = TaskGraph::Index;

Time time_of(double seconds) {
  return Time::picoseconds(static_cast<std::int64_t>(seconds * 1e12));
}

Result<void> check(const TrainingSettings& settings) {
  const TransformerModel& model = settings.model;
  for (const auto& [value, name] : {std::pair{model.layers, "layers"},
                                    {model.hidden, "hidden"},
                                    {model.feed_forward, "feed_forward"},
                                    {model.heads, "heads"},
                                    {model.key_value_heads, "key_value_heads"},
                                    {model.sequence, "sequence"},
                                    {settings.tensor, "tensor"},
                                    {settings.pipeline, "pipeline"},
                                    {settings.micro_batch, "micro_batch"},
                                    {settings.micro_batches, "micro_batches"},
                                    {settings.buckets, "buckets"}}) {
    if (value == 0) return Error{fmt::format("{} must be 1 or more", name)};
  }
  if (model.heads % model.key_value_heads != 0) {
    return Error{fmt::format("{} key_value_heads do not divide {} heads", model.key_value_heads,
                             model.heads)};
  }
  if (model.layers % settings.pipeline != 0) {
    return Error{fmt::format("{} layers cannot be dealt to {} pipeline stages evenly", model.layers,
                             settings.pipeline)};
  }
  if (settings.servers.gpus % settings.tensor != 0) {
    return Error{fmt::format("a tensor group of {} does not fit into servers of {} GPUs",
                             settings.tensor, settings.servers.gpus)};
  }
  const std::uint32_t one = settings.tensor * settings.pipeline;
  if (settings.servers.ranks() % one != 0) {
    return Error{
        fmt::format("replicas of {} GPUs (tensor {} times pipeline {}) do not fill {} GPUs", one,
                    settings.tensor, settings.pipeline, settings.servers.ranks())};
  }
  if (!(settings.gpu.operations_per_second > 0) ||
      !(settings.gpu.efficiency > 0 && settings.gpu.efficiency <= 1)) {
    return Error{"a GPU needs its operations a second, and an efficiency above 0 and at most 1"};
  }
  return {};
}

class StepBuilder {
 public:
  explicit StepBuilder(const TrainingSettings& settings)
      : settings_(settings), graph_(settings.servers.ranks()) {
    forward_phase_ = graph_.add_phase("forward");
    backward_phase_ = graph_.add_phase("backward");
    tensor_phase_ = graph_.add_phase("tensor");
    pipeline_phase_ = graph_.add_phase("pipeline");
    gradients_phase_ = graph_.add_phase("gradients");
    const double layers = static_cast<double>(settings.model.layers) / settings.pipeline;
    const double sequences = settings.micro_batch;
    const double operations = settings.model.layer_operations() * layers * sequences;
    forward_ = time_of(operations / settings.tensor /
                       (settings.gpu.operations_per_second * settings.gpu.efficiency));
    // A tensor group sums the output of the attention and of the feed-forward network, forward and
    // backward: a ring all-reduce each.
    const double bytes = activation_bytes();
    const double share = 2.0 * (settings.tensor - 1) / settings.tensor;
    const double rate = static_cast<double>(settings.servers.scale_up_bits_per_second) / 8;
    const double latency =
        settings.servers.scale_up_latency.to_seconds() * 2 * (settings.tensor - 1);
    tensor_ = time_of(2 * layers * (share * bytes / rate + latency));
  }

  TaskGraph build();

 private:
  double activation_bytes() const {
    return static_cast<double>(settings_.micro_batch) * settings_.model.sequence *
           settings_.model.hidden * settings_.value_bytes;
  }
  struct Stage {
    std::vector<Index> forward, backward;  // the last task of each micro-batch
    Waits last;                            // the stage's last computation, at most one
    std::vector<Waits> buckets;            // the computations behind which gradients are there
  };
  Index compute(std::uint32_t rank, Time duration, std::uint32_t phase, Waits& last,
                const Waits& also);
  Index send(std::uint32_t from, std::uint32_t to, std::uint64_t bytes, std::uint32_t phase,
             const Waits& after);
  void run_pipeline(std::uint32_t replica, std::uint32_t place, std::vector<Stage>& stages);
  void run_forward(std::uint32_t rank, Stage& stage, const Waits& input);
  void run_backward(std::uint32_t rank, Stage& stage, const Waits& input);
  void sum_gradients(std::uint32_t stage, std::uint32_t place,
                     const std::vector<std::vector<Waits>>& ready);

  const TrainingSettings& settings_;
  TaskGraph graph_;
  std::uint32_t forward_phase_, backward_phase_, tensor_phase_, pipeline_phase_, gradients_phase_;
  Time forward_;  // of one micro-batch on one stage; the backward pass takes twice as long
  Time tensor_;   // of the exchanges in one pass
};

// Adds a computation behind the rank's last one.
Index StepBuilder::compute(std::uint32_t rank, Time duration, std::uint32_t phase, Waits& last,
                           const Waits& also) {
  Task task;
  task.kind = Task::Kind::computation;
  task.rank = rank;
  task.duration = duration;
  task.phase = phase;
  task.exchanges = phase == tensor_phase_;
  Waits waits = last;
  waits.insert(waits.end(), also.begin(), also.end());
  last = {graph_.add(task, waits)};
  return last.front();
}

Index StepBuilder::send(std::uint32_t from, std::uint32_t to, std::uint64_t bytes,
                        std::uint32_t phase, const Waits& after) {
  Task task;
  task.rank = from;
  task.peer = to;
  task.phase = phase;
  task.channel = phase;
  task.bytes = bytes;
  return graph_.add_message(task, after);
}

void StepBuilder::run_forward(std::uint32_t rank, Stage& stage, const Waits& input) {
  compute(rank, forward_, forward_phase_, stage.last, input);
  if (settings_.tensor > 1) compute(rank, tensor_, tensor_phase_, stage.last, {});
  stage.forward.push_back(stage.last.front());
}

// The last micro-batch's pass is cut, since parts of the gradients are ready behind each part.
void StepBuilder::run_backward(std::uint32_t rank, Stage& stage, const Waits& input) {
  const bool is_last = stage.backward.size() + 1 == settings_.micro_batches;
  const std::uint32_t parts = is_last ? settings_.buckets : 1;
  for (std::uint32_t part = 0; part < parts; ++part) {
    const Waits& also = part == 0 ? input : Waits();
    compute(rank, Time{2 * forward_.ps / parts}, backward_phase_, stage.last, also);
    if (settings_.tensor > 1) {
      compute(rank, Time{tensor_.ps / parts}, tensor_phase_, stage.last, {});
    }
    if (is_last) stage.buckets.push_back(stage.last);
  }
  stage.backward.push_back(stage.last.front());
}

// Adds the passes of all stages of a replica, for one place of the tensor groups. Each stage does
// its passes in the order of 1F1B. A pass is added when what it waits for has been.
void StepBuilder::run_pipeline(std::uint32_t replica, std::uint32_t place,
                               std::vector<Stage>& stages) {
  const std::uint32_t count = settings_.pipeline;
  const std::uint32_t batches = settings_.micro_batches;
  const auto bytes = static_cast<std::uint64_t>(activation_bytes() / settings_.tensor);
  std::vector<std::vector<Index>> inputs(count), gradients(count);  // that each stage receives
  std::vector<std::uint32_t> done(count);                           // passes of each stage
  const auto is_forward = [&](std::uint32_t stage) {
    const std::uint32_t ahead = std::min(count - stage, batches);  // forward passes at first
    const std::uint32_t pass = done[stage];
    return pass < ahead || (pass < 2 * batches - ahead && (pass - ahead) % 2 == 1);
  };
  for (std::uint32_t left = 2 * batches * count; left > 0;) {
    for (std::uint32_t stage = 0; stage < count; ++stage) {
      Stage& at = stages[stage];
      const std::uint32_t rank = settings_.rank(replica, stage, place);
      while (done[stage] < 2 * batches) {
        if (is_forward(stage)) {
          const std::size_t batch = at.forward.size();
          if (stage > 0 && inputs[stage].size() <= batch) break;
          run_forward(rank, at, stage > 0 ? Waits{inputs[stage][batch]} : Waits());
          if (stage + 1 < count) {
            const std::uint32_t next = settings_.rank(replica, stage + 1, place);
            inputs[stage + 1].push_back(send(rank, next, bytes, pipeline_phase_, at.last));
          }
        } else {
          const std::size_t batch = at.backward.size();
          if (stage + 1 < count && gradients[stage].size() <= batch) break;
          run_backward(rank, at, stage + 1 < count ? Waits{gradients[stage][batch]} : Waits());
          if (stage > 0) {
            const std::uint32_t before = settings_.rank(replica, stage - 1, place);
            gradients[stage - 1].push_back(send(rank, before, bytes, pipeline_phase_, at.last));
          }
        }
        ++done[stage];
        --left;
      }
    }
  }
}

// Adds a ring all-reduce among the replicas for each part of the gradients.
void StepBuilder::sum_gradients(std::uint32_t stage, std::uint32_t place,
                                const std::vector<std::vector<Waits>>& ready) {
  const std::uint32_t count = settings_.replicas();
  const double weights = settings_.model.layer_weights() * settings_.model.layers /
                         settings_.pipeline / settings_.tensor;
  const auto bytes = static_cast<std::uint64_t>(weights * settings_.gradient_bytes);
  for (std::uint32_t bucket = 0; bucket < settings_.buckets; ++bucket) {
    Ring ring{{},
              part_of(bytes, bucket, settings_.buckets),
              2 * (count - 1),
              gradients_phase_,
              gradients_phase_,
              count - 1};
    std::vector<Waits> before;
    for (std::uint32_t replica = 0; replica < count; ++replica) {
      ring.ranks.push_back(settings_.rank(replica, stage, place));
      before.push_back(ready[replica][bucket]);
    }
    add_ring(graph_, ring, before);
  }
}

TaskGraph StepBuilder::build() {
  const std::uint32_t replicas = settings_.replicas();
  for (std::uint32_t place = 0; place < settings_.tensor; ++place) {
    // By stage and replica: behind which computations parts of the gradients are there.
    std::vector<std::vector<std::vector<Waits>>> ready(settings_.pipeline,
                                                       std::vector<std::vector<Waits>>(replicas));
    for (std::uint32_t replica = 0; replica < replicas; ++replica) {
      std::vector<Stage> stages(settings_.pipeline);
      run_pipeline(replica, place, stages);
      for (std::uint32_t stage = 0; stage < settings_.pipeline; ++stage) {
        ready[stage][replica] = std::move(stages[stage].buckets);
      }
    }
    for (std::uint32_t stage = 0; stage < settings_.pipeline && replicas > 1; ++stage) {
      sum_gradients(stage, place, ready[stage]);
    }
  }
  return std::move(graph_);
}

double tasks_of(const TrainingSettings& settings) {
  const double passes = 2.0 * settings.micro_batches + settings.buckets;
  const double ring = 2.0 * settings.replicas() * settings.buckets;
  return settings.servers.ranks() * (3 * passes + ring);
}

}  // namespace

double TransformerModel::layer_weights() const {
  const double width = hidden;
  const double key_value = width * key_value_heads / heads;
  return width * (2 * width + 2 * key_value) + 3.0 * width * feed_forward;
}

// Each weight takes a multiplication and an addition for a token. The scores of the attention, and
// what they weigh, take two each for a pair of tokens, of which causality leaves half.
double TransformerModel::layer_operations() const {
  const double tokens = sequence;
  return 2 * layer_weights() * tokens + 2.0 * tokens * tokens * hidden;
}

Result<TaskGraph> make_training_step(const TrainingSettings& settings) {
  if (auto right = check(settings); !right) return right.error();
  if (tasks_of(settings) > static_cast<double>(TaskGraph::tasks_max)) {
    return Error{
        fmt::format("this step has more than {} tasks; take fewer GPUs, micro-batches or "
                    "buckets",
                    TaskGraph::tasks_max)};
  }
  return StepBuilder(settings).build();
}

}  // namespace tulle::workload
