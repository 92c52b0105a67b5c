// The offered services, and requests that wait for a service to come back.

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "management/cm/manager.h"

namespace tulle::management::cm {

// Requests that came while there was no listener go first, in order.
void Manager::listen(Time now, std::uint64_t service_id) {
  ++services_[service_id];
  expected_.erase(service_id);
  std::vector<Held> returned;
  std::erase_if(held_, [&](const Held& held) {
    if (held.service_id != service_id) return false;
    returned.push_back(held);
    return true;
  });
  for (const Held& held : returned) handle_held(now, held);
}

void Manager::stop_listening(std::uint64_t service_id) {
  const auto found = services_.find(service_id);
  TULLE_CHECK(found != services_.end());
  if (--found->second == 0) services_.erase(found);
}

void Manager::expect_listener(Time now, std::uint64_t service_id) {
  std::erase_if(expected_, [&](const auto& entry) { return entry.second <= now; });
  if (expected_.size() < settings_.held_max) expected_[service_id] = now + settings_.return_window;
}

// Returns true if the request waits, or repeats one that waits.
bool Manager::hold(const Received& received, std::uint64_t service_id, const RemoteKey& from) {
  if (services_.contains(service_id)) return false;
  const auto expected = expected_.find(service_id);
  if (expected == expected_.end() || expected->second <= received.now) return false;
  const bool is_known =
      std::any_of(held_.begin(), held_.end(), [&](const Held& held) { return held.from == from; });
  if (is_known) {
    ++counters_.duplicates;
    return true;
  }
  if (held_.size() >= settings_.held_max) return false;
  Held& held = held_.emplace_back();
  held.deadline = received.now + settings_.return_patience;
  held.service_id = service_id;
  held.from = from;
  held.route = received.route;
  std::copy_n(received.mad.begin(), held.mad.size(), held.mad.begin());
  ++counters_.held;
  return true;
}

// Drops a waiting request whose sender has given up.
void Manager::drop_held(const RemoteKey& from) {
  std::erase_if(held_, [&](const Held& held) { return held.from == from; });
}

void Manager::handle_held(Time now, const Held& held) {
  std::span<const std::byte> rest = held.mad;
  const auto header = wire::take<wire::MadHeader>(rest);
  dispatch({now, held.route, header.transaction_id, held.mad}, header.attribute_id, rest);
}

// Refuses requests whose listener did not come back, as if there had never been one. Later requests
// are refused too.
void Manager::refuse_overdue(Time now) {
  std::vector<Held> overdue;
  std::erase_if(held_, [&](const Held& held) {
    if (held.deadline > now) return false;
    overdue.push_back(held);
    return true;
  });
  for (const Held& held : overdue) expected_.erase(held.service_id);
  for (const Held& held : overdue) handle_held(now, held);
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
  for (auto& [service, deadline] : expected_) tulle::rebase(by, deadline);
  for (Held& held : held_) tulle::rebase(by, held.deadline);
}

Time Manager::next_deadline() const {
  Time next = timers_.empty() ? Time::never() : timers_.begin()->first;
  for (const Held& held : held_) next = std::min(next, held.deadline);
  return next;
}

}  // namespace tulle::management::cm
