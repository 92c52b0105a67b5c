#pragma once

// Test support: graphs of tasks as text, and servers of one GPU.

#include <fmt/format.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "study/traces/reader.h"
#include "study/workload/task_graph.h"

namespace tulle::traces {

// Returns a line for each task: "2: 0->1 10 after 0 1", or "3: 0 computes 5 ns on 1 after 2", or
// "4: 0 joins after 2 3". A message's channel follows it unless it is 0.
inline std::string text_of(const workload::TaskGraph& graph) {
  std::string text;
  for (workload::TaskGraph::Index i = 0; i < graph.size(); ++i) {
    const workload::Task& task = graph[i];
    text += fmt::format("{}: ", i);
    if (task.is_message()) {
      text += fmt::format("{}->{} {}", task.rank, task.peer, task.bytes);
      if (task.channel > 0) text += fmt::format(" by {}", task.channel);
    } else if (task.duration == Time::zero()) {
      text += fmt::format("{} joins", task.rank);
    } else {
      text += fmt::format("{} {} {} ns", task.rank, task.exchanges ? "pauses" : "computes",
                          task.duration.to_nanoseconds());
      if (task.processor > 0) text += fmt::format(" on {}", task.processor);
    }
    std::string_view before = " after";
    for (const auto wait : graph.waits_for(i)) {
      text += fmt::format("{} {}", before, wait);
      before = "";
    }
    text += "\n";
  }
  return text;
}

// Returns servers of one GPU and one adapter each.
inline workload::Servers servers_of(std::uint32_t ranks) {
  workload::Servers servers;
  servers.servers = ranks;
  return servers;
}

// Returns the graph as text, or the error.
inline std::string read(std::span<const File> files, const Settings& settings) {
  auto graph = read_trace(files, settings);
  if (!graph) return graph.error().message;
  auto right = graph->check();
  return right ? text_of(*graph) : right.error().message;
}

inline std::string read(const std::string& name, std::string_view text, std::uint32_t ranks) {
  Settings settings;
  settings.servers = servers_of(ranks);
  const File file{name, text, std::nullopt};
  return read({&file, 1}, settings);
}

}  // namespace tulle::traces
