#pragma once

// A step of training a transformer as a graph of tasks, from the model's shape, what a GPU can do,
// and how the work is dealt out: tensor, pipeline and data parallelism, as in Megatron-LM
// (Narayanan et al., SC 2021).
//
// Ranks are dealt as there: the tensor group is innermost, so that it lies in one server, then come
// the pipeline's stages, then the replicas of the data.

#include <cstdint>

#include "base/result.h"
#include "workload/servers.h"
#include "workload/task_graph.h"

namespace tulle::workload {

// A decoder with grouped-query attention and a gated feed-forward network (LLaMA's).
struct TransformerModel {
  std::uint32_t layers = 0;
  std::uint32_t hidden = 0;
  std::uint32_t feed_forward = 0;  // width inside of the feed-forward network
  std::uint32_t heads = 0;
  std::uint32_t key_value_heads = 0;  // divides heads
  std::uint32_t sequence = 0;         // tokens

  // Weights of one layer, without norms and embeddings.
  double layer_weights() const;
  // Floating-point operations of one layer's forward pass for a sequence, with causal attention.
  double layer_operations() const;
};

struct Gpu {
  double operations_per_second = 0;  // of matrix products at the training's precision
  double efficiency = 1;             // share of these that a training reaches, in (0, 1]
};

struct TrainingSettings {
  TransformerModel model;
  Gpu gpu;
  Servers servers;
  std::uint32_t tensor = 1;         // GPUs that share each layer; at most those of a server
  std::uint32_t pipeline = 1;       // stages; divides the layers
  std::uint32_t micro_batch = 1;    // sequences
  std::uint32_t micro_batches = 1;  // of a replica, in one step
  std::uint32_t value_bytes = 2;    // of an activation
  std::uint32_t gradient_bytes = 2;
  // Parts of a stage's gradients, each of which is summed among the replicas once it is there.
  std::uint32_t buckets = 4;

  // All GPUs that are left hold further replicas.
  std::uint32_t replicas() const { return servers.ranks() / tensor / pipeline; }
  std::uint32_t rank(std::uint32_t replica, std::uint32_t stage, std::uint32_t place) const {
    return (replica * pipeline + stage) * tensor + place;
  }
};

// The graph has the phases "forward", "backward", "tensor" (what a tensor group's GPUs exchange by
// the scale-up network, which is part of their time), "pipeline" and "gradients". The pipeline runs
// one forward, one backward (1F1B). The error is one line.
Result<TaskGraph> make_training_step(const TrainingSettings& settings);

}  // namespace tulle::workload
