// The offered services, and requests that wait for a service to come back.

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "management/cm/manager.h"

namespace tulle::management::cm {

// Requests that came while there was no listener go first, in order.
void Manager::listen(Time now, std::uint64_t service_id, const Gid& address) {
  ++services_[service_id];
  const auto serves = [&](const Gid& other) { return address == any_address || other == address; };
  std::erase_if(expected_, [&](const auto& entry) {
    return entry.first.first == service_id && serves(entry.first.second);
  });
  std::vector<Held> returned;
  std::erase_if(held_, [&](const Held& held) {
    if (held.service_id != service_id || !serves(held.route.local)) return false;
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

void Manager::expect_listener(Time now, std::uint64_t service_id, std::uint32_t owner,
                              const Gid& address) {
  std::erase_if(expected_, [&](const auto& entry) { return entry.second.deadline <= now; });
  if (expected_.size() >= settings_.held_max) make_room_to_expect();
  expected_[{service_id, address}] = {now + settings_.return_window, owner};
}

// Returns the first element, in their order, of the group that has most of them. Of groups that
// have as many, the one counts whose first element comes first.
template <typename Elements, typename GroupOf>
auto first_of_largest(Elements& elements, GroupOf group_of) {
  auto found = elements.end();
  std::ptrdiff_t most = 0;
  for (auto each = elements.begin(); each != elements.end(); ++each) {
    const std::ptrdiff_t count = std::ranges::count(elements, group_of(*each), group_of);
    if (count > most) found = each, most = count;
  }
  return found;
}

void Manager::make_room_to_expect() {
  const auto owner_of = [](const auto& entry) { return entry.second.owner; };
  const auto largest = first_of_largest(expected_, owner_of);
  auto first = largest;
  for (auto each = expected_.begin(); each != expected_.end(); ++each) {
    const bool is_of_owner = owner_of(*each) == owner_of(*largest);
    if (is_of_owner && each->second.deadline < first->second.deadline) first = each;
  }
  expected_.erase(first);
}

// Returns false if the address that asks has most of the requests that wait.
bool Manager::make_room_to_hold(const Route& route) {
  if (held_.size() < settings_.held_max) return true;
  const auto address_of = [](const Held& held) { return held.route.remote; };
  const auto oldest = first_of_largest(held_, address_of);
  const auto own = std::ranges::count(held_, route.remote, address_of);
  if (own >= std::ranges::count(held_, oldest->route.remote, address_of)) return false;
  held_.erase(oldest);
  return true;
}

// Returns true if the request waits, or repeats one that waits.
bool Manager::hold(const Received& received, std::uint64_t service_id, const RemoteKey& from) {
  if (services_.contains(service_id)) return false;
  const auto is_expected_at = [&](const Gid& address) {
    const auto found = expected_.find({service_id, address});
    return found != expected_.end() && found->second.deadline > received.now;
  };
  if (!is_expected_at(received.route.local) && !is_expected_at(any_address)) return false;
  const bool is_known =
      std::any_of(held_.begin(), held_.end(), [&](const Held& held) { return held.from == from; });
  if (is_known) {
    ++counters_.duplicates;
    return true;
  }
  if (!make_room_to_hold(received.route)) return false;
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
  for (const Held& held : overdue) {
    expected_.erase({held.service_id, held.route.local});
    expected_.erase({held.service_id, any_address});
  }
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
  for (auto& [service, expected] : expected_) tulle::rebase(by, expected.deadline);
  for (Held& held : held_) tulle::rebase(by, held.deadline);
}

Time Manager::next_deadline() const {
  Time next = timers_.empty() ? Time::never() : timers_.begin()->first;
  for (const Held& held : held_) next = std::min(next, held.deadline);
  return next;
}

}  // namespace tulle::management::cm
