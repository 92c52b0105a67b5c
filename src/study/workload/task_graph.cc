#include "study/workload/task_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tulle::workload {

std::uint32_t TaskGraph::add_phase(std::string name) {
  phases_.push_back(std::move(name));
  return static_cast<std::uint32_t>(phases_.size() - 1);
}

TaskGraph::Index TaskGraph::add(const Task& task, std::span<const Index> after) {
  const auto index = static_cast<Index>(tasks_.size());
  for (const Index before : after) TULLE_CHECK(before < index);
  tasks_.push_back(task);
  processors_ = std::max(processors_, task.processor + 1u);
  before_.insert(before_.end(), after.begin(), after.end());
  first_before_.push_back(before_.size());
  return index;
}

TaskGraph::Index TaskGraph::add_message(Task task, std::span<const Index> after) {
  Index last = 0;
  for (std::uint64_t left = std::max<std::uint64_t>(task.bytes, 1); left > 0; left -= task.bytes) {
    task.bytes = std::min(left, Task::bytes_max);
    last = add(task, after);
  }
  return last;
}

Result<void> TaskGraph::check() const {
  if (size() > tasks_max) {
    return Error{fmt::format("{} tasks are more than the {} of one run", size(), tasks_max)};
  }
  const auto wrong = [](Index task, const std::string& fault) {
    return Error{fmt::format("task {}: {}", task, fault)};
  };
  for (Index i = 0; i < size(); ++i) {
    const Task& task = tasks_[i];
    if (task.rank >= ranks_ || (task.is_message() && task.peer >= ranks_)) {
      return wrong(i, fmt::format("rank {} does not exist; there are {}",
                                  std::max(task.rank, task.peer), ranks_));
    }
    if (task.is_message() && task.peer == task.rank) {
      return wrong(i, fmt::format("rank {} sends to itself", task.rank));
    }
    if (task.is_message() && (task.bytes == 0 || task.bytes > Task::bytes_max)) {
      return wrong(i, fmt::format("{} bytes are no message: 1 byte to 1 GiB", task.bytes));
    }
    if (task.duration < Time::zero())
      return wrong(i, "a computation cannot take less than nothing");
    if (task.phase >= phases_.size()) {
      return wrong(i, fmt::format("phase {} does not exist", task.phase));
    }
    for (const Index before : waits_for(i)) {
      if (!tasks_[before].is_known_at(task.rank)) {
        return wrong(i, fmt::format("rank {} does not know when task {} ends: that is neither a "
                                    "task of this rank nor a message to it",
                                    task.rank, before));
      }
    }
  }
  return {};
}

Time time_without_communication(const TaskGraph& graph) {
  std::vector<Time> ends(graph.size());
  std::vector<Time> busy(std::size_t{graph.ranks()} * graph.processors());
  Time last;
  for (TaskGraph::Index i = 0; i < graph.size(); ++i) {
    const Task& task = graph[i];
    Time begins;
    for (const auto before : graph.waits_for(i)) begins = std::max(begins, ends[before]);
    if (!task.is_message() && task.duration > Time::zero()) {
      Time& until = busy[std::size_t{task.rank} * graph.processors() + task.processor];
      begins = std::max(begins, until);
      if (!task.exchanges) begins += task.duration;
      until = begins;
    }
    ends[i] = begins;
    last = std::max(last, begins);
  }
  return last;
}

}  // namespace tulle::workload
