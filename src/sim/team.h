#pragma once

#include <cstdint>
#include <functional>

namespace tulle::sim {

// Threads that move the parts of a network at the same time, and meet between two rounds. This room
// starts no threads: who runs a simulation has them.
class Team {
 public:
  virtual ~Team() = default;

  // Returns the number of its threads, which is at least 1.
  virtual std::uint32_t size() const = 0;
  // Calls a function once in each thread, with the thread's number from 0 on, and returns when all
  // calls have returned. What was done before the call is seen by all threads, and what they do is
  // seen by the caller. The function must not throw.
  virtual void work(const std::function<void(std::uint32_t)>& function) = 0;
  // Called by all threads while they work: waits until all are here. The last one that comes calls
  // `before_all_go` while the others wait. What a thread did before is seen by all afterwards.
  virtual void meet(const std::function<void()>& before_all_go) = 0;
};

}  // namespace tulle::sim
