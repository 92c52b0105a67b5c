#pragma once

// The costs of the parts of a training step for each GPU, in seconds and bytes.

#include <cstdint>

#include "base/time.h"
#include "study/workload/servers.h"
#include "study/workload/training.h"

namespace tulle::workload {

// The forward pass of one micro-batch through one layer. A backward pass computes twice as much.
struct LayerCosts {
  double dense_seconds = 0;  // computes all but the experts that tokens choose
  double copy_seconds = 0;   // computes one token at one expert
  double copies = 0;         // of a micro-batch's tokens, one for each expert that they choose
  // The tensor group's exchanges of the attention, of the feed-forward network, and of shared
  // experts, forward. Without sequence parallelism each is a ring all-reduce, and with it an
  // all-gather and a reduce-scatter, which take the same time.
  double exchange_seconds = 0;
  // The same backward. With sequence parallelism a GPU keeps its part of what a block was given,
  // and gathers the whole once more. It computes the gradient of the block's first product
  // meanwhile, and waits for what is left.
  double backward_exchange_seconds = 0;
  double copy_bytes = 0;        // of one token on its way to or from an expert
  double activation_bytes = 0;  // of one micro-batch, of a whole tensor group

  // Computes a layer whose experts are all on this tensor group.
  double layer_seconds() const { return dense_seconds + copies * copy_seconds; }
};

LayerCosts costs_of(const TrainingSettings& settings);

// The time for which a tensor group's GPUs gather and scatter so many bytes, of which each has a
// part: an all-gather and a reduce-scatter, or a ring all-reduce.
double exchange_seconds(const Servers& servers, std::uint32_t tensor, double bytes);

inline Time time_from(double seconds) {
  return Time::picoseconds(static_cast<std::int64_t>(seconds * 1e12));
}

}  // namespace tulle::workload
