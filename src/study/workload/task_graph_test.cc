#include "study/workload/task_graph.h"

#include <gtest/gtest.h>

namespace tulle::workload {
namespace {

Task message(std::uint32_t from, std::uint32_t to, std::uint64_t bytes = 8) {
  Task task;
  task.rank = from;
  task.peer = to;
  task.bytes = bytes;
  return task;
}
Task computation(std::uint32_t rank, Time duration = Time::microseconds(1)) {
  Task task;
  task.kind = Task::Kind::computation;
  task.rank = rank;
  task.duration = duration;
  return task;
}

TEST(TaskGraph, KeepsTasksAndWhatTheyWaitFor) {
  TaskGraph graph(3);
  const auto a = graph.add(computation(0));
  const auto b = graph.add(message(0, 1), {a});
  const auto c = graph.add(computation(1), {b});
  const auto d = graph.add(message(1, 2), {b, c});
  EXPECT_TRUE(graph.check());
  ASSERT_EQ(graph.size(), 4u);
  EXPECT_TRUE(graph.waits_for(a).empty());
  EXPECT_EQ(graph.waits_for(d).size(), 2u);
  EXPECT_EQ(graph.waits_for(d)[1], c);
  EXPECT_EQ(graph[c].rank, 1u);
}

std::string error_of(const TaskGraph& graph) {
  auto checked = graph.check();
  return checked ? "" : checked.error().message;
}

TEST(TaskGraph, AnErrorNamesTheTask) {
  const auto with = [](const Task& task) {
    TaskGraph graph(2);
    graph.add(computation(0));
    graph.add(task);
    return error_of(graph);
  };
  EXPECT_EQ(with(message(0, 2)), "task 1: rank 2 does not exist; there are 2");
  EXPECT_EQ(with(message(1, 1)), "task 1: rank 1 sends to itself");
  EXPECT_EQ(with(message(0, 1, 0)), "task 1: 0 bytes are no message: 1 byte to 1 GiB");
  EXPECT_EQ(with(computation(0, Time::microseconds(-1))),
            "task 1: a computation cannot take less than nothing");
  Task other = computation(0);
  other.phase = 1;
  EXPECT_EQ(with(other), "task 1: phase 1 does not exist");
}

TEST(TaskGraph, ARankKnowsOnlyWhatItDidAndWasTold) {
  TaskGraph graph(3);
  const auto a = graph.add(message(0, 1));
  graph.add(computation(0), {a});
  graph.add(computation(1), {a});
  EXPECT_EQ(error_of(graph), "");
  graph.add(computation(2), {a});
  EXPECT_EQ(error_of(graph),
            "task 3: rank 2 does not know when task 0 ends: that is neither a task of this rank "
            "nor a message to it");
}

// The host's processor computes beside the GPU. A computation that takes no time waits for neither.
TEST(TaskGraph, ProcessorsOfARankComputeSideBySide) {
  TaskGraph graph(1);
  Task host = computation(0, Time::microseconds(4));
  host.processor = 1;
  graph.add(computation(0, Time::microseconds(3)));
  graph.add(host);
  const auto join = graph.add(computation(0, Time::zero()));
  const auto last = graph.add(host, {join});
  EXPECT_EQ(graph.processors(), 2u);
  EXPECT_EQ(time_without_communication(graph), Time::microseconds(8));
  graph.add(computation(0, Time::microseconds(7)), {last});
  EXPECT_EQ(time_without_communication(graph), Time::microseconds(15));
}

}  // namespace
}  // namespace tulle::workload
