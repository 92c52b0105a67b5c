#include "study/workload/jobs_player.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace tulle::workload {

JobsPlayer::JobsPlayer(const std::vector<Job>& jobs, Carrier& carrier, const Stage& stage,
                       std::optional<std::size_t> only)
    : only_(only) {
  TULLE_CHECK(!jobs.empty() && (!only || *only < jobs.size()));
  for (const Job& job : jobs) {
    TULLE_CHECK(players_.empty() || (job.first_flow == players_.back().job().end_flow() &&
                                     job.first_task == players_.back().job().end_task()));
    players_.emplace_back(job, carrier, stage);
    first_flows_.push_back(job.first_flow);
    first_tasks_.push_back(job.first_task);
  }
}

void JobsPlayer::begin() {
  for (std::size_t job = 0; job < players_.size(); ++job) {
    if (!only_ || *only_ == job) players_[job].begin();
  }
}

// A job without flows or tasks begins where the next one does, which is the one that is meant.
std::size_t JobsPlayer::job_of(const std::vector<std::uint32_t>& firsts,
                               std::uint32_t index) const {
  return static_cast<std::size_t>(std::ranges::upper_bound(firsts, index) - firsts.begin() - 1);
}

void JobsPlayer::handle_alarm(Time now, std::uint32_t token) {
  players_[job_of(first_tasks_, TaskPlayer::task_of(token))].handle_alarm(now, token);
}

bool JobsPlayer::accepts_alarm(std::uint32_t host, std::uint32_t token) const {
  if (TaskPlayer::task_of(token) < first_tasks_.front()) return false;
  const std::size_t job = job_of(first_tasks_, TaskPlayer::task_of(token));
  return (!only_ || *only_ == job) && players_[job].accepts_alarm(host, token);
}

void JobsPlayer::arrived(Time now, std::uint32_t flow) {
  players_[job_of(first_flows_, flow)].arrived(now, flow);
}

void JobsPlayer::sent(Time now, std::uint32_t flow) {
  players_[job_of(first_flows_, flow)].sent(now, flow);
}

bool JobsPlayer::is_done() const {
  if (only_) return players_[*only_].is_done();
  return std::ranges::all_of(players_, &TaskPlayer::is_done);
}

std::size_t JobsPlayer::parts() const {
  if (only_) return players_[*only_].parts();
  return std::accumulate(
      players_.begin(), players_.end(), std::size_t{0},
      [](std::size_t sum, const TaskPlayer& player) { return sum + player.parts(); });
}

std::size_t JobsPlayer::parts_done() const {
  if (only_) return players_[*only_].parts_done();
  return std::accumulate(
      players_.begin(), players_.end(), std::size_t{0},
      [](std::size_t sum, const TaskPlayer& player) { return sum + player.parts_done(); });
}

Time JobsPlayer::end() const {
  Time end;
  for (const TaskPlayer& player : players_) end = std::max(end, player.end());
  return end;
}

}  // namespace tulle::workload
