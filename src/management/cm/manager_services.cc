// The offered services, and requests that wait for a service to come back.

#include <algorithm>

#include "management/cm/manager.h"

namespace tulle::management::cm {

// Requests that came while there was no listener go first, in order.
void Manager::listen(Time now, std::uint64_t service_id, const Gid& address) {
  for (const auto& held : services_.listen(service_id, address)) handle_held(now, held);
}

// Returns true if the request waits, or repeats one that waits.
bool Manager::hold(const Received& received, std::uint64_t service_id, const RemoteKey& from) {
  switch (services_.hold(received.now, received.route, received.mad, service_id, from)) {
    case OfferedServices::Outcome::refused:
      return false;
    case OfferedServices::Outcome::repeated:
      ++counters_.duplicates;
      return true;
    case OfferedServices::Outcome::held:
      ++counters_.held;
      return true;
  }
  return false;
}

void Manager::handle_held(Time now, const OfferedServices::Held& held) {
  std::span<const std::byte> rest = held.mad;
  const auto header = wire::take<wire::MadHeader>(rest);
  dispatch({now, held.route, header.transaction_id, held.mad}, header.attribute_id, rest);
}

// Refuses requests whose listener did not come back, as if there had never been one. Later requests
// are refused too.
void Manager::refuse_overdue(Time now) {
  for (const auto& held : services_.take_overdue(now)) handle_held(now, held);
}

void Manager::rebase(Time by) {
  unasked_.rebase(by);
  timers_.clear();
  own_ = of_peers_ = {};
  for (auto& [id, connection] : connections_) {
    tulle::rebase(by, connection.deadline);
    tulle::rebase(by, connection.gives_up_at);
    watch(connection);
  }
  services_.rebase(by);
}

Time Manager::next_deadline() const {
  const Time next = timers_.empty() ? Time::never() : timers_.begin()->first;
  return std::min(next, services_.next_deadline());
}

}  // namespace tulle::management::cm
