#pragma once

// The processor of a server whose ranks are processes: a rank does one thing at a time, and the
// ranks of a server share its cores. A rank that has several things to do takes turns with the
// others after each.

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "base/time.h"
#include "study/workload/servers.h"
#include "study/workload/task_graph.h"

namespace tulle::workload {

class Cores {
 public:
  struct Work {
    TaskGraph::Index task = 0;
    bool receives = false;  // it is the receiver's part of the task
    Time time;
  };
  struct Begun {
    std::uint32_t rank = 0;
    Work work;
  };

  // Nothing is kept if the servers have no number of cores.
  explicit Cores(const Servers& servers);

  bool are_shared() const { return !idle_.empty(); }
  void add(std::uint32_t rank, const Work& work);
  // Returns what begins on an idle core of that server; nothing if none is idle, or nobody waits.
  std::optional<Begun> begin(std::uint32_t server);
  // The work that this rank began is over.
  void end(std::uint32_t rank);

 private:
  const Servers& servers_;
  std::vector<std::uint32_t> idle_;                 // cores, by server
  std::vector<std::deque<std::uint32_t>> waiting_;  // ranks with work, by server
  std::vector<std::deque<Work>> work_;              // by rank; the first may have begun
};

}  // namespace tulle::workload
