#include "management/cm/offered_services.h"

#include <algorithm>

#include "base/check.h"

namespace tulle::management::cm {
namespace {

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

}  // namespace

// Takes some of the requests that wait, in order.
template <typename IsTaken>
std::vector<OfferedServices::Held> OfferedServices::take(IsTaken is_taken) {
  std::vector<Held> taken;
  std::erase_if(held_, [&](const Held& held) {
    if (!is_taken(held)) return false;
    taken.push_back(held);
    return true;
  });
  return taken;
}

std::vector<OfferedServices::Held> OfferedServices::listen(std::uint64_t service_id,
                                                           const Gid& address) {
  ++services_[service_id];
  const auto serves = [&](std::uint64_t id, const Gid& at) {
    return id == service_id && (address == any_address || at == address);
  };
  std::erase_if(expected_,
                [&](const auto& entry) { return serves(entry.first.first, entry.first.second); });
  return take([&](const Held& held) { return serves(held.service_id, held.route.local); });
}

void OfferedServices::stop_listening(std::uint64_t service_id) {
  const auto found = services_.find(service_id);
  TULLE_CHECK(found != services_.end());
  if (--found->second == 0) services_.erase(found);
}

void OfferedServices::expect(Time now, std::uint64_t service_id, std::uint32_t owner,
                             const Gid& address) {
  std::erase_if(expected_, [&](const auto& entry) { return entry.second.deadline <= now; });
  if (expected_.size() >= settings_.held_max) make_room_to_expect();
  expected_[{service_id, address}] = {now + settings_.return_window, owner};
}

bool OfferedServices::expects(Time now, std::uint64_t service_id, const Gid& address) const {
  const auto found = expected_.find({service_id, address});
  return found != expected_.end() && found->second.deadline > now;
}

void OfferedServices::make_room_to_expect() {
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
bool OfferedServices::make_room_to_hold(const Route& route) {
  if (held_.size() < settings_.held_max) return true;
  const auto address_of = [](const Held& held) { return held.route.remote; };
  const auto oldest = first_of_largest(held_, address_of);
  const auto own = std::ranges::count(held_, route.remote, address_of);
  if (own >= std::ranges::count(held_, oldest->route.remote, address_of)) return false;
  held_.erase(oldest);
  return true;
}

OfferedServices::Outcome OfferedServices::hold(Time now, const Route& route,
                                               std::span<const std::byte> mad,
                                               std::uint64_t service_id, const RemoteKey& from) {
  if (offers(service_id)) return Outcome::refused;
  const bool is_expected =
      expects(now, service_id, route.local) || expects(now, service_id, any_address);
  if (!is_expected) return Outcome::refused;
  const auto is_its = [&](const Held& held) { return held.from == from; };
  if (std::ranges::any_of(held_, is_its)) return Outcome::repeated;
  if (!make_room_to_hold(route)) return Outcome::refused;
  Held& held = held_.emplace_back();
  held.deadline = now + settings_.return_patience;
  held.service_id = service_id;
  held.from = from;
  held.route = route;
  std::copy_n(mad.begin(), held.mad.size(), held.mad.begin());
  return Outcome::held;
}

void OfferedServices::drop(const RemoteKey& from) {
  std::erase_if(held_, [&](const Held& held) { return held.from == from; });
}

std::vector<OfferedServices::Held> OfferedServices::take_overdue(Time now) {
  std::vector<Held> overdue = take([&](const Held& held) { return held.deadline <= now; });
  for (const Held& held : overdue) {
    expected_.erase({held.service_id, held.route.local});
    expected_.erase({held.service_id, any_address});
  }
  return overdue;
}

Time OfferedServices::next_deadline() const {
  Time next = Time::never();
  for (const Held& held : held_) next = std::min(next, held.deadline);
  return next;
}

void OfferedServices::rebase(Time by) {
  for (auto& [service, expected] : expected_) tulle::rebase(by, expected.deadline);
  for (Held& held : held_) tulle::rebase(by, held.deadline);
}

}  // namespace tulle::management::cm
