#pragma once

// A job's work as data: what each rank computes and sends, and what must have been done before. A
// rank is a GPU, or whatever computes and sends by itself.
//
// A task waits for tasks of the same rank, and for messages to that rank: a rank knows only what it
// did and what it was told. A message that arrives at a rank releases the tasks there; a message
// that has left a rank, so that its memory may be used again, releases the tasks here.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace tulle::workload {

struct Task {
  static constexpr std::uint64_t bytes_max = 1u << 30;  // of one message
  enum class Kind : std::uint8_t { message, computation };
  Kind kind = Kind::message;
  std::uint32_t rank = 0;   // sends or computes
  std::uint32_t peer = 0;   // message: receives, and is another rank
  std::uint64_t bytes = 0;  // message: 1 to bytes_max
  // computation; one that takes no time needs no processor, and only joins what it waits for
  Time duration = Time::zero();
  // computation: which of its rank's processors does it, such as the GPU (0) or the host's. Each
  // does one thing at a time.
  std::uint8_t processor = 0;
  // A computation that is communication in truth: its ranks exchange by themselves meanwhile.
  bool exchanges = false;
  // A message that the receiver adds to what it has, and does not only store.
  bool reduces = false;
  // A message that a host's processor or an adapter sends, without Servers::message_delay.
  bool by_host = false;
  // Messages of one channel from one rank to another go in order and by one path, as through one
  // queue pair.
  std::uint32_t channel = 0;
  std::uint32_t phase = 0;  // index in TaskGraph::phases()
  // A computation that its rank does in a batch with others, for so many rounds, in each of which
  // it takes its duration (study/workload/batches.h); 0: it is done by itself.
  std::uint32_t rounds = 0;

  bool is_message() const { return kind == Kind::message; }
  // Returns true if the end of this task can release a task of that rank.
  bool is_known_at(std::uint32_t other) const {
    return rank == other || (is_message() && peer == other);
  }
};

class TaskGraph {
 public:
  using Index = std::uint32_t;
  // The player's alarms have room for so many (study/workload/task_player.cc).
  static constexpr std::size_t tasks_max = 1u << 27;

  // `ranks` is at least 1.
  explicit TaskGraph(std::uint32_t ranks) : ranks_(ranks) {}

  // Adds a phase, a name under which the times of tasks are shown, and returns its index. Tasks
  // belong to phase 0, "", unless they say otherwise.
  std::uint32_t add_phase(std::string name);
  // Adds a task that waits for tasks that were added before, and returns its index.
  Index add(const Task& task, std::span<const Index> after = {});
  Index add(const Task& task, std::initializer_list<Index> after) {
    return add(task, std::span(after.begin(), after.size()));
  }
  // Adds a message of any length, in pieces that a task can have, and returns the last one. A
  // message has one byte at least.
  Index add_message(Task task, std::span<const Index> after);

  std::uint32_t ranks() const { return ranks_; }
  // Returns how many processors a rank needs: one more than the highest number, and at least 1.
  std::uint32_t processors() const { return processors_; }
  std::size_t size() const { return tasks_.size(); }
  const Task& operator[](Index task) const { return tasks_[task]; }
  std::span<const Index> waits_for(Index task) const {
    return std::span(before_).subspan(first_before_[task],
                                      first_before_[task + 1] - first_before_[task]);
  }
  const std::vector<std::string>& phases() const { return phases_; }

  // Returns an error that names the first task that cannot be: one with a rank that does not exist,
  // a message to its own rank or without a byte, or one that waits for what its rank cannot know.
  Result<void> check() const;

 private:
  std::uint32_t ranks_;
  std::uint32_t processors_ = 1;
  std::vector<Task> tasks_;
  std::vector<std::size_t> first_before_{0};  // by task: index in before_
  std::vector<Index> before_;
  std::vector<std::string> phases_{""};
};

// Tasks first, first + 1, … before end.
struct TaskRange {
  TaskGraph::Index first = 0;
  TaskGraph::Index end = 0;

  bool operator==(const TaskRange&) const = default;
};

// Returns the time of a job whose communication costs nothing: computations and their order are
// what remains.
Time time_without_communication(const TaskGraph& graph);

}  // namespace tulle::workload
