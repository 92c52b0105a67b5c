#pragma once

// The threads that move the parts of a simulated network.

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "sim/team.h"

namespace tulle::experiment {

// The place where a fixed number of threads meet.
class MeetingPlace {
 public:
  explicit MeetingPlace(std::uint32_t threads);

  // There are fewer threads than were to come.
  void expect(std::uint32_t threads) { threads_.store(threads, std::memory_order_relaxed); }
  // Waits until all threads are here (sim::Team::meet()).
  void meet(const std::function<void()>& before_all_go);

 private:
  std::atomic<std::uint32_t> threads_;
  std::atomic<std::uint32_t> here_ = 0;
  std::atomic<std::uint32_t> meeting_ = 0;  // number of the meetings so far
  std::atomic<int> looks_;                  // how often a thread looks before it sleeps
};

class Threads final : public sim::Team {
 public:
  static constexpr std::uint32_t most = 256;  // parts of a network (sim::Nodes::parts_max)

  // The caller of work() is one of the threads, so that one fewer is started. Throws
  // std::system_error if the system has none left.
  explicit Threads(std::uint32_t threads);
  ~Threads() override;
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  std::uint32_t size() const override { return static_cast<std::uint32_t>(threads_.size()) + 1; }
  void work(const std::function<void(std::uint32_t)>& function) override;
  void meet(const std::function<void()>& before_all_go) override { between_.meet(before_all_go); }

 private:
  void serve(std::uint32_t number);
  void dismiss();

  MeetingPlace begin_, between_, end_;                            // of a call of work()
  const std::function<void(std::uint32_t)>* function_ = nullptr;  // null: there is no more work
  std::vector<std::thread> threads_;
};

}  // namespace tulle::experiment
