#include "study/workload/training_costs.h"

#include <algorithm>

namespace tulle::workload {
namespace {

double operations_per_second(const TrainingSettings& settings) {
  return settings.gpu.operations_per_second * settings.gpu.efficiency * settings.tensor;
}

// Returns how long a GPU waits for an all-gather that continues while it computes the product of
// all tokens with so many weights.
double waits_for_gather(const TrainingSettings& settings, double tokens, double bytes,
                        double weights) {
  const double product = 2 * tokens * weights / operations_per_second(settings);
  return std::max(0.0, exchange_seconds(settings.servers, settings.tensor, bytes) / 2 - product);
}

}  // namespace

double TransformerModel::attention_weights() const {
  const double width = hidden;
  const double key_value = width * key_value_heads / heads;
  return width * (2 * width + 2 * key_value);
}

double TransformerModel::expert_weights() const { return 3.0 * hidden * feed_forward; }

double TransformerModel::layer_weights() const {
  const double networks = experts == 0 ? 1.0 : 1.0 * experts + shared_experts;
  return attention_weights() + networks * expert_weights();
}

// Each weight takes a multiplication and an addition for a token. The scores of the attention, and
// what they weigh, take two each for a pair of tokens, of which causality leaves half.
double TransformerModel::dense_operations() const {
  const double tokens = sequence;
  const double networks = experts == 0 ? 1 : shared_experts;
  return 2 * (attention_weights() + networks * expert_weights()) * tokens +
         2.0 * tokens * tokens * hidden;
}

double TransformerModel::routed_operations() const {
  return experts == 0 ? 0 : 2 * expert_weights() * experts_of_token * sequence;
}

double exchange_seconds(const Servers& servers, std::uint32_t tensor, double bytes) {
  if (tensor == 1) return 0;
  const double share = 2.0 * (tensor - 1) / tensor;
  const double rate = static_cast<double>(servers.scale_up_bits_per_second) / 8;
  const double latency = servers.scale_up_latency.to_seconds() * 2 * (tensor - 1);
  return share * bytes / rate + latency;
}

LayerCosts costs_of(const TrainingSettings& settings) {
  const TransformerModel& model = settings.model;
  const double tokens = 1.0 * model.sequence * settings.micro_batch;
  LayerCosts costs;
  costs.dense_seconds =
      model.dense_operations() * settings.micro_batch / operations_per_second(settings);
  costs.copy_seconds = 2 * model.expert_weights() / operations_per_second(settings);
  costs.copies = tokens * model.experts_of_token;
  costs.copy_bytes = 1.0 * model.hidden * settings.value_bytes;
  costs.activation_bytes = tokens * costs.copy_bytes;
  // A group with expert parallelism exchanges the copies that came, and not the activations.
  const bool has_network = settings.expert == 1 || model.shared_experts > 0;
  const double exchange =
      exchange_seconds(settings.servers, settings.tensor, costs.activation_bytes);
  costs.exchange_seconds = (has_network ? 2 : 1) * exchange;
  costs.backward_exchange_seconds = costs.exchange_seconds;
  if (!settings.sequence) return costs;
  const double width = model.hidden;
  const double query_key_value = width * width * (1 + 2.0 * model.key_value_heads / model.heads);
  costs.backward_exchange_seconds +=
      waits_for_gather(settings, tokens, costs.activation_bytes, query_key_value);
  if (has_network) {
    const double networks = model.experts == 0     ? 1
                            : settings.expert == 1 ? model.experts_of_token + model.shared_experts
                                                   : model.shared_experts;
    costs.backward_exchange_seconds += waits_for_gather(settings, tokens, costs.activation_bytes,
                                                        networks * 2 * width * model.feed_forward);
  }
  return costs;
}

}  // namespace tulle::workload
