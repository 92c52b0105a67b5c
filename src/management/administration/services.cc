#include "management/administration/services.h"

#include "base/timers.h"

namespace tulle::management::administration {

namespace {

bool has_key_of(const wire::ServiceRecord& known, const wire::ServiceRecord& asked) {
  return known.key != decltype(known.key){} && known.key == asked.key;
}

}  // namespace

ServiceOutcome Services::set(Time now, const wire::ServiceRecord& record,
                             const ServiceAsker& asker) {
  const auto found = services_.find(key_of(record));
  const bool is_new = found == services_.end();
  const bool may = asker.may_change || (!is_new && has_key_of(found->second.record, record));
  if (!may) return ServiceOutcome::not_allowed;
  if (is_new) {
    const auto of_port = of_port_.find(asker.port);
    const bool has_all = of_port != of_port_.end() && of_port->second >= services_of_port_max;
    if (has_all || services_.size() >= services_max) return ServiceOutcome::no_room;
    ++of_port_[asker.port];
  } else {
    ends_.erase({found->second.end, found->first});
  }
  const std::uint64_t owner = is_new ? asker.port : found->second.owner;
  // IBTA 15.2.5.14: a lease of zero seconds is over at once.
  constexpr std::int64_t longest = 90 * 24 * 3'600;  // less than Time holds
  const std::uint32_t seconds = record.lease_seconds;
  const bool is_endless = seconds == wire::ServiceRecord::for_ever || seconds > longest;
  const Time end = is_endless ? Time::never() : sum_or_never(now, Time::seconds(seconds));
  services_[key_of(record)] = {record, end, owner};
  if (!end.is_never()) ends_.emplace(end, key_of(record));
  return ServiceOutcome::ok;
}

ServiceOutcome Services::remove(const wire::ServiceRecord& record, const ServiceAsker& asker) {
  const auto found = services_.find(key_of(record));
  if (found == services_.end()) return ServiceOutcome::unknown;
  const bool may = asker.may_change || has_key_of(found->second.record, record);
  if (!may) return ServiceOutcome::not_allowed;
  forget(found);
  return ServiceOutcome::ok;
}

void Services::forget(ServiceMap::iterator service) {
  ends_.erase({service->second.end, service->first});
  const auto of_port = of_port_.find(service->second.owner);
  if (--of_port->second == 0) of_port_.erase(of_port);
  services_.erase(service);
}

bool Services::visit(Time now, const ServiceKeys& keys, std::optional<ServiceKey>& cursor,
                     std::size_t& budget, const TakeService& take) const {
  auto at = services_.lower_bound(cursor.value_or(keys.first));
  for (; at != services_.end() && at->first <= keys.last; ++at) {
    const auto& [key, service] = *at;
    if (budget == 0) {
      cursor = key;
      return false;
    }
    --budget;
    wire::ServiceRecord record = service.record;
    if (!service.end.is_never()) {
      const Time left = service.end > now ? service.end - now : Time::zero();
      record.lease_seconds = static_cast<std::uint32_t>(left.to_microseconds() / 1'000'000);
    }
    if (!take(record)) return true;
  }
  return true;
}

void Services::rebase(Time by) {
  rebase_timers(by, ends_);
  for (auto& [key, service] : services_) tulle::rebase(by, service.end);
}

void Services::expire(Time now) {
  while (next_timeout() <= now) forget(services_.find(ends_.begin()->second));
}

}  // namespace tulle::management::administration
