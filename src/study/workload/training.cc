#include "study/workload/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "study/workload/part.h"
#include "study/workload/ring.h"
#include "study/workload/training_costs.h"
#include "study/workload/training_routing.h"

namespace tulle::workload {
namespace {

using Index = TaskGraph::Index;

Result<void> check_experts(const TrainingSettings& settings) {
  const TransformerModel& model = settings.model;
  if (model.experts == 0) {
    if (settings.expert > 1) return Error{"expert goes with a model that has experts"};
    return {};
  }
  if (model.experts % settings.expert != 0) {
    return Error{fmt::format("{} experts cannot be dealt to {} replicas (expert) evenly",
                             model.experts, settings.expert)};
  }
  if (settings.replicas() % settings.expert != 0) {
    return Error{fmt::format("{} replicas cannot be dealt into groups of {} (expert) evenly",
                             settings.replicas(), settings.expert)};
  }
  if (settings.expert > 1 && settings.tensor > 1 && !settings.sequence) {
    return Error{"expert above 1 with tensor above 1 needs sequence = true"};
  }
  return {};
}

Result<void> check(const TrainingSettings& settings) {
  const TransformerModel& model = settings.model;
  if (auto right = check_shape(model); !right) return right;
  if (auto right = check_counts({{model.sequence, "sequence"},
                                 {settings.tensor, "tensor"},
                                 {settings.pipeline, "pipeline"},
                                 {settings.expert, "expert"},
                                 {settings.micro_batch, "micro_batch"},
                                 {settings.micro_batches, "micro_batches"},
                                 {settings.buckets, "buckets"},
                                 {settings.steps, "steps"}});
      !right) {
    return right;
  }
  if (model.layers % settings.pipeline != 0) {
    return Error{fmt::format("{} layers cannot be dealt to {} pipeline stages evenly", model.layers,
                             settings.pipeline)};
  }
  if (settings.servers.gpus % settings.tensor != 0) {
    return Error{fmt::format("a tensor group of {} does not fit into servers of {} GPUs",
                             settings.tensor, settings.servers.gpus)};
  }
  const std::uint64_t one = std::uint64_t{settings.tensor} * settings.pipeline;
  if (auto right = check_checkpoint(settings.servers, settings.checkpoint); !right) return right;
  if (settings.gpus() % one != 0) {
    return Error{
        fmt::format("replicas of {} GPUs (tensor {} times pipeline {}) do not fill {} GPUs", one,
                    settings.tensor, settings.pipeline, settings.gpus())};
  }
  if (!(settings.gpu.operations_per_second > 0) ||
      !(settings.gpu.efficiency > 0 && settings.gpu.efficiency <= 1)) {
    return Error{"a GPU needs its operations a second, and an efficiency above 0 and at most 1"};
  }
  return check_experts(settings);
}

// Replicas that share experts work in step: what one of them does, all of them do, before the
// builder continues. Replicas that share none are groups of one.
class StepBuilder {
 public:
  explicit StepBuilder(const TrainingSettings& settings)
      : settings_(settings),
        costs_(costs_of(settings)),
        graph_(settings.servers.ranks()),
        begins_(settings.gpus()),
        ends_(settings.gpus()),
        written_(settings.gpus()) {
    forward_phase_ = graph_.add_phase("forward");
    backward_phase_ = graph_.add_phase("backward");
    tensor_phase_ = graph_.add_phase("tensor");
    pipeline_phase_ = graph_.add_phase("pipeline");
    gradients_phase_ = graph_.add_phase("gradients");
    if (settings.expert == 1) return;
    dispatch_phase_ = graph_.add_phase("dispatch");
    combine_phase_ = graph_.add_phase("combine");
    routing_.emplace(settings, std::uint64_t{settings.micro_batch} * settings.model.sequence);
  }

  Training build();

