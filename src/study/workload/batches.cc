#include "study/workload/batches.h"

#include <algorithm>

namespace tulle::workload {

Batches::Batches(const std::optional<BatchSettings>& settings, std::uint32_t ranks) {
  if (!settings) return;
  settings_ = *settings;
  ranks_.resize(ranks);
}

std::optional<Time> Batches::begin(std::uint32_t rank) {
  Rank& at = ranks_[rank];
  if (at.is_busy) return std::nullopt;
  while (at.batch.size() < settings_.most && !at.waiting.empty()) {
    at.batch.push_back(at.waiting.front());
    at.waiting.pop_front();
  }
  if (at.batch.empty()) return std::nullopt;
  at.is_busy = true;
  Time reads = settings_.round;
  for (const Member& member : at.batch) reads += member.duration;
  return std::max(reads,
                  Time{settings_.computation.ps * static_cast<std::int64_t>(at.batch.size())});
}

std::vector<Batches::Member> Batches::end(std::uint32_t rank) {
  Rank& at = ranks_[rank];
  at.is_busy = false;
  std::vector<Member> members = at.batch;
  for (Member& member : members) --member.rounds_left;
  at.batch.clear();
  for (Member member : members) {
    member.is_new = false;
    if (member.rounds_left > 0) at.batch.push_back(member);
  }
  return members;
}

}  // namespace tulle::workload
