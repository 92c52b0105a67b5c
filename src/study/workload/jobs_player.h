#pragma once

// Plays several jobs on one set of adapters. Each job has its own player, which is notified only
// about the job's own alarms and flows.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "base/time.h"
#include "study/workload/job.h"
#include "study/workload/player.h"
#include "study/workload/task_player.h"

namespace tulle::workload {

// Most jobs of one run.
inline constexpr std::size_t jobs_max = 1'024;

class JobsPlayer final : public Schedule {
 public:
  // The jobs, which must outlive this, are counted through (study/workload/job.h), and their flows
  // are the player's. If `only` is given, that job alone is played, and the others never begin.
  JobsPlayer(const std::vector<Job>& jobs, Carrier& carrier, const Stage& stage,
             std::optional<std::size_t> only = {});

  // Sets the alarms with which the jobs begin.
  void begin();
  void handle_alarm(Time now, std::uint32_t token);
  // Returns true if another process may send an alarm with such a token for a host.
  bool accepts_alarm(std::uint32_t host, std::uint32_t token) const;
  void arrived(Time now, std::uint32_t flow) override;
  void sent(Time now, std::uint32_t flow) override;

  std::size_t size() const { return players_.size(); }
  const TaskPlayer& operator[](std::size_t job) const { return players_[job]; }
  TaskPlayer& operator[](std::size_t job) { return players_[job]; }
  // Returns true if all tasks of the jobs that are played are done.
  bool is_done() const;
  // Returns the number of these jobs' parts, and of those that are done in this process.
  std::size_t parts() const;
  std::size_t parts_done() const;
  // Returns the time at which the last task of all ended; zero if none has.
  Time end() const;

 private:
  // Returns the number of the job to which an index belongs; `firsts` has each job's first index.
  std::size_t job_of(const std::vector<std::uint32_t>& firsts, std::uint32_t index) const;

  std::deque<TaskPlayer> players_;                        // which cannot be moved
  std::vector<std::uint32_t> first_flows_, first_tasks_;  // by job
  std::optional<std::size_t> only_;
};

}  // namespace tulle::workload
