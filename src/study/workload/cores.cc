#include "study/workload/cores.h"

namespace tulle::workload {

Cores::Cores(const Servers& servers) : servers_(servers) {
  if (servers.cores == 0) return;
  idle_.assign(servers.servers, servers.cores);
  waiting_.resize(servers.servers);
  work_.resize(servers.ranks());
}

void Cores::add(std::uint32_t rank, const Work& work) {
  work_[rank].push_back(work);
  // A rank with earlier work waits already, or is at it.
  if (work_[rank].size() == 1) waiting_[servers_.server_of(rank)].push_back(rank);
}

std::optional<Cores::Begun> Cores::begin(std::uint32_t server) {
  if (idle_[server] == 0 || waiting_[server].empty()) return std::nullopt;
  const std::uint32_t rank = waiting_[server].front();
  waiting_[server].pop_front();
  --idle_[server];
  return Begun{rank, work_[rank].front()};
}

void Cores::end(std::uint32_t rank) {
  const std::uint32_t server = servers_.server_of(rank);
  ++idle_[server];
  work_[rank].pop_front();
  if (!work_[rank].empty()) waiting_[server].push_back(rank);
}

}  // namespace tulle::workload
