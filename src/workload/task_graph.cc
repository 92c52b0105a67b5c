#include "workload/task_graph.h"

#include <fmt/format.h>

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
  before_.insert(before_.end(), after.begin(), after.end());
  first_before_.push_back(before_.size());
  return index;
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

}  // namespace tulle::workload
