#include "study/workload/training_routing.h"

#include "study/workload/part.h"
#include "study/workload/router.h"

namespace tulle::workload {

TrainingRouting::TrainingRouting(const TrainingSettings& settings, std::uint64_t tokens)
    : members_(settings.expert),
      places_(settings.tensor),
      layers_(settings.model.layers),
      copies_(std::size_t{settings.replicas()} * layers_ * places_ * members_),
      received_(std::size_t{settings.replicas()} * layers_) {
  const TransformerModel& model = settings.model;
  const std::uint32_t experts_of_member = model.experts / members_;
  for (std::uint32_t layer = 0; layer < layers_; ++layer) {
    Router router({model.experts, model.experts_of_token, 1, 0, model.skew, settings.seed + layer});
    for (std::uint32_t replica = 0; replica < settings.replicas(); ++replica) {
      const std::uint32_t group = replica / members_, from = replica % members_;
      for (std::uint32_t place = 0; place < places_; ++place) {
        for (std::uint64_t left = part_of(tokens, place, places_); left > 0; --left) {
          for (const std::uint32_t expert : router.choose()) {
            const std::uint32_t to = expert / experts_of_member;
            ++copies_[index_of(group, layer, place, from, to)];
            ++received_[(std::size_t{group} * layers_ + layer) * members_ + to];
          }
        }
      }
    }
  }
}

}  // namespace tulle::workload
