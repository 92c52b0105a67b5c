#pragma once

// A step of training a transformer as a graph of tasks, from the model's shape, what a GPU can do,
// and how the work is dealt out: tensor, pipeline and data parallelism, as in Megatron-LM
// (Narayanan et al., SC 2021), its sequence parallelism (Korthikanti et al., MLSys 2023), and
// expert parallelism.
//
// Ranks are dealt as there: the tensor group is innermost, so that it is in one server, then come
// the replicas that share one set of experts, the pipeline's stages, and all other replicas of the
// data.

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "base/result.h"
#include "study/workload/checkpoint.h"
#include "study/workload/servers.h"
#include "study/workload/task_graph.h"

namespace tulle::workload {

// A decoder with grouped-query attention and a gated feed-forward network (LLaMA's). With experts,
// each layer has many such networks, the experts, of which each token takes some.
struct TransformerModel {
  std::uint32_t layers = 0;
  std::uint32_t hidden = 0;
  std::uint32_t feed_forward = 0;  // width inside of the feed-forward network
  std::uint32_t heads = 0;
  std::uint32_t key_value_heads = 0;  // divides heads
  std::uint32_t sequence = 0;         // tokens
  std::uint32_t experts = 0;          // of a layer, each of the width above; 0: there are none
  std::uint32_t experts_of_token = 0;
  std::uint32_t shared_experts = 0;  // that each token takes besides, and each GPU has
  // The expert at place n of popularity is chosen in proportion to n^-skew
  // (study/workload/router.h).
  double skew = 0;

  // Weights without norms, embeddings and routers.
  double attention_weights() const;
  double expert_weights() const;  // of one feed-forward network
  double layer_weights() const;
  // Floating-point operations of one layer's forward pass for a sequence, with causal attention.
  double layer_operations() const { return dense_operations() + routed_operations(); }
  double routed_operations() const;  // of the experts that tokens choose
  double dense_operations() const;   // of the rest
};

// Returns an error if no model has these numbers. The sequence is not looked at.
Result<void> check_shape(const TransformerModel& model);

struct NamedCount {
  std::uint32_t value;
  const char* name;
};
// Returns an error that names the first count that is zero.
Result<void> check_counts(std::initializer_list<NamedCount> counts);

struct Gpu {
  double operations_per_second = 0;    // of matrix products at the training's precision
  double efficiency = 1;               // share of these that a training reaches, in (0, 1]
  double memory_bytes_per_second = 0;  // with which a decoder reads weights, keys and values
};

struct TrainingSettings {
  TransformerModel model;
  Gpu gpu;
  Servers servers;
  std::uint32_t tensor = 1;    // GPUs that share each layer; at most those of a server
  std::uint32_t pipeline = 1;  // stages; divides the layers
  // Replicas that share one set of experts: each has experts / expert of each layer.
  std::uint32_t expert = 1;
  // A tensor group splits sequences too, where it does not split the weights.
  bool sequence = false;
  std::uint32_t micro_batch = 1;    // sequences
  std::uint32_t micro_batches = 1;  // of a replica, in one step
  std::uint32_t value_bytes = 2;    // of an activation
  std::uint32_t gradient_bytes = 2;
  // Parts of a stage's gradients, each of which is summed among the replicas once it is there.
  std::uint32_t buckets = 4;
  std::uint64_t seed = 1;   // of the experts that tokens choose
  std::uint32_t steps = 1;  // one after the other
  // The state of a weight that a checkpoint has: the weight, and what the optimizer keeps for it.
  // Adam in mixed precision keeps the weight, the momentum and the variance as FP32, 12 bytes
  // (ZeRO, Rajbhandari et al., SC 2020, 3.1).
  std::uint32_t weight_bytes = 2;
  std::uint32_t optimizer_bytes = 12;
  // A checkpoint follows each step whose number is a multiple of `every`, but not the last one.
  CheckpointSettings checkpoint;

  std::uint32_t gpus() const { return gpus_that_compute(servers, checkpoint); }
  // All GPUs that are left hold further replicas.
  std::uint32_t replicas() const { return gpus() / tensor / pipeline; }
  std::uint32_t checkpoints() const {
    return checkpoint.storage == 0 ? 0 : (steps - 1) / checkpoint.every;
  }
  // All replicas together write each weight once.
  double checkpoint_bytes() const {
    return model.layer_weights() * model.layers * (1.0 * weight_bytes + optimizer_bytes);
  }
  std::uint32_t rank(std::uint32_t replica, std::uint32_t stage, std::uint32_t place) const {
    return ((replica / expert * pipeline + stage) * expert + replica % expert) * tensor + place;
  }
};

// One step, whatever the number of steps in the settings. The graph has the phases "forward",
// "backward", "tensor" (what a tensor group's GPUs exchange by the scale-up network, which is part
// of their time), "pipeline" and "gradients", and with expert parallelism "dispatch" and "combine".
// The pipeline runs one forward, one backward (1F1B). The error is one line.
Result<TaskGraph> make_training_step(const TrainingSettings& settings);

// Several steps as one graph, which has the phases "checkpoint" and "drives" too if there are
// checkpoints.
struct Training {
  TaskGraph graph;
  // By step: tasks that end when each GPU has finished the step. Empty if there is one step.
  std::vector<TaskRange> step_ends{};
  std::vector<TaskRange> checkpoints{};  // the tasks of each
};
Result<Training> make_training(const TrainingSettings& settings);

}  // namespace tulle::workload
