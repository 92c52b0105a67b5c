#pragma once

// Ranks that work on many tasks at once, in rounds, such as a decoder, which makes one token for
// each of its requests in each round. A task joins before a round, and leaves after its last one
// (continuous batching; Yu et al., OSDI 2022).

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "base/time.h"
#include "study/workload/task_graph.h"

namespace tulle::workload {

struct BatchSettings {
  Time round;              // takes this, such as to read the weights, and the tasks' durations;
  Time computation;        // or this for each task, if that is longer
  std::uint32_t most = 1;  // tasks in a batch
};

class Batches {
 public:
  struct Member {
    TaskGraph::Index task = 0;
    Time duration;  // of its part of a round
    std::uint32_t rounds_left = 1;
    bool is_new = true;  // it was in no round yet
  };

  // Nothing is kept without settings.
  Batches(const std::optional<BatchSettings>& settings, std::uint32_t ranks);

  void add(std::uint32_t rank, const Member& member) { ranks_[rank].waiting.push_back(member); }
  // Begins a round and returns how long it takes; nothing if one is under way, or nobody waits.
  std::optional<Time> begin(std::uint32_t rank);
  // Returns a task of the round that is under way.
  TaskGraph::Index first(std::uint32_t rank) const { return ranks_[rank].batch.front().task; }
  // Ends the round, and returns its members with what they then have left.
  std::vector<Member> end(std::uint32_t rank);

 private:
  struct Rank {
    std::deque<Member> waiting;
    std::vector<Member> batch;
    bool is_busy = false;
  };
  BatchSettings settings_;
  std::vector<Rank> ranks_;
};

}  // namespace tulle::workload