 private:
  // One GPU of a stage.
  struct Member {
    Waits last;                  // what its next task waits for
    std::vector<Waits> buckets;  // the computations behind which gradients are there
  };
  struct Stage {
    std::uint32_t number = 0;
    std::uint32_t forward = 0, backward = 0;  // passes that were added
    std::vector<Member> members;
  };
  using Messages = std::vector<Index>;  // to each member
  void add_step();
  TaskRange end_step();
  TaskRange write_checkpoint();
  std::uint32_t layers() const { return settings_.model.layers / settings_.pipeline; }
  std::uint32_t rank(const Stage& stage, std::uint32_t member) const {
    return settings_.rank(group_ * settings_.expert + member, stage.number, place_);
  }
  void compute(std::uint32_t rank, Time duration, std::uint32_t phase, Waits& last);
  void exchange(std::uint32_t rank, double seconds, Waits& last);
  Index send(std::uint32_t from, std::uint32_t to, std::uint64_t bytes, std::uint32_t phase,
             const Waits& after);
  Messages send_on(const Stage& stage, std::uint32_t to);
  void run_pipeline(std::vector<Stage>& stages);
  void run_forward(Stage& stage);
  void run_backward(Stage& stage);
  void run_dense(Stage& stage, bool is_backward);
  void run_experts(Stage& stage, std::uint32_t layer, bool is_backward);
  void all_to_all(Stage& stage, std::uint32_t layer, bool is_back);
  void note_gradients(Stage& stage, std::uint32_t done, std::uint32_t of);
  void sum_gradients(std::uint32_t stage, const std::vector<std::vector<Waits>>& ready);
  void add_rings(std::uint32_t stage, const std::vector<std::vector<Waits>>& ready,
                 std::uint32_t first, std::uint32_t step, double weights);

