#pragma once

// This says whose tokens go to whose experts in a training step with expert parallelism.

#include <cstdint>
#include <vector>

#include "study/workload/training.h"

namespace tulle::workload {

// The experts are drawn once for each layer and each group of replicas that share them, and all
// micro-batches of a step choose alike. What is popular in a layer is so in all groups.
//
// A group has members, which are its replicas, and places, which are those of a tensor group. With
// sequence parallelism each place has its part of a replica's tokens.
class TrainingRouting {
 public:
  // `tokens` are those of a micro-batch.
  TrainingRouting(const TrainingSettings& settings, std::uint64_t tokens);

  // Returns how many copies of tokens one member sends to another one's experts, at one place.
  std::uint32_t copies(std::uint32_t group, std::uint32_t layer, std::uint32_t place,
                       std::uint32_t from, std::uint32_t to) const {
    return copies_[index_of(group, layer, place, from, to)];
  }
  // Returns how many copies the experts of a member get, from all members and places.
  std::uint32_t received(std::uint32_t group, std::uint32_t layer, std::uint32_t member) const {
    return received_[(std::size_t{group} * layers_ + layer) * members_ + member];
  }

 private:
  std::size_t index_of(std::uint32_t group, std::uint32_t layer, std::uint32_t place,
                       std::uint32_t from, std::uint32_t to) const {
    const std::size_t at = (std::size_t{group} * layers_ + layer) * places_ + place;
    return (at * members_ + from) * members_ + to;
  }

  std::uint32_t members_, places_, layers_;
  std::vector<std::uint32_t> copies_, received_;
};

}  // namespace tulle::workload