  const TrainingSettings& settings_;
  LayerCosts costs_;
  TaskGraph graph_;
  std::uint32_t forward_phase_, backward_phase_, tensor_phase_, pipeline_phase_, gradients_phase_;
  std::uint32_t dispatch_phase_ = 0, combine_phase_ = 0;
  std::optional<TrainingRouting> routing_;  // with expert parallelism
  std::uint32_t place_ = 0;                 // of the tensor groups
  std::uint32_t group_ = 0;                 // of replicas that share experts
  // These say for each rank what its next step waits for, what ends its present one (if another
  // follows), and what its last checkpoint ends with.
  std::vector<Waits> begins_, ends_, written_;
  std::optional<CheckpointPhases> checkpoint_phases_;  // once there is a checkpoint
};

// Adds a computation behind the rank's last one.
void StepBuilder::compute(std::uint32_t rank, Time duration, std::uint32_t phase, Waits& last) {
  Task task;
  task.kind = Task::Kind::computation;
  task.rank = rank;
  task.duration = duration;
  task.phase = phase;
  task.exchanges = phase == tensor_phase_;
  last = {graph_.add(task, last)};
}

// Adds what a tensor group exchanges.
void StepBuilder::exchange(std::uint32_t rank, double seconds, Waits& last) {
  if (settings_.tensor > 1) compute(rank, time_from(seconds), tensor_phase_, last);
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

// Each member sends its part of the activations, or of their gradients, to another stage.
StepBuilder::Messages StepBuilder::send_on(const Stage& stage, std::uint32_t to) {
  const auto bytes = static_cast<std::uint64_t>(costs_.activation_bytes / settings_.tensor);
  Messages messages;
  for (std::uint32_t i = 0; i < stage.members.size(); ++i) {
    const std::uint32_t peer = settings_.rank(group_ * settings_.expert + i, to, place_);
    messages.push_back(send(rank(stage, i), peer, bytes, pipeline_phase_, stage.members[i].last));
  }
  return messages;
}

// All layers of a stage are one computation if there is no expert parallelism.
void StepBuilder::run_forward(Stage& stage) {
  ++stage.forward;
  if (settings_.expert > 1) {
    for (std::uint32_t layer = 0; layer < layers(); ++layer) {
      run_dense(stage, false);
      run_experts(stage, layer, false);
    }
    return;
  }
  Waits& last = stage.members[0].last;
  compute(rank(stage, 0), time_from(layers() * costs_.layer_seconds()), forward_phase_, last);
  exchange(rank(stage, 0), layers() * costs_.exchange_seconds, last);
}

// The last micro-batch's pass is cut, since parts of the gradients are ready behind each part.
void StepBuilder::run_backward(Stage& stage) {
  const bool is_last = ++stage.backward == settings_.micro_batches;
  if (settings_.expert > 1) {
    for (std::uint32_t layer = layers(); layer-- > 0;) {
      run_experts(stage, layer, true);
      run_dense(stage, true);
      if (is_last) note_gradients(stage, layers() - layer, layers());
    }
    return;
  }
  Waits& last = stage.members[0].last;
  const std::uint32_t parts = is_last ? settings_.buckets : 1;
  for (std::uint32_t part = 0; part < parts; ++part) {
    compute(rank(stage, 0), time_from(2 * layers() * costs_.layer_seconds() / parts),
            backward_phase_, last);
    exchange(rank(stage, 0), layers() * costs_.backward_exchange_seconds / parts, last);
    if (is_last) note_gradients(stage, part + 1, parts);
  }
}

// The gradients of so many of the parts of a pass are there.
void StepBuilder::note_gradients(Stage& stage, std::uint32_t done, std::uint32_t of) {
  for (Member& member : stage.members) {
    const std::uint64_t there = std::uint64_t{done} * settings_.buckets / of;
    while (member.buckets.size() < there) member.buckets.push_back(member.last);
  }
}

void StepBuilder::run_dense(Stage& stage, bool is_backward) {
  const double seconds = costs_.dense_seconds * (is_backward ? 2 : 1);
  const double exchanged = is_backward ? costs_.backward_exchange_seconds : costs_.exchange_seconds;
  const std::uint32_t phase = is_backward ? backward_phase_ : forward_phase_;
  for (std::uint32_t i = 0; i < stage.members.size(); ++i) {
    compute(rank(stage, i), time_from(seconds), phase, stage.members[i].last);
    exchange(rank(stage, i), exchanged, stage.members[i].last);
  }
}

// Tokens, and gradients of outputs, go to the experts, and outputs, or gradients of tokens, come
// back. A tensor group splits each expert, and gathers the copies that came to its places.
void StepBuilder::run_experts(Stage& stage, std::uint32_t layer, bool is_backward) {
  all_to_all(stage, layer, false);
  for (std::uint32_t i = 0; i < stage.members.size(); ++i) {
    const double copies = routing_->received(group_, stage.number * layers() + layer, i);
    Waits& last = stage.members[i].last;
    exchange(rank(stage, i),
             exchange_seconds(settings_.servers, settings_.tensor, copies * costs_.copy_bytes),
             last);
    compute(rank(stage, i), time_from(copies * costs_.copy_seconds * (is_backward ? 2 : 1)),
            is_backward ? backward_phase_ : forward_phase_, last);
  }
  all_to_all(stage, layer, true);
}

// Each member sends to each other one, beginning with the next, and continues when it has sent and
// received everything. A computation of no time waits for all of that, and what comes behind waits
// only for the computation. Otherwise, where nothing is computed between, each message that comes
// next would wait for each of these, and the graph would grow with the third power of the members.
void StepBuilder::all_to_all(Stage& stage, std::uint32_t layer, bool is_back) {
  const auto count = static_cast<std::uint32_t>(stage.members.size());
  const std::uint32_t number = stage.number * layers() + layer;
  const std::uint32_t phase = is_back ? combine_phase_ : dispatch_phase_;
  std::vector<Waits> done(count);
  for (std::uint32_t distance = 1; distance < count; ++distance) {
    for (std::uint32_t from = 0; from < count; ++from) {
      const std::uint32_t to = (from + distance) % count;
      const std::uint32_t copies = is_back ? routing_->copies(group_, number, place_, to, from)
                                           : routing_->copies(group_, number, place_, from, to);
      if (copies == 0) continue;
      const auto bytes = copies * static_cast<std::uint64_t>(costs_.copy_bytes);
      const Index message =
          send(rank(stage, from), rank(stage, to), bytes, phase, stage.members[from].last);
      done[from].push_back(message);
      done[to].push_back(message);
    }
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    Waits& last = stage.members[i].last;
    last.insert(last.end(), done[i].begin(), done[i].end());
    compute(rank(stage, i), Time::zero(), phase, last);
  }
}

// Adds the passes of all stages of a group, for one place of the tensor groups. Each stage does its
// passes in the order of 1F1B. A pass is added when what it waits for has been.
void StepBuilder::run_pipeline(std::vector<Stage>& stages) {
  const std::uint32_t count = settings_.pipeline;
  const std::uint32_t batches = settings_.micro_batches;
  std::vector<std::vector<Messages>> inputs(count), gradients(count);  // that each stage receives
  std::vector<std::uint32_t> done(count);                              // passes of each stage
  const auto is_forward = [&](std::uint32_t stage) {
    const std::uint32_t ahead = std::min(count - stage, batches);  // forward passes at first
    const std::uint32_t pass = done[stage];
    return pass < ahead || (pass < 2 * batches - ahead && (pass - ahead) % 2 == 1);
  };
  const auto receive = [](Stage& stage, const Messages& messages) {
    for (std::uint32_t i = 0; i < messages.size(); ++i) {
      stage.members[i].last.push_back(messages[i]);
    }
  };
  for (std::uint32_t left = 2 * batches * count; left > 0;) {
    for (std::uint32_t stage = 0; stage < count; ++stage) {
      Stage& at = stages[stage];
      while (done[stage] < 2 * batches) {
        if (is_forward(stage)) {
          if (stage > 0 && inputs[stage].size() <= at.forward) break;
          if (stage > 0) receive(at, inputs[stage][at.forward]);
          run_forward(at);
          if (stage + 1 < count) inputs[stage + 1].push_back(send_on(at, stage + 1));
        } else {
          if (stage + 1 < count && gradients[stage].size() <= at.backward) break;
          if (stage + 1 < count) receive(at, gradients[stage][at.backward]);
          run_backward(at);
          if (stage > 0) gradients[stage - 1].push_back(send_on(at, stage - 1));
        }
        ++done[stage];
        --left;
      }
    }
  }
}

// Adds ring all-reduces among the replicas first, first + step, …: one for each part of the
// gradients of so many weights.
void StepBuilder::add_rings(std::uint32_t stage, const std::vector<std::vector<Waits>>& ready,
                            std::uint32_t first, std::uint32_t step, double weights) {
  const std::uint32_t count = settings_.replicas() / step;
  if (count < 2) return;
  const double all = weights * settings_.model.layers / settings_.pipeline / settings_.tensor;
  const auto bytes = static_cast<std::uint64_t>(all * settings_.gradient_bytes);
  for (std::uint32_t bucket = 0; bucket < settings_.buckets; ++bucket) {
    Ring ring{{},
              part_of(bytes, bucket, settings_.buckets),
              2 * (count - 1),
              gradients_phase_,
              gradients_phase_,
              count - 1};
    std::vector<Waits> before;
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t replica = first + i * step;
      ring.ranks.push_back(settings_.rank(replica, stage, place_));
      before.push_back(ready[replica][bucket]);
    }
    const Waits received = add_ring(graph_, ring, before);
    for (std::uint32_t i = 0; i < count; ++i) ends_[ring.ranks[i]].push_back(received[i]);
  }
}

// Gradients of experts are summed among the replicas that have the same experts.
void StepBuilder::sum_gradients(std::uint32_t stage, const std::vector<std::vector<Waits>>& ready) {
  const TransformerModel& model = settings_.model;
  if (settings_.expert == 1) return add_rings(stage, ready, 0, 1, model.layer_weights());
  const double experts = model.expert_weights() * model.experts;
  add_rings(stage, ready, 0, 1, model.layer_weights() - experts);
  for (std::uint32_t first = 0; first < settings_.expert; ++first) {
    add_rings(stage, ready, first, settings_.expert, experts / settings_.expert);
  }
}

Training StepBuilder::build() {
  Training training{TaskGraph(1)};
  for (std::uint32_t step = 1; step <= settings_.steps; ++step) {
    add_step();
    if (settings_.steps == 1) break;
    training.step_ends.push_back(end_step());
    const bool is_due = settings_.checkpoint.storage > 0 && step % settings_.checkpoint.every == 0;
    if (is_due && step < settings_.steps) training.checkpoints.push_back(write_checkpoint());
  }
  training.graph = std::move(graph_);
  return training;
}

// Joins all that a GPU does in a step.
TaskRange StepBuilder::end_step() {
  TaskRange range{static_cast<Index>(graph_.size()), 0};
  for (std::uint32_t rank = 0; rank < ends_.size(); ++rank) {
    compute(rank, Time::zero(), 0, ends_[rank]);
    begins_[rank] = std::exchange(ends_[rank], {});
  }
  range.end = static_cast<Index>(graph_.size());
  return range;
}

// A checkpoint begins when the one before it is written, and if it does not overlap, the next step
// when this one is.
TaskRange StepBuilder::write_checkpoint() {
  if (!checkpoint_phases_) {
    checkpoint_phases_ = {graph_.add_phase("checkpoint"), graph_.add_phase("drives")};
  }
  TaskRange range{static_cast<Index>(graph_.size()), 0};
  std::vector<Waits> ready = begins_;
  for (std::uint32_t rank = 0; rank < ready.size(); ++rank) {
    ready[rank].insert(ready[rank].end(), written_[rank].begin(), written_[rank].end());
  }
  written_ = add_checkpoint(graph_, settings_.servers, settings_.checkpoint, *checkpoint_phases_,
                            static_cast<std::uint64_t>(settings_.checkpoint_bytes()), ready);
  for (std::uint32_t rank = 0; rank < ready.size() && !settings_.checkpoint.overlaps; ++rank) {
    begins_[rank].insert(begins_[rank].end(), written_[rank].begin(), written_[rank].end());
  }
  range.end = static_cast<Index>(graph_.size());
  return range;
}

void StepBuilder::add_step() {
  const std::uint32_t replicas = settings_.replicas();
  for (place_ = 0; place_ < settings_.tensor; ++place_) {
    // By stage and replica: behind which computations parts of the gradients are there.
    std::vector<std::vector<std::vector<Waits>>> ready(settings_.pipeline);
    for (group_ = 0; group_ < replicas / settings_.expert; ++group_) {
      std::vector<Stage> stages(settings_.pipeline);
      for (std::uint32_t i = 0; i < settings_.pipeline; ++i) {
        stages[i].number = i;
        stages[i].members.resize(settings_.expert);
        for (std::uint32_t member = 0; member < settings_.expert; ++member) {
          stages[i].members[member].last = begins_[rank(stages[i], member)];
        }
      }
      run_pipeline(stages);
      for (Stage& stage : stages) {
        for (std::uint32_t i = 0; i < stage.members.size(); ++i) {
          Member& member = stage.members[i];
          Waits& ends = ends_[rank(stage, i)];
          ends.insert(ends.end(), member.last.begin(), member.last.end());
          ready[stage.number].push_back(std::move(member.buckets));
        }
      }
    }
    for (std::uint32_t stage = 0; stage < settings_.pipeline && replicas > 1; ++stage) {
      sum_gradients(stage, ready[stage]);
    }
  }
}

// Returns at least as many tasks as the steps have. A message is cut into pieces of 1 GiB.
double tasks_of(const TrainingSettings& settings) {
  const TransformerModel& model = settings.model;
  const LayerCosts costs = costs_of(settings);
  const auto pieces = [](double bytes) { return 1 + bytes / Task::bytes_max; };
  const double passes = 2.0 * settings.micro_batches + settings.buckets;
  const double pass = 2 + pieces(costs.activation_bytes);
  const double weights = model.layer_weights() * model.layers / settings.pipeline / settings.tensor;
  const double part = weights * settings.gradient_bytes / settings.buckets;
  const double rings = settings.expert > 1 ? 2 : 1;
  const double ring = 2.0 * settings.replicas() * settings.buckets;
  double tasks = passes * pass + rings * ring * pieces(part / settings.replicas());
  if (settings.expert > 1) {
    const double all = model.experts_of_token * costs.activation_bytes;
    const double layer = 6 + 2 * (settings.expert - 1 + all / Task::bytes_max);
    tasks += 2.0 * settings.micro_batches * layer * model.layers / settings.pipeline;
  }
  return settings.gpus() * (tasks + 1) * settings.steps +
         settings.checkpoints() *
             checkpoint_tasks(settings.servers, settings.checkpoint, settings.checkpoint_bytes());
}

// Returns at least the time for which a GPU computes, in which it may get all copies of tokens, and
// drives write.
double seconds_of(const TrainingSettings& settings) {
  const TransformerModel& model = settings.model;
  const LayerCosts costs = costs_of(settings);
  const double copies = costs.copies * settings.expert;
  const double copied =
      settings.expert > 1
          ? 2 * exchange_seconds(settings.servers, settings.tensor, copies * costs.copy_bytes)
          : 0;
  const double layer = 3 * (costs.dense_seconds + copies * costs.copy_seconds) +
                       costs.exchange_seconds + costs.backward_exchange_seconds + copied;
  const double step =
      layer * model.layers / settings.pipeline * (1.0 * settings.micro_batches + settings.pipeline);
  return settings.steps * step +
         settings.checkpoints() *
             checkpoint_seconds(settings.servers, settings.checkpoint, settings.checkpoint_bytes());
}

// Checks that the step is one that can be simulated: its times and bytes are within bounds, and it
// has no more tasks, and draws no more experts, than a run can have.
Result<void> check_size(const TrainingSettings& settings) {
  const TransformerModel& model = settings.model;
  constexpr double bytes_max = 16.0 * (1ull << 40);
  const double activations = costs_of(settings).activation_bytes;
  const double gradients = model.layer_weights() * model.layers * settings.gradient_bytes;
  if (activations > bytes_max) {
    return Error{fmt::format("the activations of a micro-batch, {:.3g} bytes, are more than 16 TiB",
                             activations)};
  }
  if (gradients / settings.pipeline / settings.tensor > bytes_max) {
    return Error{
        fmt::format("the gradients, {:.3g} bytes, are more than 16 TiB for a GPU", gradients)};
  }
  constexpr double days_max = 50;
  if (!(seconds_of(settings) < days_max * 86'400)) {
    return Error{"this step computes for more than 50 days"};
  }
  if (tasks_of(settings) > static_cast<double>(TaskGraph::tasks_max)) {
    return Error{
        fmt::format("this step has more than {} tasks; take fewer GPUs, micro-batches or "
                    "buckets",
                    TaskGraph::tasks_max)};
  }
  constexpr double draws_max = 1u << 27;
  const double chosen = 1.0 * settings.replicas() * model.layers * settings.micro_batch *
                        model.sequence * model.experts_of_token;
  const double all = 1.0 * model.layers * model.experts;  // whose popularity is drawn
  if (settings.expert > 1 && chosen + all > draws_max) {
    return Error{
        fmt::format("tokens choose {:.0f} of {:.0f} experts, which is more than {:.0f}; take fewer "
                    "GPUs, tokens or layers",
                    chosen, all, draws_max)};
  }
  return {};
}

}  // namespace

Result<void> check_counts(std::initializer_list<NamedCount> counts) {
  for (const NamedCount& count : counts) {
    if (count.value == 0) return Error{fmt::format("{} must be 1 or more", count.name)};
  }
  return {};
}

Result<void> check_shape(const TransformerModel& model) {
  if (auto right = check_counts({{model.layers, "layers"},
                                 {model.hidden, "hidden"},
                                 {model.feed_forward, "feed_forward"},
                                 {model.heads, "heads"},
                                 {model.key_value_heads, "key_value_heads"}});
      !right) {
    return right;
  }
  constexpr std::uint32_t experts_max = 4'096, experts_of_token_max = 64;
  if (model.heads % model.key_value_heads != 0) {
    return Error{fmt::format("{} key_value_heads do not divide {} heads", model.key_value_heads,
                             model.heads)};
  }
  if (model.experts == 0) {
    if (model.experts_of_token > 0) return Error{"experts_of_token goes with experts"};
    if (model.shared_experts > 0) return Error{"shared_experts goes with experts"};
    return {};
  }
  if (model.experts > experts_max) {
    return Error{fmt::format("{} experts are more than {}", model.experts, experts_max)};
  }
  const std::uint32_t most = std::min(model.experts, experts_of_token_max);
  if (model.experts_of_token == 0 || model.experts_of_token > most) {
    return Error{
        fmt::format("experts_of_token must be 1 to {}, and not {}", most, model.experts_of_token)};
  }
  return {};
}

Result<Training> make_training(const TrainingSettings& settings) {
  if (auto right = check(settings); !right) return right.error();
  if (auto right = check_size(settings); !right) return right.error();
  return StepBuilder(settings).build();
}

Result<TaskGraph> make_training_step(const TrainingSettings& settings) {
  TrainingSettings one = settings;
  one.steps = 1;
  auto training = make_training(one);
  if (!training) return training.error();
  return std::move(training->graph);
}

}  // namespace tulle::workload
